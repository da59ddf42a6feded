"""All that pages show of one run, kept up to date with its log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
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
from psplatform.dashboard.read_models.network import Network
from psplatform.dashboard.read_models.stretches import Stretch, Stretches
from psplatform.dashboard.read_models.workers import WorkerTimes
from psplatform.errors import ProtocolError, StoreError
from psplatform.telemetry.log.reader import History, LogReader
from psplatform.telemetry.log.segments import START, Position, Record
from psplatform.telemetry.read_model import RunView

T = TypeVar("T")

MOST_PLACES: Final = 4096
"""Stretches of the log that are remembered with their time, for what is selected later."""

MOST_SELECTED: Final = 200_000
"""Gradients that are read again for a selected stretch; a longer one is shown up to there."""

MOST_SELECTIONS: Final = 4
"""Selected stretches whose lanes are kept: those of as many visitors of one run."""

_BULK: Final = 4096
"""Records that are folded at once where so many are there."""

_NOT_UNDERSTOOD: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What folding raises where a field is not of the kind that it should be."""


@dataclass(slots=True)
class Models:
    """The models of one run; `view` is the picture that its summary comes from."""

    view: RunView = field(default_factory=RunView)
    convergence: Convergence = field(default_factory=Convergence)
    staleness: StalenessOverTime = field(default_factory=StalenessOverTime)
    workers: WorkerTimes = field(default_factory=WorkerTimes)
    lanes: RecentLanes = field(default_factory=RecentLanes)
    drops: Drops = field(default_factory=Drops)
    network: Network = field(default_factory=Network)
    divergence: Divergence = field(default_factory=Divergence)
    decisions: Decisions = field(default_factory=Decisions)
    failures: Failures = field(default_factory=Failures)
    clock: Clock = field(default_factory=Clock)

    def take(self, records: Sequence[Record]) -> None:
        """Fold the next records."""
        for batch in batches(records, self.clock):
            self.clock = batch.clock
            self.view.take(batch)
            self.convergence.take(batch)
            self.staleness.take(batch)
            self.workers.take(batch)
            self.lanes.take(batch)
            self.drops.take(batch)
            self.network.take(batch)
            self.divergence.take(batch)
            self.decisions.take(batch)
            self.failures.take(batch)


