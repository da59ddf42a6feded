"""What interfaces can carry where rates keep changing, from transfers that have ended and from what monitors report.

A transfer that has ended tells what both its directions can carry at least,
and that one of the two can carry no more.  Which one follows from what each of them has carried besides, from how long
ago its rate was seen, and from how many peers it is slow with.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import harmonic_mean
from typing import Final, NamedTuple

from psplatform.network.counters import Count, Counters
from psplatform.network.judging import judge
from psplatform.network.sightings import Direction, Sighting
from psplatform.network.state import NetworkState

_TOLERANCE: Final = 0.1
"""Rates closer than this part of them are the same, and transfers that end closer together end at the same time."""

_SURE: Final = 0.5
"""What counts for more is not doubted where something else may be the cause."""

_KEPT: Final = 64
"""Transfers of a direction that are kept, to know what went beside one of them."""


class _Belief(NamedTuple):
    """A rate, and when it was last seen to be that."""

    rate: float = math.inf
    at: float = -math.inf


_NOTHING: Final = _Belief()


@dataclass(eq=False)
class _Direction:
    """What is known of a direction: its rate, and when it was last seen to be that.

    Attributes
    ----------
    before
        What was believed before it was held to be what slows a transfer.
    accuser
        The peer of that transfer, which may turn out to be the slow one.
    slow_with
        The peers with which it has been slower since its rate was last seen.
    """

    belief: _Belief = _NOTHING
    before: _Belief = _NOTHING
    accuser: _Direction | None = None
    carried: deque[Sighting] = field(default_factory=lambda: deque(maxlen=_KEPT))
    slow_with: dict[_Direction, None] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        return self.belief.rate

    @property
    def unknown(self) -> bool:
        return math.isinf(self.belief.at)

    def explains(self, shown: float) -> bool:
        """Whether it is known to carry no more than that."""
        return self.rate <= shown * (1 + _TOLERANCE)

    def learn(self, rate: float, at: float) -> None:
        """Believe a rate, unless a newer one is known."""
        if at >= self.belief.at:
            self.belief = self.before = _Belief(rate, at)
            self.accuser = None
            self.slow_with.clear()

    def blame(self, rate: float, at: float, accuser: _Direction) -> None:
        """Believe that it has become slower, unless a newer rate is known, and clear the peers blamed in its stead."""
        if at < self.belief.at:
            return
        for peer in self.slow_with:
            if peer.accuser is self:
                peer.belief, peer.accuser = peer.before, None
                peer.slow_with.pop(self, None)
        self.slow_with.clear()
        self.belief, self.accuser = _Belief(rate, at), accuser

    def during(self, begin: float, end: float) -> float:
        """Return the bytes per second of the transfers that have ended by the end of a span: it can carry that.

        One that ends later may have waited for them all the time.
        """
        ended = (one for one in self.carried if begin < one.end <= end)
        return sum(one.rate * (one.end - max(begin, one.begin)) for one in ended) / (end - begin)


_Ways = tuple[_Direction, _Direction]


class Estimates:
    """Rates of every direction, as far as they have been seen.

    A direction of which nothing is known takes as long for a byte as those that are known do on average, or has the
    rate `fastest` where none is.  What was seen long ago comes closer to that as well, by the factor 1/e in `forget_s`:
    so a fast one that may have changed is not trusted for ever, and a slow one is tried again.

    A transfer that is slower than both its directions were thought to be leaves open which of them has changed: it is
    the one that is slow with more peers, which are cleared then; else the one whose rate was seen longest ago.  Where
    others that went beside it, and began earlier or ended later, may have slowed it as well, only a direction of which
    little is known any more is held to be slow.

    Parameters
    ----------
    fastest
        Bytes per second of an interface before anything is known.
    forget_s
        Seconds in which what was seen loses its weight: about as often as rates change.
    """

    def __init__(self, fastest: float, forget_s: float) -> None:
        self._fastest, self._forget_s = fastest, forget_s
        self._ways: defaultdict[Direction, _Direction] = defaultdict(_Direction)
        self._unjudged: list[Sighting] = []
        # What may go on still, as if it ended now.
        self._open: list[Sighting] = []
        self._counters = Counters()

    def observe(self, seen: Sighting) -> None:
        """Learn from a transfer that has ended, when `state` is asked once others that end with it have ended too."""
        if not seen.tells:
            return
        for way in self._both(seen):
            way.carried.append(seen)
        self._unjudged.append(seen)
        self._counters.end(seen)

    def count(self, count: Count, now: float, ways: Iterable[tuple[str, str]] = ()) -> None:
        """Learn from what an interface has carried lately; between those hosts transfers may be under way."""
        self._counters.note_under_way(ways, now)
        if self._counters.take(count, now):
            judge(self._counters, self, count.host, now)

    def level(self, key: Direction) -> float:
        """Return the bytes per second that a direction was last seen to carry, infinity where nothing is known."""
        return self._ways[key].rate if key in self._ways and not self._ways[key].unknown else math.inf

    def expected(self, key: Direction) -> float:
        """Return the bytes per second that a direction is expected to carry, at most."""
        return self.level(key)

    def may_rise(self, key: Direction) -> bool:
        """Whether it is expected to carry no more than that."""
        return not self._ways[key].unknown

    def confirm(self, key: Direction, at: float) -> None:
        """Learn that a direction is as fast as it was."""
        if key in self._ways and not self._ways[key].unknown:
            self._ways[key].learn(self._ways[key].rate, at)

    def rise(self, key: Direction, rate: float, at: float, *, limited: bool) -> None:
        """Learn that a direction carries more than was known; whether another end was busy makes no difference."""
        self._ways[key].learn(rate, at)

    def settle(self, key: Direction, rate: float, since: float, at: float) -> None:
        """Learn what a direction carries at most."""
        self._ways[key].learn(rate, at)

    def fall(self, keys: Sequence[Direction], rate: float, since: float, at: float) -> None:
        """Learn that the first direction carries only that, or one of the others, which carry the same."""
        first, *others = ways = [self._ways[key] for key in keys]
        for way in others:
            first.slow_with[way] = way.slow_with[first] = None
        slow = max(ways, key=lambda way: (len(way.slow_with), -way.before.at))
        slow.blame(rate, at, first if slow is not first else ways[-1])

    def report(self, host: str, out: float, into: float, at: float) -> None:
        """Learn the rates of both directions of a host, bytes per second, from its monitor."""
        for outward, rate in ((True, out), (False, into)):
            self._ways[host, outward].learn(rate, at)

    def state(
        self, hosts: Iterable[str], now: float, running: Iterable[Sighting] = (), beside: Iterable[Sighting] = ()
    ) -> NetworkState:
        """Return what the interfaces of these hosts can carry, with nothing reserved.

        Parameters
        ----------
        running
            Transfers that have not ended by `now`: one that should have tells that a direction is slow before it ends.
        beside
            Transfers of which nobody knows whether they have ended.
        """
        running = [one for one in running if one.tells]
        self._open = [one for one in (*running, *beside) if one.sender != one.receiver]
        self._judge_until(now)
        for one in sorted(running, key=lambda one: one.begin):
            self._doubt(one)
        usual = self._usual()
        return NetworkState.steady(hosts, lambda direction: self._rate(self._ways.get(direction), now, usual), now)

    def _both(self, seen: Sighting) -> _Ways:
        out, into = seen.directions
        return self._ways[out], self._ways[into]

    def _usual(self) -> float:
        """Return the rate of a direction of which nothing is known: that of a byte's average time."""
        rates = [way.rate for way in self._ways.values() if not way.unknown and way.rate > 0]
        return harmonic_mean(rates) if rates else self._fastest

    def _rate(self, way: _Direction | None, now: float, usual: float) -> float:
        if way is None or way.unknown:
            return usual
        weight = self._weight(way, now)
        return 1 / (weight / way.rate + (1 - weight) / usual) if way.rate > 0 else 0.0

    def _weight(self, way: _Direction, now: float) -> float:
        """Return how much of what was seen of a direction still counts, from 1 down to 0."""
        return math.exp(-max(now - way.belief.at, 0.0) / self._forget_s)

    def _is_sure(self, way: _Direction, now: float) -> bool:
        """Whether what is known of a direction stays as it is where something else may be the cause."""
        return not way.unknown and self._weight(way, now) > _SURE

    def _judge_until(self, now: float) -> None:
        ready = [one for one in self._unjudged if _same_end(one) <= now]
        for one in sorted(ready, key=lambda one: one.end):
            self._unjudged.remove(one)
            self._judge(one)

    def _judge(self, seen: Sighting) -> None:
        ways = self._both(seen)
        ends = [max((one.end for one in way.carried if one.end <= _same_end(seen)), default=seen.end) for way in ways]
        shown = [way.during(seen.begin, end) for way, end in zip(ways, ends, strict=True)]
        explained = [way.explains(rate) for way, rate in zip(ways, shown, strict=True)]
        for way, rate, explains in zip(ways, shown, explained, strict=True):
            # Of the other one nothing new is learned, unless it is fast for one of which nothing was known.
            if explains or (any(explained) and way.unknown and rate > self._usual()):
                way.learn(rate, seen.end)
        if not any(explained):
            possible = [self._possible(way, seen, end) for way, end in zip(ways, ends, strict=True)]
            self._blame(ways, shown, possible, seen)

    def _possible(self, way: _Direction, seen: Sighting, end: float) -> float:
        """Return the bytes per second that a direction may have carried from the begin of a transfer to `end`.

        As if others had gone evenly from their begin to their end, or until now.
        """
        beside = (one for one in (*way.carried, *self._open) if one is not seen and way in self._both(one))
        overlaps = ((one, min(one.end, end) - max(one.begin, seen.begin)) for one in beside)
        between = sum(one.rate * overlap for one, overlap in overlaps if overlap > 0)
        return (seen.size_bytes + between) / (end - seen.begin)

    def _doubt(self, running: Sighting) -> None:
        """Learn from a transfer that has not ended: both its directions have carried less than with all of it."""
        ways = self._both(running)
        shown = [way.during(running.begin, running.end) + running.rate for way in ways]
        explained = any(way.explains(rate) for way, rate in zip(ways, shown, strict=True))
        if not explained and not all(way.unknown for way in ways):
            possible = [self._possible(way, running, running.end) for way in ways]
            self._blame(ways, shown, possible, running)

    def _blame(self, ways: _Ways, shown: Sequence[float], possible: Sequence[float], seen: Sighting) -> None:
        """Find which of two directions is slower than was thought; both, where nothing is known of either.

        They have carried so much as is `shown`, and may have carried what is `possible`.
        """
        # One whose rate was confirmed since the transfer began is not what slows it; to be blamed confirms nothing.
        open_to_doubt = [way for way in ways if way.before.at <= seen.begin] or ways
        vague = any(way.explains(rate) for way, rate in zip(ways, possible, strict=True))
        nothing_known = all(way.unknown for way in ways)
        slow_with = {way: {**way.slow_with, other: None} for way, other in (ways, ways[::-1])}
        slow = max(open_to_doubt, key=lambda way: (len(slow_with[way]), -way.before.at))
        if vague and self._is_sure(slow, seen.end) and not nothing_known:
            return
        for way in open_to_doubt:
            way.slow_with = slow_with[way]
        if nothing_known:
            shared = [way for way, rate in zip(ways, shown, strict=True) if rate > seen.rate * (1 + _TOLERANCE)]
            for way in shared or ways:
                way.learn(shown[ways.index(way)], seen.end)
            return
        number = ways.index(slow)
        slow.blame(shown[number], seen.end, ways[1 - number])


def _same_end(seen: Sighting) -> float:
    """Return until when others may end that end at the same time."""
    return seen.end + _TOLERANCE * (seen.end - seen.begin)
