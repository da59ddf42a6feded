"""The part of a run's picture that is about copies: how far they lag, which there are, and when one took over."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from itertools import chain
from typing import Any, Final, NamedTuple

from psplatform.telemetry.log.segments import Record
from psplatform.telemetry.measures import Point, Series

FAILOVERS: Final = 256  # the newest ones; the log has them all
LOSSES: Final = 256
COPIES: Final = 8  # of a shard, lost ones included: a copy's name is used once, and a long run may lose many

REPLICA_STATUS: Final = frozenset({"ready", "in sync", "out of sync"})
GONE: Final = frozenset({"lost", "moved"})
"""What a copy is that is no copy any more."""

SERVER: Final = "server"
RETIRED: Final = "retired"


class LostPositions(NamedTuple):
    """Positions of a shard that its server applied and no copy had: they are not part of the model."""

    at: float
    shard: int
    epoch: int
    first: int
    last: int


class LongStep(NamedTuple):
    """A step that by itself is longer than what a replica of its shard may lack."""

    at: float
    shard: int
    version: int
    step: float
    bound: float

    @property
    def text(self) -> str:
        """What that means, in one line."""
        step = f"the step to version {self.version} was {self.step:.3g} long on shard {self.shard}"
        waits = "such updates wait for their copy, as under chain"
        return f"{step}, more than its part of max_divergence, {self.bound:.3g}: {waits}; raise it to merge updates"


@dataclass(slots=True)
class CopyView:
    """A copy of a shard.

    Attributes
    ----------
    status
        ``ready``, ``in sync``, ``out of sync``, ``lost``, ``moved`` or ``promoted``, and since when and why.
    """

    shard: int
    copy: str
    process: str
    status: str
    since: float
    reason: str

    def to_plain(self) -> dict[str, Any]:
        """Return the fields."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


@dataclass(slots=True)
class Failover:
    """A replica that became a server, or a standby that became the coordinator.

    Attributes
    ----------
    role
        ``server`` or ``coordinator``.
    shard, epoch
        The shard, -1 for the coordinator, and its epoch since, or the coordinator's term.
    copy
        Who took over.
    process
        The process that was lost: its address and, where that is known, its process id.
    signal
        What was noticed: ``process ended``, ``closed connection``, ``silent for 1.2 s``, ``retired``.
    detected_seconds, promoted_seconds, first_commit_seconds
        Seconds until it was noticed, until the other had taken over, and until its first commit, ``None`` before.
    distance_lost, updates_lost
        Bound of the distance that the parameters went back by, if it is known, and the updates that are gone.  What was
        gone before, with an earlier server, is told of that one alone.
    bound, unit
        What replication allowed, and in which unit; ``None`` where nothing was promised.
    """

    at: float
    role: str
    shard: int
    epoch: int
    copy: str
    process: str
    signal: str
    detected_seconds: float
    promoted_seconds: float
    distance_lost: float | None
    updates_lost: int
    bound: float | None
    unit: str | None
    first_commit_seconds: float | None = None

    @property
    def text(self) -> str:
        """What happened, in one line."""
        how = self.signal if self.signal == RETIRED else f"lost ({self.signal})"
        if self.role != SERVER:
            return f"{self.role} {how}, standby took over in {self.promoted_seconds:.2f} s (term {self.epoch})"
        took_over = f"replica promoted in {self.promoted_seconds:.2f} s"
        return f"shard {self.shard}: {self.role} {how}, {took_over}; {self._lost()}"

    def _lost(self) -> str:
        if not self.updates_lost and not self.distance_lost:
            return "nothing lost"
        of_updates = f" of at most {self.bound:g}" if self.unit == "updates" else ""
        of_norm = f" of {self.bound:g}" if self.unit == "norm" else ""
        updates = f"{self.updates_lost}{of_updates} update{'s' if self.updates_lost != 1 or of_updates else ''} lost"
        return updates if self.distance_lost is None else f"{updates}, distance <= {self.distance_lost:.3g}{of_norm}"

    def to_plain(self) -> dict[str, Any]:
        """Return the fields and the text."""
        return {**{one.name: getattr(self, one.name) for one in fields(self)}, "text": self.text}


