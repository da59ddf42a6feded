"""The names of actors, each of which is used once in a run, and how effects address them."""

from __future__ import annotations

from typing import Final

from psplatform.core.protocol.values import dataclass

RELAY: Final = "/relay"
"""What the name of a worker's relay ends with."""


@dataclass(frozen=True, slots=True)
class Role:
    """An addressee: the coordinator, its standby, a copy of a shard or a member by name."""

    kind: str
    name: str = ""

    @classmethod
    def copy(cls, name: str) -> Role:
        """Address a copy of a shard, whatever its part is now."""
        return cls("copy", name)

    @classmethod
    def member(cls, name: str) -> Role:
        """Address the gradient worker that joined under `name`."""
        return cls("member", name)

    @classmethod
    def relay(cls, name: str) -> Role:
        """Address what hands parameters on in the process of the gradient worker `name`."""
        return cls("member", f"{name}{RELAY}")


COORDINATOR = Role("coordinator")
STANDBY = Role("standby")


def first_server(shard: int) -> str:
    """Return the name of the copy that serves `shard` when a run begins."""
    return f"server-{shard}"


def first_replica(shard: int, number: int) -> str:
    """Return the name of a replica of `shard` that a run begins with; `number` counts them from 0."""
    return f"replica-{shard}-{number}"


def actor_name(role: str, term: int, number: int) -> str:
    """Return the name of an actor that the coordinator of `term` has made, which counts them by `number` from 1.

    What coordinators before it have used is not all known to it: from the second on, names tell their terms.
    """
    return f"{role}-{number}" if term == 1 else f"{role}-{term}.{number}"
