"""What interfaces can carry, from the transfers that have ended and from what monitors report.

A run is not told how fast its network is.  A transfer that has ended tells what both its directions can carry at least,
and that one of the two can carry no more.  Which one follows from what each of them has carried besides: a transfer is
judged when those that went beside it have been seen as well.
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
_SHORTEST_S: Final = 0.001
"""A smaller or shorter transfer takes as long as a message does, or as clocks differ: it says nothing about a rate."""

_TOLERANCE: Final = 0.1
"""Rates closer than this part of them are the same."""

_KEPT: Final = 64
"""Transfers of a direction that are kept, to know what went beside one of them."""


UNLIMITED: Final = 1e15
"""Bytes per second that no interface has: as long as nothing has been seen, none delays anything."""

FORGET_S: Final = 10.0
"""Seconds after which a rate that was seen says little, where nobody knows how often rates change."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A transfer between two hosts that has ended; times in seconds on one clock."""

    sender: str
    receiver: str
    size_bytes: float
    begin: float
    end: float

    @property
    def rate(self) -> float:
        """Bytes per second."""
        return self.size_bytes / (self.end - self.begin)


@dataclass(eq=False)
class _Direction:
    """What is known of a direction: a rate, and when it was seen.

    `excused` are the peers that were held to be slow in its stead, with the rates of these transfers.
    """

    rate: float = math.inf
    at: float = -math.inf
    carried: deque[Sighting] = field(default_factory=lambda: deque(maxlen=_KEPT))
    excused: list[tuple[_Direction, float]] = field(default_factory=list)

    @property
    def unknown(self) -> bool:
        return math.isinf(self.at)

    def learn(self, rate: float, at: float) -> None:
        """Believe a rate, unless a newer one is known."""
        if at >= self.at:
            self.rate, self.at = rate, at
            self.excused.clear()

    def forget(self) -> None:
        self.rate, self.at = math.inf, -math.inf

    def during(self, begin: float, end: float) -> float:
        """Return the bytes per second of all known transfers in a span: it can carry that at least."""
        overlaps = [(one, min(end, one.end) - max(begin, one.begin)) for one in self.carried]
        return sum(one.rate * overlap for one, overlap in overlaps if overlap > 0) / (end - begin)

    def most_since(self, moment: float, but: Sighting) -> float:
        """Return the most that it has carried from a moment on, while any other of its known transfers went."""
        others = [one for one in self.carried if one is not but and one.end > moment]
        return max((self.during(max(one.begin, moment), one.end) for one in others), default=0.0)


class Estimates:
    """Rates of every direction, as far as they have been seen.

    A direction of which nothing is known has the highest rate that any has shown, or `fastest` where none has.  What
    was seen long ago comes closer to that as well, by the factor 1/e in `forget_s`, so that a slow one is tried again.
    Where one direction is slow and nothing tells it from its peers, these are held to be slow at first, until a second
    one is as slow with it.

    Parameters
    ----------
    fastest
        Bytes per second of an interface before anything is known.
    forget_s
        Seconds in which what was seen loses its weight.
    """

    def __init__(self, fastest: float = UNLIMITED, forget_s: float = FORGET_S) -> None:
        self._fastest, self._forget_s = fastest, forget_s
        self._highest = 0.0
        self._ways: dict[tuple[str, bool], _Direction] = {}
        self._unjudged: list[Sighting] = []

    def observe(self, seen: Sighting) -> None:
        """Learn from a transfer that has ended, as soon as as much time again has passed."""
        too_short = seen.size_bytes < _SMALLEST_BYTES or seen.end - seen.begin < _SHORTEST_S
        if seen.sender == seen.receiver or too_short:
            return
        for way in self._both(seen):
            way.carried.append(seen)
        self._unjudged.append(seen)
        self._judge_until(seen.end)

    def report(self, host: str, out: float, into: float, at: float) -> None:
        """Learn the rates of both directions of a host, bytes per second, from its monitor."""
        self._judge_until(at)
        for outward, rate in ((True, out), (False, into)):
            self._way(host, outward=outward).learn(rate, at)
            self._highest = max(self._highest, rate)

    def state(self, hosts: Iterable[str], now: float) -> NetworkState:
        """Return what the interfaces of these hosts can carry, with nothing reserved."""
        self._judge_until(now)
        return NetworkState(
            {
                host: Interface(
                    *(Rates.steady(self._rate(self._ways.get((host, way)), now), now) for way in (True, False))
                )
                for host in hosts
            }
        )

    def _way(self, host: str, *, outward: bool) -> _Direction:
        return self._ways.setdefault((host, outward), _Direction())

    def _both(self, seen: Sighting) -> tuple[_Direction, _Direction]:
        return self._way(seen.sender, outward=True), self._way(seen.receiver, outward=False)

    def _rate(self, way: _Direction | None, now: float) -> float:
        highest = self._highest or self._fastest
        if way is None or way.unknown:
            return highest
        weight = math.exp(-max(now - way.at, 0.0) / self._forget_s)
        return highest + (way.rate - highest) * weight

    def _judge_until(self, now: float) -> None:
        ready = [one for one in self._unjudged if 2 * one.end - one.begin <= now]
        for one in sorted(ready, key=lambda one: one.end):
            self._unjudged.remove(one)
            self._judge(one)

    def _judge(self, seen: Sighting) -> None:
        ways = self._both(seen)
        shown = [way.during(seen.begin, seen.end) for way in ways]
        self._highest = max(self._highest, *shown)
        slower = [self._rate(way, seen.end) > rate * (1 + _TOLERANCE) for way, rate in zip(ways, shown, strict=True)]
        if all(slower):
            blamed = self._suspects(ways, shown, seen)
        else:
            # What one of them is known to carry, or shows, explains it: of the other one nothing new is learned.
            new = all(way.unknown for way in ways)
            blamed = [not one and (new or not way.unknown) for way, one in zip(ways, slower, strict=True)]
        for way, rate, is_blamed in zip(ways, shown, blamed, strict=True):
            if is_blamed:
                way.learn(rate, seen.end)

    def _suspects(self, ways: tuple[_Direction, _Direction], shown: list[float], seen: Sighting) -> list[bool]:
        """Return which of two directions are slower than was thought: both, where nothing tells them apart.

        In this order: one is cleared that has carried more since the transfer began; one that carried others besides is
        the one to blame; and so is one of which nothing is known, unless it is the second that is as slow with the same
        other one.
        """
        cleared = [
            way.most_since(seen.begin, seen) > rate * (1 + _TOLERANCE) for way, rate in zip(ways, shown, strict=True)
        ]
        shared = [rate > seen.rate * (1 + _TOLERANCE) for rate in shown]
        if any(cleared) != all(cleared):
            return [not one for one in cleared]
        if any(shared) != all(shared):
            return shared
        unknown = [way.unknown for way in ways]
        if any(unknown) == all(unknown):
            return [True, True]
        known, other = ways if unknown[1] else ways[::-1]
        accomplices = [
            one for one, rate in known.excused if one is not other and abs(rate - seen.rate) <= _TOLERANCE * seen.rate
        ]
        if accomplices:
            for one in accomplices:
                one.forget()
            return [not one for one in unknown]
        known.excused.append((other, seen.rate))
        return unknown
