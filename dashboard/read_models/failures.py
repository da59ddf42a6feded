"""What was lost in a run, how soon it was noticed and replaced, and when the run was protected again."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from psplatform.dashboard.read_models.batches import Batch
from psplatform.telemetry.log.segments import Record
from psplatform.telemetry.protection import Failover, Protection
from psplatform.telemetry.words import shortened

NEWEST: Final = 200

SERVER: Final = "server"

_KINDS: Final = frozenset(
    {"run", "promoted", "resumed", "protection", "copy", "lost", "joined", "checkpoint", "note"}
    | {"cold replica", "beyond bound", "finished"}
)


@dataclass(frozen=True, slots=True)
class FailoverRow:
    """A server or a coordinator that was lost, and how the run went on.

    Times are in seconds of the run.

    Attributes
    ----------
    role, shard
        ``server`` of the shard, or ``coordinator`` (-1).
    killed_at
        When it was last heard before it was noticed.
    noticed_at, promoted_at, first_commit_at
        When it was noticed, when the other had taken over, and when its first commit came, ``None`` before.
    protected_at
        When the shard had a replica in sync again; ``None`` before, and for a coordinator.  What was open when its
        life of the run ended stays open: a recovery makes other copies.
    lost
        What was lost, against the bound, in words.
    text
        The whole of it in one line.
    """

    role: str
    shard: int
    killed_at: float
    noticed_at: float
    promoted_at: float
    first_commit_at: float | None
    protected_at: float | None
    lost: str
    text: str


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a person may want to know of, in seconds of the run."""

    at: float
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """A checkpoint that was completed, or was not."""

    at: float
    number: int
    version: int
    event: str
    seconds: float
    bytes: int


@dataclass(frozen=True, slots=True)
class FailureRows:
    """What happened to the processes of a run.

    Attributes
    ----------
    failovers, events, checkpoints
        The newest ones, in order.
    lives
        When each life of the run began, its start and each recovery; the newest ones.
    unprotected_s
        Seconds in which some shard had no replica in sync.
    unprotected
        The shards that have none now.
    """

    failovers: tuple[FailoverRow, ...]
    events: tuple[Event, ...]
    checkpoints: tuple[CheckpointRow, ...]
    lives: tuple[float, ...]
    unprotected_s: float
    unprotected: tuple[int, ...]


@dataclass(slots=True)
class _Open:
    failover: Failover
    offset_s: float
    of_this_life: bool = True
    first_commit_at: float | None = None
    protected_at: float | None = None


@dataclass(slots=True)
class Failures:
    """Folds what was lost, promoted, resumed, and noted."""

    _open: deque[_Open] = field(default_factory=lambda: deque(maxlen=NEWEST))
    _events: deque[Event] = field(default_factory=lambda: deque(maxlen=NEWEST))
    _checkpoints: deque[CheckpointRow] = field(default_factory=lambda: deque(maxlen=NEWEST))
    _lives: deque[float] = field(default_factory=lambda: deque(maxlen=NEWEST))
    _shards: tuple[int, ...] = ()
    _since: float = 0.0
    _unprotected_s: float = 0.0
    _newest_s: float = 0.0
    _protection: Protection = field(default_factory=Protection)

    def take(self, batch: Batch) -> None:
        """Fold the next records."""
        self._newest_s = batch.clock.newest_s
        for record in batch.among(_KINDS):
            self._fold(record, batch.clock.offset_s)

    def _fold(self, record: Record, offset: float) -> None:
        kind, at = record["kind"], offset + record["at"]
        if kind == "run":
            self._begin(record, at)
        elif kind == "promoted":
            failover = self._protection.promote(record)
            self._open.append(_Open(failover, offset))
            self._tell(at, kind, failover.text)
        elif kind == "resumed":
            self._resume(record, at)
        elif kind == "protection":
            self._protect(tuple(record["shards"]), at)
        elif kind == "copy":
            self._tell(at, kind, self._protection.change(record))
        elif kind == "checkpoint":
            figures = (record[name] for name in ("number", "version", "event", "seconds", "bytes"))
            self._checkpoints.append(CheckpointRow(at, *figures))
            if record["event"] == "failed":
                self._tell(at, kind, f"checkpoint {record['number']} failed: {record['reason']}")
        else:
            self._tell(at, kind, _text(record))

    def _begin(self, record: Record, at: float) -> None:
        if self._lives:
            self._tell(at, "run", f"recovered: goes on from version {record.get('from_version', 0)}")
        for one in self._open:
            one.of_this_life = False
        self._protect((), at)
        self._lives.append(at)
        self._protection.begin(record.get("term", 1))

    def _resume(self, record: Record, at: float) -> None:
        for one in reversed(self._open):
            same = one.failover.role == record["role"] and one.failover.shard == record["shard"]
            same = same and one.failover.epoch == record["epoch"] and one.of_this_life
            if same and one.first_commit_at is None:
                one.first_commit_at = at
                return

    def _protect(self, shards: tuple[int, ...], at: float) -> None:
        if self._shards:
            self._unprotected_s += at - self._since
        self._shards, self._since = shards, at
        for one in self._open:
            waits = one.of_this_life and one.protected_at is None and one.failover.role == SERVER
            if waits and one.failover.shard not in shards:
                one.protected_at = at

    def _tell(self, at: float, kind: str, text: str | None) -> None:
        if text:
            self._events.append(Event(at, kind, shortened(text)))

    @property
    def rows(self) -> FailureRows:
        """What is known so far."""
        waiting = self._newest_s - self._since if self._shards else 0.0
        return FailureRows(
            tuple(_row(one) for one in self._open),
            tuple(self._events),
            tuple(self._checkpoints),
            tuple(self._lives),
            self._unprotected_s + waiting,
            self._shards,
        )


def _row(one: _Open) -> FailoverRow:
    failover, promoted = one.failover, one.offset_s + one.failover.at
    noticed = promoted - failover.promoted_seconds
    text = failover.text
    lost = text.rpartition("; ")[2] if failover.role == SERVER else "nothing: the standby has seen everything"
    return FailoverRow(
        failover.role,
        failover.shard,
        noticed - failover.detected_seconds,
        noticed,
        promoted,
        one.first_commit_at,
        one.protected_at,
        shortened(lost),
        shortened(text),
    )


def _text(record: Record) -> str | None:
    kind = record["kind"]
    if kind == "lost":
        return f"slot {record['slot']} lost {record['process']}: {record['reason']}"
    if kind == "joined":
        return f"slot {record['slot']} is taken by {record['process']}" if record["incarnation"] > 1 else None
    if kind == "beyond bound":
        return f"the step to version {record['version']} exceeds the bound of shard {record['shard']} by itself"
    if kind == "finished":
        return f"{record['outcome']}: {record['detail']}"
    return str(record.get("text", ""))
