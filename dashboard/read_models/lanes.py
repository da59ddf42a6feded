"""What each worker did when: waiting for a release, pulling, computing, pushing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from psplatform.dashboard.read_models.batches import Batch

STATES: Final = ("wait", "pull", "compute", "push")
"""What a worker does, in the order in which it does it for a gradient."""

KEPT_S: Final = 60.0
"""Seconds of which the newest lanes are kept at hand."""

MOST_KEPT: Final = 40_000
"""Gradients at hand: the fastest runs fill less than a minute of lanes."""

MOST_BARS: Final = 600
"""Gradients up to which lanes are drawn one by one; of more, what each worker did most in each part of the stretch."""

PARTS: Final = 480

_NEGLIGIBLE: Final = 1e-6
"""Share of a part below which a state is not in it: sums over many gradients leave as much where nothing was."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Span:
    """When some gradients were under way: from the first one's beginning until the last one was announced."""

    start_s: float
    end_s: float

    def and_also(self, other: Span) -> Span:
        """Return when these or the others were."""
        return Span(min(self.start_s, other.start_s), max(self.end_s, other.end_s))

    def meets(self, start_s: float, end_s: float) -> bool:
        """Whether one of them may have been under way between two times."""
        return self.start_s <= end_s and self.end_s >= start_s


NOTHING: Final = Span(np.inf, -np.inf)
"""The span of no gradient."""


@dataclass(frozen=True, slots=True)
class Gradients:
    """Gradients with the time that each was announced and the seconds before that each state took.

    Attributes
    ----------
    slot
        ``int64[n]``.
    at
        When it was announced, in seconds of the run: ``float64[n]``.
    seconds
        ``float64[n, 4]`` in the order of `STATES`.
    """

    slot: NDArray[np.int64]
    at: Floats
    seconds: Floats

    def within(self, start_s: float, end_s: float) -> Gradients:
        """Return those that were under way between two times."""
        kept = (self.at >= start_s) & (self._began <= end_s)
        return Gradients(self.slot[kept], self.at[kept], self.seconds[kept])

    def after(self, many: int) -> Gradients:
        """Return all but the first ones, as copies that do not keep those in memory."""
        return Gradients(self.slot[many:].copy(), self.at[many:].copy(), self.seconds[many:].copy())

    @property
    def span(self) -> Span:
        """When they were under way."""
        return Span(float(self._began.min()), float(self.at.max())) if len(self.at) else NOTHING

    @property
    def _began(self) -> Floats:
        began: Floats = self.at - self.seconds.sum(axis=1)
        return began


@dataclass(frozen=True, slots=True)
class Lanes:
    """What workers did in a stretch of time: bars where there are few gradients, parts where there are many.

    Attributes
    ----------
    start_s, end_s
        The stretch, in seconds of the run.
    slots
        The workers, in order.
    bars
        For each state, slot, beginning and length of each bar; ``None`` where there are too many.
    parts
        For each slot, the state (its place in `STATES`) that took most of each of `PARTS` equal parts of the stretch;
        NaN where nothing is known.  ``None`` where there are bars.
    """

    start_s: float
    end_s: float
    slots: tuple[int, ...]
    bars: dict[str, tuple[NDArray[np.int64], Floats, Floats]] | None
    parts: Floats | None


def gradients_of(batch: Batch) -> Gradients:
    """Return the gradients of a batch."""
    columns = [batch.column("gradient", f"{state}_s") for state in STATES]
    return Gradients(
        np.array(batch.column("gradient", "slot"), dtype=np.int64),
        np.array(batch.times("gradient"), dtype=np.float64),
        np.array(columns, dtype=np.float64).T.reshape(-1, len(STATES)),
    )


def joined(parts: Iterable[Gradients]) -> Gradients:
    """Return gradients one after the other."""
    found = [part for part in parts if len(part.at)]
    if not found:
        return Gradients(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros((0, len(STATES))))
    return Gradients(
        np.concatenate([part.slot for part in found]),
        np.concatenate([part.at for part in found]),
        np.concatenate([part.seconds for part in found]),
    )


