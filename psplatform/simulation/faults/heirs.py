"""What stands in for the safeguards of heirs, the replicas that may be promoted in the place of one that just was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from psplatform.core.coordination.copies import Copies
from psplatform.core.server import Server


def without_waiting(serve_if_level: Any) -> Any:
    """Return what lets a promoted server serve at once, however far behind its heirs are."""

    def wrapped(server: Server) -> Any:
        order = server._rising
        if order is None:
            return []
        server._rising = replace(order, heirs=())
        return serve_if_level(server)

    return wrapped


def as_if_alone(promote: Any) -> Any:
    """Return what promotes a copy as if nobody else could be: the other replicas join anew."""

    def wrapped(copies: Copies, one: Any) -> None:
        one.joining, one.in_sync = [*one.in_sync, *one.joining], []
        promote(copies, one)

    return wrapped
