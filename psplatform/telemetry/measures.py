"""What a run's picture is made of: each takes values one by one, in constant time, and stays bounded for ever."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain
from operator import add
from typing import Any, Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")

SERIES_POINTS: Final = 1024  # more than a screen has columns
EXACT_DELAYS: Final = 1024  # staleness above this many versions is counted in bins that double
DROP_REASONS: Final = 64  # reasons come from policies; one that puts figures into them must not fill the memory
OTHER: Final = "other"


_MOST_NAMED: Final = 256
"""Samples of bad batches that a picture names; the log has those of every one."""


@dataclass(slots=True)
class BadBatches:
    """Batches of which no gradient was finite.

    Attributes
    ----------
    given_up
        How many.
    samples
        Index in the data set of each sample that was found to blame, the first ones, and what is not finite of it.
    """

    given_up: int = 0
    samples: dict[int, str] = field(default_factory=dict)

    def add(self, record: dict[str, Any]) -> str:
        """Add one; return what happened in words."""
        self.given_up += 1
        for sample in record["samples"]:
            if len(self.samples) < _MOST_NAMED:
                self.samples.setdefault(sample, record["tensor"])
        tries = "1 try" if record["tries"] == 1 else f"{record['tries']} tries"
        return f"a batch of {record['size']} samples is left out after {tries}: {record['text']}"

    def to_plain(self) -> dict[str, Any]:
        """Return plain values."""
        return {"given_up": self.given_up, "samples": {str(one): what for one, what in sorted(self.samples.items())}}


class Point(NamedTuple):
    """A value of a series: when (seconds since the run's start), at which version, and what."""

    at: float
    version: int
    value: float


@dataclass(slots=True)
class Series(Generic[T]):
    """An evenly thinned sequence: the first item, every n-th after it, and the newest.

    When `limit` items are kept, every second one is dropped and the distance between those to come doubles.  What is
    kept depends on nothing but the items and their order.

    Attributes
    ----------
    limit
        Even, so that after halving the next item falls on the new stride.
    """

    limit: int = SERIES_POINTS
    _stride: int = 1
    _seen: int = 0
    _kept: list[T] = field(default_factory=list)
    _newest: tuple[T, ...] = ()

    def append(self, item: T) -> None:
        """Add the next item."""
        if self._seen % self._stride:
            self._newest = (item,)
        else:
            if len(self._kept) == self.limit:
                del self._kept[1::2]
                self._stride *= 2
            self._kept.append(item)
            self._newest = ()
        self._seen += 1

    def extend(self, count: int, item: Callable[[int], T]) -> None:
        """Add the next `count` items; only those that are kept are asked for, as ``item(place)`` with places from 0."""
        place = 0
        while place < count:
            skipped = min(-self._seen % self._stride, count - 1 - place)
            self._seen += skipped
            place += skipped
            self.append(item(place))
            place += 1

    @property
    def items(self) -> tuple[T, ...]:
        """The items kept, in order; the newest is always among them."""
        return (*self._kept, *self._newest)

    def __len__(self) -> int:
        """Return how many items were added."""
        return self._seen


@dataclass(slots=True)
class Tally:
    """Count, sum and largest of some values."""

    count: int = 0
    total: float = 0.0
    max: float = 0.0

    def add(self, value: float, count: int = 1) -> None:
        """Take a value, not negative, `count` times."""
        self.count += count
        self.total += value * count
        self.max = max(self.max, value)

    def extend(self, values: Sequence[float]) -> None:
        """Take more values, as one after the other."""
        self.count += len(values)
        self.total = reduce(add, values, self.total)
        self.max = max(chain((self.max,), values))

    @property
    def mean(self) -> float:
        """Mean of the values, 0 before the first."""
        return self.total / self.count if self.count else 0.0

    def to_plain(self) -> dict[str, Any]:
        """Return mean and largest value."""
        return {"mean": self.mean, "max": self.max}


@dataclass(slots=True)
class Delays:
    """Staleness of the gradients applied, in versions.

    Attributes
    ----------
    histogram
        Gradients by staleness; from `EXACT_DELAYS` on by the power of two below it.
    """

    tally: Tally = field(default_factory=Tally)
    histogram: Counter[int] = field(default_factory=Counter)

    def add(self, delays: Iterable[int]) -> None:
        """Take the staleness of gradients of one commit or of many."""
        for delay, count in Counter(delays).items():
            self.add_one(delay, count)

    def add_one(self, delay: int, count: int = 1) -> None:
        """Take one staleness, that of so many gradients."""
        self.tally.add(delay, count)
        self.histogram[delay if delay < EXACT_DELAYS else 1 << delay.bit_length() - 1] += count

    @property
    def mean(self) -> float:
        """Mean staleness."""
        return self.tally.mean

    @property
    def max(self) -> int:
        """Largest staleness."""
        return int(self.tally.max)

    def percentile(self, part: float) -> int:
        """Return the smallest staleness that this part of the gradients, from 0 to 1, does not exceed; 0 for none.

        From `EXACT_DELAYS` on it is that of the bin.
        """
        left = part * self.tally.count
        for delay, count in sorted(self.histogram.items()):
            left -= count
            if left <= 0:
                return delay
        return self.max

    def to_plain(self) -> dict[str, Any]:
        """Return mean, largest value, and the histogram in order of staleness."""
        return {"mean": self.mean, "max": self.max, "histogram": dict(sorted(self.histogram.items()))}


@dataclass(slots=True)
class Drops:
    """Gradients that were not applied, counted by the reason's kind and by slot."""

    total: int = 0
    by_reason: Counter[str] = field(default_factory=Counter)
    by_slot: Counter[int] = field(default_factory=Counter)

    def add(self, reason: str, slot: int, count: int = 1) -> None:
        """Count gradients of `slot`."""
        self.total += count
        known = reason in self.by_reason or len(self.by_reason) < DROP_REASONS
        self.by_reason[reason if known else OTHER] += count
        self.by_slot[slot] += count

    def to_plain(self) -> dict[str, Any]:
        """Return the counts, the most frequent reason first."""
        by_reason = sorted(self.by_reason.items(), key=lambda item: (-item[1], item[0]))
        return {"total": self.total, "by_reason": dict(by_reason), "by_slot": dict(sorted(self.by_slot.items()))}


@dataclass(slots=True)
class TimeSpent:
    """Where workers' seconds went."""

    compute_s: float = 0.0
    pull_s: float = 0.0
    push_s: float = 0.0
    wait_s: float = 0.0

    def add(self, compute_s: float, pull_s: float, push_s: float, wait_s: float) -> None:
        """Take one iteration."""
        self.compute_s += compute_s
        self.pull_s += pull_s
        self.push_s += push_s
        self.wait_s += wait_s

    def extend(self, *columns: Sequence[float]) -> None:
        """Take more iterations, as one after the other: a column for each field."""
        for name, column in zip(self.__dataclass_fields__, columns, strict=True):
            setattr(self, name, reduce(add, column, getattr(self, name)))

    @property
    def waiting_fraction(self) -> float:
        """Share of the time spent waiting for a release, 0 before the first iteration."""
        total = self.compute_s + self.pull_s + self.push_s + self.wait_s
        return self.wait_s / total if total > 0 else 0.0