class Survives(NamedTuple):
    """The largest loss that the run survives now: ``nothing`` or ``any one process``, ``host`` or ``zone``.

    Attributes
    ----------
    why
        What would have to change for a larger one, in words.
    since
        Since when, in seconds of the run.
    """

    what: str
    why: str
    since: float


@dataclass(slots=True)
class Protection:
    """How well a run is protected, and what that was good for.

    Attributes
    ----------
    divergences, lags
        At visible versions: an upper bound of the distance between servers and replicas, and the updates that the worst
        replica lacks.
    max_divergence, max_lag
        The largest of each since the run began or was recovered, ``None`` before the first.
    to_replica_bytes
        Bytes sent to replicas since then.
    copies
        By shard and name.
    unprotected
        Shards without a replica in sync.
    survives
        The largest loss that the run survives now, ``None`` where that is not known.
    long_step
        The first step that by itself was longer than the bound, if there was one: replication is a chain in effect.
    failovers, lost_positions
        The newest ones, in order, those before a recovery included.
    term, epochs
        The coordinator's term, and the epoch of each shard that was ever promoted; the others are in their first.
    """

    divergences: Series[Point] = field(default_factory=Series)
    lags: Series[Point] = field(default_factory=Series)
    max_divergence: float | None = None
    max_lag: int | None = None
    to_replica_bytes: int = 0
    copies: dict[int, dict[str, CopyView]] = field(default_factory=dict)
    unprotected: tuple[int, ...] = ()
    survives: Survives | None = None
    long_step: LongStep | None = None
    lost_positions: deque[LostPositions] = field(default_factory=lambda: deque(maxlen=LOSSES))
    term: int = 1
    epochs: dict[int, int] = field(default_factory=dict)
    _failovers: dict[tuple[int, str, int, int], Failover] = field(default_factory=dict)
    _life: int = 0

    @property
    def failovers(self) -> tuple[Failover, ...]:
        """The newest failovers, in order."""
        return tuple(self._failovers.values())

    def begin(self, term: int) -> None:
        """Begin another life of the run: what was true of its copies is not any more, and epochs count from 1 again."""
        self._life += 1
        self.term = term
        self.max_divergence = self.max_lag = self.long_step = None
        self.to_replica_bytes = 0
        self.copies, self.epochs, self.unprotected, self.survives = {}, {}, (), None

    def show(self, record: Record) -> None:
        """Fold what an ``applied`` record says of replicas, if anything."""
        divergence, lag = record.get("divergence"), record.get("lag")
        if divergence is not None:
            self.divergences.append(Point(record["at"], record["version"], divergence))
            self.max_divergence = max(self.max_divergence or 0.0, divergence)
        if lag is not None:
            self.lags.append(Point(record["at"], record["version"], lag))
            self.max_lag = max(self.max_lag or 0, lag)
        self.to_replica_bytes = record.get("to_replica_bytes", self.to_replica_bytes)

    def show_all(self, records: Sequence[Record]) -> None:
        """Fold ``applied`` records, as one after the other."""
        apart = [record for record in records if record.get("divergence") is not None]
        if apart:
            self.divergences.extend(len(apart), lambda place: _point(apart[place], "divergence"))
            self.max_divergence = max(chain((self.max_divergence or 0.0,), (one["divergence"] for one in apart)))
        lagging = [record for record in records if record.get("lag") is not None]
        if lagging:
            self.lags.extend(len(lagging), lambda place: _point(lagging[place], "lag"))
            self.max_lag = max(chain((self.max_lag or 0,), (one["lag"] for one in lagging)))
        for record in reversed(records):
            if "to_replica_bytes" in record:
                self.to_replica_bytes = record["to_replica_bytes"]
                break

    def change(self, record: Record) -> str | None:
        """Fold a ``copy`` record; return what a person should know of it, if anything."""
        shard, name, event, reason = (record[key] for key in ("shard", "copy", "event", "reason"))
        before = self._note(CopyView(shard, name, record["process"], event, record["at"], reason))
        # The loss of a server is told by the failover that it leads to.
        if event == "lost" and before is not None and before.status in REPLICA_STATUS:
            return f"shard {shard}: replica {name} lost ({reason})"
        return f"shard {shard}: replica {name} {reason}" if event == "moved" else None

    def _note(self, found: CopyView) -> CopyView | None:
        """Take the newest word of a copy; return the one before."""
        of_shard = self.copies.setdefault(found.shard, {})
        before = of_shard.get(found.copy)
        of_shard[found.copy] = found
        lost = [one for one, copy in of_shard.items() if copy.status in GONE]
        if len(of_shard) > COPIES and lost:
            del of_shard[lost[0]]
        return before

    def promote(self, record: Record) -> Failover:
        """Fold a ``promoted`` record."""
        named = [one.name for one in fields(Failover) if one.name != "first_commit_seconds"]
        failover = Failover(**{name: record[name] for name in named})
        self._failovers[self._key(record)] = failover
        if len(self._failovers) > FAILOVERS:
            del self._failovers[next(iter(self._failovers))]
        if failover.role == SERVER:
            self.epochs[failover.shard] = max(failover.epoch, self.epochs.get(failover.shard, 1))
            before = self.copies.get(failover.shard, {}).get(failover.copy)
            place = failover.shard, failover.copy, before.process if before is not None else ""
            self._note(CopyView(*place, "promoted", failover.at, failover.signal))
        else:
            self.term = max(failover.epoch, self.term)
        return failover

    def expose(self, record: Record) -> None:
        """Fold a ``protection`` record."""
        self.unprotected = tuple(record["shards"])

    def outlive(self, record: Record) -> None:
        """Fold a ``survives`` record."""
        before, what = self.survives, str(record["what"])
        since = before.since if before is not None and before.what == what else record["at"]
        self.survives = Survives(what, str(record["why"]), since)

    def outstep(self, record: Record) -> str:
        """Fold a ``beyond bound`` record; return what a person should know of it."""
        found = LongStep(**{name: record[name] for name in LongStep._fields})
        self.long_step = self.long_step or found
        return found.text

    def resume(self, record: Record) -> None:
        """Fold a ``resumed`` record: the first commit after a failover."""
        seconds, key = record["first_commit_seconds"], self._key(record)
        if key in self._failovers:
            self._failovers[key].first_commit_seconds = seconds

    def _key(self, record: Record) -> tuple[int, str, int, int]:
        return self._life, record["role"], record["shard"], record["epoch"]

    def lose(self, record: Record) -> None:
        """Fold a ``lost positions`` record."""
        self.lost_positions.append(LostPositions(**{name: record[name] for name in LostPositions._fields}))

    def to_plain(self, replication: dict[str, Any]) -> dict[str, Any]:
        """Return what the summary tells, given the plain form of the replication in force."""
        bound, unit = allowance(replication)
        largest = {"norm": self.max_divergence, "updates": self.max_lag}.get(unit or "")
        return {
            "divergence": {"max": largest, "bound": bound, "unit": unit},
            "long_step": None if self.long_step is None else {**self.long_step._asdict(), "text": self.long_step.text},
            "failovers": [one.to_plain() for one in self._failovers.values()],
            "lost_positions": [one._asdict() for one in self.lost_positions],
            "copies": [copy.to_plain() for _, of_shard in sorted(self.copies.items()) for copy in of_shard.values()],
            "unprotected": list(self.unprotected),
            "survives": None if self.survives is None else self.survives._asdict(),
            "to_replica_bytes": self.to_replica_bytes,
            "term": self.term,
            "shard_epochs": dict(sorted(self.epochs.items())),
        }


def _point(record: Record, name: str) -> Point:
    return Point(record["at"], record["version"], record[name])


def allowance(replication: dict[str, Any]) -> tuple[float | None, str | None]:
    """Return bound and unit of a replication's plain form; ``None`` for both where nothing is promised."""
    if replication.get("mode") == "chain":
        return 0, "updates"
    return replication.get("max_divergence"), replication.get("unit")
