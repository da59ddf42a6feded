"""One gradient worker or evaluator, as the coordinator's process holds it."""

from __future__ import annotations

from dataclasses import dataclass

from psplatform.errors import PsplatformError
from psplatform.runtime.comms.calls import Peer
from psplatform.runtime.comms.lines import Line
from psplatform.tasks.foreign import unforeseen


@dataclass(slots=True)
class WorkerActor:
    """One actor, and the way to it once it is open.

    Attributes
    ----------
    inquired
        Whether it is known to be lost, and asked of what its process has died.
    """

    name: str
    address: str
    peer: Peer | None = None
    line: Line | None = None
    inquired: bool = False


def why_not_started(error: Exception, actor: WorkerActor) -> PsplatformError:
    """Return what ends a run in which an actor could not start because of `error`."""
    if isinstance(error, PsplatformError):
        return error
    return unforeseen(error, f"{actor.name} at {actor.address} could not start", actor.address)