@dataclass(frozen=True, slots=True)
class Progress:
    """How much of the log was read: segments of all that there were at the last look."""

    segments: int
    of: int

    @property
    def complete(self) -> bool:
        """Whether nothing is left to read."""
        return self.segments >= self.of


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why a log up to a position cannot be folded; it cannot ever, unless a takeover supersedes that position."""

    position: Position
    text: str


class Reading:
    """The models of the run in `store`, read on at each `refresh`; may be used by several threads."""

    def __init__(self, store: str) -> None:
        self.store = store
        self._reader = LogReader(store)
        self._lock = RLock()
        self._history = History(())
        self._refusal: _Refusal | None = None
        self._begin()

    def _begin(self) -> None:
        self._models = Models()
        self._position = START
        self._stretches = Stretches(MOST_PLACES)
        self._segments = 0
        self._selected: dict[tuple[float, float, tuple[Stretch, ...]], Lanes] = {}

    def refresh(self, budget_s: float = 1.0) -> Progress:
        """Read what was logged since, for about so many seconds at most; return how much of the log is read.

        One segment is read however small the budget.  A log that a takeover has changed is read again from its start.

        Raises
        ------
        StoreError
            If the log cannot be read; a later refresh continues where this one ended.
        ProtocolError
            If a record of a known kind lacks a field, or has one that is not of its kind.  The models are empty from
            then on, and every refresh says so.
        """
        give_up_at = time.monotonic() + budget_s
        with self._lock:
            history = self._reader.history()
            if not history.holds(self._position):
                self._begin()
            if self._refusal is not None and history.holds(self._refusal.position):
                raise ProtocolError(self._refusal.text)
            self._history, self._refusal = history, None
            left = history.count_after(self._position)
            for records, position, segments in _in_bulk(self._reader.iter_from(self._position, history), give_up_at):
                self._take(records, position)
                self._segments += segments
                left -= segments
                if time.monotonic() >= give_up_at:
                    break
            return Progress(self._segments, self._segments + left)

    def _take(self, records: list[Record], position: Position) -> None:
        clock = self._models.clock
        try:
            self._models.take(records)
        except (ProtocolError, *_NOT_UNDERSTOOD) as error:
            # Some models have folded these records and some have not: rather show nothing than count twice.
            self._begin()
            self._refusal = _Refusal(position, _sentence(self.store, records, error))
            raise ProtocolError(self._refusal.text) from error
        self._stretches.add(Stretch(self._position, position, clock, self._models.lanes.take_span()))
        self._position = position

    @property
    def position(self) -> Position:
        """The newest segment that the models know."""
        with self._lock:
            return self._position

    def read(self, rows: Callable[[Models], T]) -> T:
        """Return what `rows` takes out of the models, which do not change meanwhile."""
        with self._lock:
            return rows(self._models)

    def lanes(self, start_s: float, end_s: float) -> Lanes:
        """Return what workers did in any stretch of the run, as far as it was refreshed, read from the log again.

        Raises
        ------
        StoreError
            If the log cannot be read.
        """
        with self._lock:
            # Segments never change: those of the last look are there even where a takeover has superseded them since.
            history, stretches = self._history, tuple(self._stretches.meeting(start_s, end_s))
            asked = (start_s, end_s, stretches)
            # A page asks at each refresh: what it looks at has changed only where the log has grown inside it.
            if asked in self._selected:
                return self._selected[asked]
        found: list[Gradients] = []
        count = 0
        for gradients in (one for stretch in stretches for one in self._gradients(stretch, history)):
            found.append(gradients.within(start_s, end_s))
            count += len(found[-1].at)
            if count > MOST_SELECTED:
                break
        lanes = lanes_of(joined(found), start_s, end_s)
        with self._lock:
            self._selected[asked] = lanes
            while len(self._selected) > MOST_SELECTIONS:
                del self._selected[next(iter(self._selected))]
        return lanes

    def _gradients(self, stretch: Stretch, history: History) -> Iterator[Gradients]:
        clock = stretch.clock
        for records, position in self._reader.iter_from(stretch.after, history):
            for batch in batches(records, clock):
                clock = batch.clock
                yield gradients_of(batch)
            if position >= stretch.until:
                return


def _sentence(store: str, records: list[Record], error: Exception) -> str:
    """Return why records of a store's log cannot be folded."""
    if isinstance(error, ProtocolError):
        return f"the log of {store} cannot be shown: {error}"
    what = f"{type(error).__name__} in a record of {_culprit(records)}"
    remedy = "look at it with the psplatform that wrote it"
    return f"the log of {store} says what this psplatform does not understand ({what}); {remedy}"


def _culprit(records: list[Record]) -> str:
    """Return the kind of the first record that cannot be folded by itself."""
    models = Models()
    for record in records:
        try:
            models.take([record])
        except (ProtocolError, *_NOT_UNDERSTOOD):
            kind = record.get("kind") if isinstance(record, dict) else None
            return f"kind {kind[:40]!r}" if isinstance(kind, str) else "no kind"
    return "some kind"


def _in_bulk(
    segments: Iterator[tuple[tuple[Record, ...], Position]], give_up_at: float
) -> Iterator[tuple[list[Record], Position, int]]:
    """Yield the records of several small segments at once: folding has a cost for each batch."""
    records: list[Record] = []
    position, count = START, 0
    try:
        for found, position in segments:
            records.extend(found)
            count += 1
            if len(records) >= _BULK or time.monotonic() >= give_up_at:
                yield records, position, count
                records, count = [], 0
    except StoreError:
        if count:
            yield records, position, count  # what came before the segment that cannot be read
        raise
    if count:
        yield records, position, count