def lanes_of(gradients: Gradients, start_s: float, end_s: float) -> Lanes:
    """Return what workers did between two times."""
    found = gradients.within(start_s, end_s)
    slots = tuple(int(slot) for slot in np.unique(found.slot))
    if len(found.at) <= MOST_BARS:
        return Lanes(start_s, end_s, slots, _bars(found, start_s, end_s), None)
    return Lanes(start_s, end_s, slots, None, _parts(found, slots, start_s, end_s))


class RecentLanes:
    """Keeps the gradients of the newest `KEPT_S` seconds."""

    def __init__(self) -> None:
        self._kept: deque[Gradients] = deque()
        self._count = 0
        self._newest_s = 0.0
        self._full_from_s = 0.0
        self._span = NOTHING

    def take(self, batch: Batch) -> None:
        """Fold the next records."""
        self._newest_s = batch.clock.newest_s
        found = gradients_of(batch)
        if len(found.at):
            self._kept.append(found)
            self._count += len(found.at)
            self._span = self._span.and_also(found.span)
        while self._kept and self._kept[0].at.max() < self._newest_s - KEPT_S:
            self._count -= len(self._kept.popleft().at)
        if self._count > MOST_KEPT:
            self._forget(self._count - MOST_KEPT)

    def _forget(self, many: int) -> None:
        while many:
            oldest = self._kept.popleft()
            if many < len(oldest.at):
                self._kept.appendleft(oldest.after(many))
            forgotten = min(many, len(oldest.at))
            self._count -= forgotten
            many -= forgotten
        self._full_from_s = float(self._kept[0].at[0])

    def take_span(self) -> Span:
        """Return when the gradients that were taken since the last call were under way."""
        span, self._span = self._span, NOTHING
        return span

    @property
    def rows(self) -> Lanes:
        """The lanes of the newest minute, or of as much of it as is at hand."""
        start = max(self._full_from_s, self._newest_s - KEPT_S)
        return lanes_of(joined(self._kept), start, self._newest_s)


def _edges(gradients: Gradients) -> Floats:
    """Return where each state begins and ends: ``float64[n, 5]``."""
    before = np.cumsum(gradients.seconds[:, ::-1], axis=1)[:, ::-1]
    edges: Floats = np.column_stack([gradients.at[:, None] - before, gradients.at])
    return edges


def _bars(gradients: Gradients, start_s: float, end_s: float) -> dict[str, tuple[NDArray[np.int64], Floats, Floats]]:
    edges = np.clip(_edges(gradients), start_s, end_s)
    bars = {}
    for place, state in enumerate(STATES):
        length = edges[:, place + 1] - edges[:, place]
        seen = length > 0
        bars[state] = gradients.slot[seen], edges[seen, place], length[seen]
    return bars


def _parts(gradients: Gradients, slots: tuple[int, ...], start_s: float, end_s: float) -> Floats:
    width = max(end_s - start_s, 1e-9) / PARTS
    rows = np.searchsorted(np.array(slots), gradients.slot)
    edges = (np.clip(_edges(gradients), start_s, end_s) - start_s) / width
    taken = np.zeros((len(slots), PARTS, len(STATES)))
    for place in range(len(STATES)):
        _add_spans(taken[:, :, place], rows, edges[:, place], edges[:, place + 1])
    most: Floats = taken.argmax(axis=2).astype(np.float64)
    most[taken.max(axis=2) < _NEGLIGIBLE] = np.nan
    return most


def _add_spans(taken: Floats, rows: NDArray[np.int64], begin: Floats, end: Floats) -> None:
    """Add to each row the part of every column that spans from `begin` to `end`, in columns, cover."""
    # The sum over columns of a step at `begin` less a step at `end`, each of which ramps over the column it falls into.
    columns = taken.shape[1]
    slopes = np.zeros((taken.shape[0], columns + 2))
    for edge, sign in ((begin, 1.0), (end, -1.0)):
        column = np.minimum(edge.astype(np.int64), columns)
        into = edge - column
        np.add.at(slopes, (rows, column), sign * (1.0 - into))
        np.add.at(slopes, (rows, column + 1), sign * into)
    taken += np.cumsum(slopes, axis=1)[:, :columns]
