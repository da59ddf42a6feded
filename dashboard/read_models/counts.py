"""How many events of each kind happened in each stretch of a run's time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

MOST_STRETCHES: Final = 240
FIRST_WIDTH_S: Final = 0.5
MOST_KEYS: Final = 64
OTHER: Final = "other"
"""What takes the place of further keys: they may come from policies, one that puts figures into them included."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Events per stretch of time.

    Attributes
    ----------
    width_s
        Length of a stretch; the first begins with the run.
    until_s
        Time up to which events were counted.
    by_key
        For each key, ``int64[stretches]``.
    """

    width_s: float
    until_s: float
    by_key: Mapping[str, NDArray[np.int64]]

    @property
    def middles_s(self) -> NDArray[np.float64]:
        """The middle of each stretch, in seconds of the run."""
        stretches = max((len(one) for one in self.by_key.values()), default=0)
        middles: NDArray[np.float64] = (np.arange(stretches, dtype=np.float64) + 0.5) * self.width_s
        return middles

    def rates(self, key: str) -> NDArray[np.float64]:
        """Return events per second of a key; of the last stretch, over the part of it that is over."""
        counts = self.by_key[key]
        widths = np.full(len(counts), self.width_s)
        if len(counts):
            widths[-1] = max(self.until_s - (len(counts) - 1) * self.width_s, self.width_s / 10)
        rates: NDArray[np.float64] = counts / widths
        return rates


class CountsOverTime:
    """Takes the times of events and keeps at most `limit` stretches, whose width doubles when there would be more."""

    def __init__(self, limit: int = MOST_STRETCHES) -> None:
        self._limit = limit
        self._width_s = FIRST_WIDTH_S
        self._until_s = 0.0
        self._by_key: dict[str, NDArray[np.int64]] = {}

    def reach(self, at: float) -> None:
        """Move the run's time on."""
        self._until_s = max(self._until_s, at)
        while self._until_s >= self._limit * self._width_s:
            self._by_key = {key: _paired(counts) for key, counts in self._by_key.items()}
            self._width_s *= 2

    def add(self, key: str, at: Sequence[float]) -> None:
        """Count events of a key at these times, in seconds of the run."""
        if not len(at):
            return
        self.reach(max(at))
        if key not in self._by_key and len(self._by_key.keys() - {OTHER}) >= MOST_KEYS - 1:
            key = OTHER
        stretches = (np.asarray(at) / self._width_s).astype(np.int64)
        counts = self._by_key.setdefault(key, np.zeros(self._limit, dtype=np.int64))
        counts += np.bincount(stretches, minlength=self._limit)

    @property
    def rows(self) -> Counts:
        """The counts so far, a copy; as many stretches as time has come."""
        stretches = int(self._until_s / self._width_s) + 1
        kept = {key: counts[:stretches].copy() for key, counts in self._by_key.items()}
        return Counts(self._width_s, self._until_s, kept)


def _paired(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    padded = np.append(counts, 0) if len(counts) % 2 else counts
    paired = np.zeros_like(counts)
    paired[: len(padded) // 2] = padded[0::2] + padded[1::2]
    return paired
