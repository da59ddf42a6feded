"""The names of actors: each is used once in a run."""

from __future__ import annotations

from typing import Final

RELAY: Final = "/relay"
"""What the name of a worker's relay ends with."""


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
