"""Curves of any length in bounded memory: evenly thinned, but with the extremes of what was left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MOST_BINS: Final = 512
"""Points of a curve: more than half a screen's columns."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A thinned curve: each point stands for as many consecutive values, the last one for those that are left.

    Attributes
    ----------
    at, version
        Time (seconds of the run) and version of the last value of each point: ``float64[points]``.
    low, mean, high
        Least, mean and largest of the finite values that a point stands for; NaN where there is none.  Of values so
        large that their sum is not finite, `mean` is the middle between the least and the largest.
    """

    at: Floats
    version: Floats
    low: Floats
    mean: Floats
    high: Floats

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self.at)


EMPTY: Final = Curve(*(np.empty(0) for _ in range(5)))


class Envelope:
    """Takes the values of a curve one after the other and keeps at most `limit` points.

    A point stands for `stride` consecutive values.  When there would be too many points, neighbours are merged and the
    stride doubles; what is kept depends on the values and their order only, not on how they were batched.
    """

    def __init__(self, limit: int = MOST_BINS) -> None:
        self._limit = limit
        self._count = 0
        self.stride = 1
        self._at = np.zeros(limit)
        self._version = np.zeros(limit)
        self._low = np.full(limit, np.nan)
        self._high = np.full(limit, np.nan)
        self._total = np.zeros(limit)
        self._finite = np.zeros(limit)

    def __len__(self) -> int:
        """Return how many values were added."""
        return self._count

    def extend(self, at: Sequence[float], version: Sequence[float], values: Sequence[float | None]) -> None:
        """Add the next values, with their times and versions; ``None`` and what is not finite leave a gap."""
        if not len(values):
            return
        while self._count + len(values) > self._limit * self.stride:
            self._halve()
        found = np.array(values, dtype=np.float64)  # of None it makes NaN
        found[~np.isfinite(found)] = np.nan
        bins = (self._count + np.arange(len(found))) // self.stride
        first = np.flatnonzero(np.diff(bins, prepend=-1))
        last = np.append(first[1:], len(found)) - 1
        into = bins[first]
        known = ~np.isnan(found)
        self._at[into] = np.asarray(at, dtype=np.float64)[last]
        self._version[into] = np.asarray(version, dtype=np.float64)[last]
        self._low[into] = np.fmin(self._low[into], np.fmin.reduceat(found, first))
        self._high[into] = np.fmax(self._high[into], np.fmax.reduceat(found, first))
        with np.errstate(over="ignore", invalid="ignore"):  # `curve` says what is shown then
            self._total[into] += np.add.reduceat(np.where(known, found, 0.0), first)
        self._finite[into] += np.add.reduceat(known.astype(np.float64), first)
        self._count += len(found)

    @property
    def curve(self) -> Curve:
        """The curve so far, a copy."""
        used = slice(0, -(-self._count // self.stride))
        finite = self._finite[used]
        mean = np.divide(self._total[used], finite, out=np.full(len(finite), np.nan), where=finite > 0)
        copies = (one[used].copy() for one in (self._at, self._version, self._low, self._high))
        at, version, low, high = copies
        # Rounding may take the mean of equal values beyond them.
        mean = np.where(np.isfinite(mean), np.clip(mean, low, high), low / 2 + high / 2)
        return Curve(at, version, low, mean, high)

    def _halve(self) -> None:
        used = -(-self._count // self.stride)
        kept = -(-used // 2)
        odd = slice(1, used, 2)
        for array, merge in (
            (self._low, np.fmin),
            (self._high, np.fmax),
            (self._total, np.add),
            (self._finite, np.add),
        ):
            merged = array[0:used:2].copy()
            with np.errstate(over="ignore", invalid="ignore"):
                merged[: used // 2] = merge(merged[: used // 2], array[odd])
            array[:kept] = merged
            array[kept:] = np.nan if merge in (np.fmin, np.fmax) else 0.0
        for array in (self._at, self._version):
            merged = array[0:used:2].copy()
            merged[: used // 2] = array[odd]
            array[:kept] = merged
        self.stride *= 2
