"""Messages about processes: where actors are, and what a standby is told beside the events.

No state machine gets one of these: the actors' hosts do.
"""

from __future__ import annotations

from typing import Any

from psplatform.core.protocol.values import dataclass


@dataclass(frozen=True, slots=True)
class ActorAt:
    """The actor `name` is at `address`, under Dask's `key`.

    Attributes
    ----------
    shard
        The shard of a server or replica; -1 of another.
    part
        ``copy``, ``worker`` or ``evaluator``, where that does not go without saying.
    """

    name: str
    address: str
    key: str
    shard: int = -1
    part: str = ""


@dataclass(frozen=True, slots=True)
class CoordinatorAt:
    """The coordinator of `term` is at `address`, under Dask's `key`."""

    term: int
    address: str
    key: str


@dataclass(frozen=True, slots=True)
class ActorReleased:
    """The coordinator has let go of an actor."""

    name: str


@dataclass(frozen=True, slots=True)
class Logged:
    """The coordinator has put a record into the log that no event has led to."""

    record: dict[str, Any]


@dataclass(frozen=True, slots=True)
class LogWritten:
    """The log's file `number` of `term` is written up to the record of that number among all of the run."""

    term: int
    number: int
    records: int
