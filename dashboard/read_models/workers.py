"""Where each worker's time went: how long its gradients take, and whether it holds the others up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from psplatform.dashboard.read_models.batches import Batch

BINS_PER_DECADE: Final = 16
_DECADES: Final = 8
SHORTEST_S: Final = 1e-5
BINS: Final = BINS_PER_DECADE * _DECADES
"""Bins of a worker's histogram of compute times, from `SHORTEST_S` on; each is 15 % wider than the one before."""

RECENT: Final = 32
"""Newest gradients of a worker that its straggler score looks at."""

SLOW: Final = 1.5
"""Straggler score from which on a worker is called slow."""

_QUANTILES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True, slots=True)
class ComputeTimes:
    """How long a worker's gradients took to compute, in seconds.

    Attributes
    ----------
    quantiles
        The 5th, 25th, 50th, 75th and 95th percentile, within 8 %; least and largest are exact.
    score
        Median of its newest gradients over the median of those medians of all workers: 1 is usual, 2 is twice as slow.
        ``None`` before its first gradient.
    """

    slot: int
    gradients: int
    least: float
    quantiles: tuple[float, float, float, float, float]
    largest: float
    score: float | None


class WorkerTimes:
    """Folds ``gradient`` records."""

    def __init__(self) -> None:
        self._histogram: NDArray[np.int64] = np.zeros((0, BINS), dtype=np.int64)
        self._recent: NDArray[np.float64] = np.zeros((0, RECENT))
        self._seen: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._least: NDArray[np.float64] = np.zeros(0)
        self._largest: NDArray[np.float64] = np.zeros(0)

    def take(self, batch: Batch) -> None:
        """Fold the next records."""
        slots = np.array(batch.column("gradient", "slot"), dtype=np.int64)
        if not len(slots):
            return
        seconds = np.array(batch.column("gradient", "compute_s"), dtype=np.float64)
        self._make_room(int(slots.max()) + 1)
        bins = np.clip(np.floor(np.log10(np.maximum(seconds, SHORTEST_S) / SHORTEST_S) * BINS_PER_DECADE), 0, BINS - 1)
        np.add.at(self._histogram, (slots, bins.astype(np.int64)), 1)
        np.minimum.at(self._least, slots, seconds)
        np.maximum.at(self._largest, slots, seconds)
        for slot, one in zip(slots.tolist(), seconds.tolist(), strict=True):
            self._recent[slot, self._seen[slot] % RECENT] = one
            self._seen[slot] += 1

    def _make_room(self, slots: int) -> None:
        more = slots - len(self._seen)
        if more > 0:
            more += len(self._seen)  # at least doubled: slots come one by one
            self._histogram = np.vstack([self._histogram, np.zeros((more, BINS), dtype=np.int64)])
            self._recent = np.vstack([self._recent, np.full((more, RECENT), np.nan)])
            self._seen = np.append(self._seen, np.zeros(more, dtype=np.int64))
            self._least = np.append(self._least, np.full(more, np.inf))
            self._largest = np.append(self._largest, np.zeros(more))

    def scores(self) -> dict[int, float]:
        """Return the straggler score of every worker that has computed a gradient."""
        slots = np.flatnonzero(self._seen)
        if not len(slots):
            return {}
        medians = np.nanmedian(self._recent[slots], axis=1)
        usual = float(np.median(medians))
        return {int(slot): float(one) / usual if usual > 0 else 1.0 for slot, one in zip(slots, medians, strict=True)}

    @property
    def rows(self) -> tuple[ComputeTimes, ...]:
        """What is known so far, by slot."""
        scores = self.scores()
        return tuple(self._row(slot, scores[slot]) for slot in sorted(scores))

    def _row(self, slot: int, score: float) -> ComputeTimes:
        least, largest = float(self._least[slot]), float(self._largest[slot])
        known: Any = tuple(
            min(max(one, least), largest) for one in (_quantile(self._histogram[slot], share) for share in _QUANTILES)
        )
        return ComputeTimes(slot, int(self._seen[slot]), least, known, largest, score)


def _quantile(histogram: NDArray[np.int64], share: float) -> float:
    """Return the geometric middle of the bin in which so large a share of the counts is reached."""
    reached = np.cumsum(histogram)
    place = int(np.searchsorted(reached, share * reached[-1]))
    return float(SHORTEST_S * 10 ** ((place + 0.5) / BINS_PER_DECADE))
