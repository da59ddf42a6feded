"""The bytes per second that one direction of an interface has left, and how long a transfer takes on what is left.

A transfer from one host to another passes the sender's outgoing and the receiver's incoming direction, around a core
that never congests.  It takes the smaller of what both have left at each moment, all of it (MLfabric, section 5.1): so
transfers that meet at one bottleneck follow each other in the order in which they were reserved, and what the
bottleneck leaves of the other direction stays free for other peers.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

BYTES_PER_GIGABIT: Final = 1e9 / 8

NOTHING: Final = 1e-9
"""A smaller part, of a rate or of a transfer, is what rounding leaves of nothing."""


@dataclass(frozen=True, slots=True)
class Rates:
    """A staircase over time; what is reserved is gone from it.

    Attributes
    ----------
    times
        When each step begins, seconds, ascending.  Before the first step its rate holds as well.
    rates
        Bytes per second of each step, at least 0; the last one holds for ever.
    """

    times: tuple[float, ...]
    rates: tuple[float, ...]

    @staticmethod
    def steady(rate: float, since: float = 0.0) -> Rates:
        """Return a rate that never changes."""
        return Rates((since,), (rate,))

    def at(self, moment: float) -> float:
        """Return the rate at a moment."""
        return self.rates[max(bisect_right(self.times, moment) - 1, 0)]

    def since(self, moment: float) -> Rates:
        """Return the same rates from a moment on, with what was before forgotten."""
        first = bisect_right(self.times, moment) - 1
        return self if first <= 0 else Rates(self.times[first:], self.rates[first:])

    def less(self, taken: Sequence[Piece]) -> Rates:
        """Return what is left without the pieces, one at least, of a transfer that was made on these very rates."""
        times, rates, last = self.times, self.rates, len(self.times) - 1
        begin, end = taken[0].begin, taken[-1].end
        if begin == end:
            return self
        index = max(bisect_right(times, begin) - 1, 0)
        kept = index + 1 if times[index] < begin else index
        before = rates[kept - 1] if kept else None
        new_times, new_rates = [], []
        for piece in taken:
            while index < last and times[index + 1] <= piece.begin:
                index += 1
            left = rates[index] - piece.rate
            left = left if left > NOTHING * rates[index] else 0.0
            if left != before:
                new_times.append(piece.begin)
                new_rates.append(left)
                before = left
        following = index + 1
        if index < last and end >= times[following]:
            following += rates[following] == before
        elif rates[index] != before:
            new_times.append(end)
            new_rates.append(rates[index])
        return Rates(
            times[:kept] + tuple(new_times) + times[following:], rates[:kept] + tuple(new_rates) + rates[following:]
        )


class Piece(NamedTuple):
    """A part of a transfer during which its rate, bytes per second, does not change."""

    begin: float
    end: float
    rate: float


def pieces(out: Rates, into: Rates, size_bytes: float, begin: float) -> list[Piece] | None:
    """Return the pieces of a transfer of more than 0 bytes that may begin at `begin`, or ``None`` if it never ends.

    The first piece has a rate above 0; each begins where the one before it ends, and passes no step of either
    direction.  ``t_en`` of MLfabric's Algorithm 1 is the end of the last one.
    """
    found: list[Piece] = []
    out_times, out_rates, into_times, into_rates = out.times, out.rates, into.times, into.rates
    i, j = max(bisect_right(out_times, begin) - 1, 0), max(bisect_right(into_times, begin) - 1, 0)
    moment, left = begin, size_bytes
    while left > 0:
        rate = min(out_rates[i], into_rates[j])
        out_until = out_times[i + 1] if i + 1 < len(out_times) else math.inf
        into_until = into_times[j + 1] if j + 1 < len(into_times) else math.inf
        until = min(out_until, into_until)
        if rate > 0:
            done = min(moment + left / rate, until)
            left -= rate * (until - moment)
            until, left = (done, 0.0) if left <= NOTHING * size_bytes else (until, left)
        elif until == math.inf:
            return None
        if (rate > 0 or found) and (until > moment or (left <= 0 and not found)):
            found.append(Piece(moment, until, rate))
        moment = until
        i += out_until == until
        j += into_until == until
    return found


def seconds_for(size_bytes: float, rate: float) -> float:
    """Return how long so many bytes take at a rate in bytes per second: for ever at none."""
    return size_bytes / rate if rate > 0 else math.inf
