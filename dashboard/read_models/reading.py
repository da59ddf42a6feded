"""All that pages show of one run, kept up to date with its log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from threading import RLock
from typing import Final, TypeVar

from psplatform.dashboard.read_models.batches import Clock, batches
from psplatform.dashboard.read_models.convergence import Convergence
from psplatform.dashboard.read_models.decisions import Decisions
from psplatform.dashboard.read_models.delays import StalenessOverTime
from psplatform.dashboard.read_models.divergence import Divergence
from psplatform.dashboard.read_models.drops import Drops
from psplatform.dashboard.read_models.failures import Failures
from psplatform.dashboard.read_models.lanes import Gradients, Lanes, RecentLanes, gradients_of, joined, lanes_of
from psplatform.dashboard.read_models.workers import WorkerTimes
from psplatform.telemetry.read_model import RunView
from psplatform.telemetry.reader import LogReader
from psplatform.telemetry.segments import START, Position, Record

T = TypeVar("T")

MOST_PLACES: Final = 4096
"""Places in the log that are remembered with their time, for stretches that somebody selects later."""

MOST_SELECTED: Final = 200_000
"""Gradients that are read again for a selected stretch; a longer one is shown up to there."""


_BULK: Final = 4096
"""Records that are folded at once where so many are there."""


@dataclass(slots=True)
class Models:
    """The models of one run; `view` is the picture that its summary comes from."""

    view: RunView = field(default_factory=RunView)
    convergence: Convergence = field(default_factory=Convergence)
    staleness: StalenessOverTime = field(default_factory=StalenessOverTime)
    workers: WorkerTimes = field(default_factory=WorkerTimes)
    lanes: RecentLanes = field(default_factory=RecentLanes)
    drops: Drops = field(default_factory=Drops)
    divergence: Divergence = field(default_factory=Divergence)
    decisions: Decisions = field(default_factory=Decisions)
    failures: Failures = field(default_factory=Failures)
    clock: Clock = field(default_factory=Clock)

    def take(self, records: Iterable[Record]) -> None:
        """Fold the next records."""
        records = list(records)
        apply = self.view.apply
        for record in records:
            apply(record)
        for batch in batches(records, self.clock):
            self.clock = batch.clock
            self.convergence.take(batch)
            self.staleness.take(batch)
            self.workers.take(batch)
            self.lanes.take(batch)
            self.drops.take(batch)
            self.divergence.take(batch)
            self.decisions.take(batch)
            self.failures.take(batch)


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the log: what comes after `position` began at `clock`."""

    position: Position
    clock: Clock


@dataclass(frozen=True, slots=True)
class Progress:
    """How much of the log was read: segments of all that there were at the last look."""

    segments: int
    of: int

    @property
    def complete(self) -> bool:
        """Whether nothing is left to read."""
        return self.segments >= self.of


class Reading:
    """The models of the run in `store`, read on at each `refresh`; may be used by several threads."""

    def __init__(self, store: str) -> None:
        self.store = store
        self._reader = LogReader(store)
        self._lock = RLock()
        self._begin()

    def _begin(self) -> None:
        self._models = Models()
        self._position = START
        self._places = [Place(START, Clock())]
        self._every, self._folded = 1, 0
        self._segments = 0

    def refresh(self, budget_s: float = 1.0) -> Progress:
        """Read what was logged since, for about so many seconds at most; return how much of the log is read.

        Raises
        ------
        StoreError
            If the log cannot be read; a later refresh continues where this one ended.
        ProtocolError
            If a record of a known kind lacks a field.
        """
        give_up_at = time.monotonic() + budget_s
        with self._lock:
            history = self._reader.history()
            if not history.holds(self._position):
                self._begin()
            left = sum(1 for _ in history.after(self._position))
            for records, position, segments in _in_bulk(self._reader.iter_from(self._position, history)):
                self._models.take(records)
                self._position = position
                self._segments += segments
                left -= segments
                self._remember()
                if time.monotonic() > give_up_at:
                    break
            return Progress(self._segments, self._segments + left)

    def read(self, rows: Callable[[Models], T]) -> T:
        """Return what `rows` takes out of the models, which do not change meanwhile."""
        with self._lock:
            return rows(self._models)

    def lanes(self, start_s: float, end_s: float) -> Lanes:
        """Return what workers did in any stretch of the run, read from the log again.

        Raises
        ------
        StoreError
            If the log cannot be read.
        """
        with self._lock:
            places = list(self._places)
        history = self._reader.history()
        before = [place for place in places if place.clock.newest_s < start_s]
        place = before[-1] if before else places[0]
        found: list[Gradients] = []
        count, clock = 0, place.clock
        for records, _ in self._reader.iter_from(place.position, history):
            for batch in batches(records, clock):
                clock = batch.clock
                # A gradient that is announced later may have been under way in the stretch: one more segment tells.
                found.append(gradients_of(batch).within(start_s, end_s))
                count += len(found[-1].at)
            if (clock.newest_s > end_s and not len(found[-1].at)) or count > MOST_SELECTED:
                break
        return lanes_of(joined(found), start_s, end_s)

    def _remember(self) -> None:
        self._folded += 1
        if self._folded % self._every:
            return
        self._places.append(Place(self._position, self._models.clock))
        if len(self._places) >= MOST_PLACES:
            del self._places[1::2]
            self._every *= 2


def _in_bulk(
    segments: Iterator[tuple[tuple[Record, ...], Position]],
) -> Iterator[tuple[list[Record], Position, int]]:
    """Yield the records of several small segments at once: folding has a cost for each batch."""
    records: list[Record] = []
    position, count = START, 0
    for found, position in segments:
        records.extend(found)
        count += 1
        if len(records) >= _BULK:
            yield records, position, count
            records, count = [], 0
    if count:
        yield records, position, count
