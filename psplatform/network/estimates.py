"""What interfaces can carry, from the transfers that have ended and from what monitors report.

A run is not told how fast its network is.  A transfer that has ended tells what both its directions can carry at least,
and that one of the two can carry no more; which one, follows from what each of them has carried besides.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from psplatform.network.rates import Rates
from psplatform.network.state import Interface, NetworkState

_SMALLEST_BYTES: Final = 65536
"""Of less the time is that of a message, and says nothing about a rate."""

_TOLERANCE: Final = 0.1
"""Rates closer than this part of them are the same."""

_KEPT: Final = 64
"""Transfers of a direction that are kept, to know what went beside one of them."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A transfer between two hosts that has ended; times in seconds on one clock."""

    sender: str
    receiver: str
    size_bytes: float
    begin: float
    end: float


@dataclass
class _Direction:
    """What is known of a direction: a rate and when it was seen; what it carried; the newest that showed a rate."""

    rate: float = math.inf
    at: float = -math.inf
    carried: deque[Sighting] = field(default_factory=lambda: deque(maxlen=_KEPT))

    def during(self, begin: float, end: float) -> float:
        """Return the bytes per second of all known transfers in a span: it can carry that at least."""
        total = 0.0
        for one in self.carried:
            overlap = min(end, one.end) - max(begin, one.begin)
            if overlap > 0:
                total += one.size_bytes * overlap / (one.end - one.begin)
        return total / (end - begin)


class Estimates:
    """Rates of every direction, as far as they have been seen.

    A direction of which nothing is known has the highest rate that any has shown, or `fastest` where none has.  What
    was seen long ago comes closer to that as well, by the factor 1/e in `forget_s`, so that a slow one is tried again.

    Parameters
    ----------
    fastest
        Bytes per second of an interface before anything is known.
    forget_s
        Seconds in which what was seen loses its weight.
    """

    def __init__(self, fastest: float, forget_s: float) -> None:
        self._fastest, self._forget_s = fastest, forget_s
        self._highest = 0.0
        self._ways: dict[tuple[str, bool], _Direction] = {}

    def observe(self, seen: Sighting) -> None:
        """Learn from a transfer that has ended."""
        if seen.sender == seen.receiver or seen.size_bytes < _SMALLEST_BYTES or seen.end <= seen.begin:
            return
        ways = [self._way(seen.sender, outward=True), self._way(seen.receiver, outward=False)]
        shown = []
        for way in ways:
            way.carried.append(seen)
            shown.append(way.during(seen.begin, seen.end))
        self._highest = max(self._highest, *shown)
        known = [self._rate(way, seen.end) for way in ways]
        slower = [now > rate * (1 + _TOLERANCE) for now, rate in zip(known, shown, strict=True)]
        if all(slower):
            to_blame = self._suspects(ways, shown, seen)
        else:
            # What is known of one of them explains it: of the other one nothing new is learned.
            fresh = all(math.isinf(way.at) for way in ways)
            to_blame = [fresh or (not one and not math.isinf(way.at)) for way, one in zip(ways, slower, strict=True)]
        for way, rate, blamed in zip(ways, shown, to_blame, strict=True):
            if blamed:
                way.rate, way.at = rate, seen.end

    def _suspects(self, ways: list[_Direction], shown: list[float], seen: Sighting) -> list[bool]:
        """Return which of two directions are slower than was thought: both, where nothing clears one of them.

        One is cleared that has carried more since the transfer began, or that was seen to be fast where nothing at all
        is known of the other.
        """
        cleared = [self._since(way, seen) > rate * (1 + _TOLERANCE) for way, rate in zip(ways, shown, strict=True)]
        if not any(cleared):
            unknown = [math.isinf(way.at) for way in ways]
            cleared = [not one for one in unknown] if any(unknown) else cleared
        return [True, True] if all(cleared) else [not one for one in cleared]

    def report(self, host: str, out: float, into: float, at: float) -> None:
        """Learn the rates of both directions of a host, bytes per second, from its monitor."""
        for outward, rate in ((True, out), (False, into)):
            way = self._way(host, outward=outward)
            if at >= way.at:
                way.rate, way.at = rate, at
            self._highest = max(self._highest, rate)

    def state(self, hosts: Iterable[str], now: float) -> NetworkState:
        """Return what the interfaces of these hosts can carry, with nothing reserved."""
        return NetworkState(
            {
                host: Interface(
                    *(Rates.steady(self._rate(self._way(host, outward=way), now), now) for way in (True, False))
                )
                for host in hosts
            }
        )

    def _way(self, host: str, *, outward: bool) -> _Direction:
        return self._ways.setdefault((host, outward), _Direction())

    def _rate(self, way: _Direction, now: float) -> float:
        highest = self._highest or self._fastest
        if math.isinf(way.at):
            return highest
        weight = math.exp(-max(now - way.at, 0.0) / self._forget_s)
        return highest + (way.rate - highest) * weight

    def _since(self, way: _Direction, seen: Sighting) -> float:
        """Return the most that a direction has carried in a transfer that ended since another began."""
        others = [one for one in way.carried if one is not seen and one.end > seen.begin]
        return max((way.during(one.begin, one.end) for one in others), default=0.0)
