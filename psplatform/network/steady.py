"""What interfaces can carry where rates are expected to stay as they are, from the transfers that have ended.

A transfer proves what both its directions carry at least: the bytes of all that began and ended within its time.  It
went as fast as the slower of the two let it, so that one of them was busy; that one carried about as much as it can.
Which one it was follows from all that may have gone through either meanwhile, and from how many peers it was busy with.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median_high
from typing import Final

from psplatform.network.counters import Count, Counters
from psplatform.network.judging import judge
from psplatform.network.sightings import UNLIMITED, Direction, Sighting
from psplatform.network.state import NetworkState

_TOLERANCE: Final = 0.15
"""Rates closer than this part of them are the same: vectors are packed and copied as well, by busy processors."""

_CLEARLY: Final = 0.6
"""A direction that has carried less than this part of its rate, while it was to be busy, has changed."""

_WITHIN: Final = 0.05
"""Part of a transfer's time by which another one may begin before it and count as within it."""

_KEPT: Final = 64
"""Transfers of a direction that are kept, to know what went beside one of them."""

_KEPT_S: Final = 60.0
"""What a direction was seen to do counts for so many seconds in which it is used."""

_OTHERS: Final = 2
"""A direction that has carried as much with so many other peers is what limits a transfer, not its other one."""

_HOPE: Final = 2.0
"""Times the usual rate that an unknown one is hoped to have: else none is tried where those seen first are slow."""


@dataclass(eq=False)
class _Direction:
    """What is known of a direction; others are named by their keys, so that nothing here leads to all the rest.

    Attributes
    ----------
    proofs
        When it has carried how many bytes per second at least, the most first: later ones that are less.
    reached
        By peer, what it has carried last while a transfer with that one went on, as long as that was about its level.
    limits
        By peer, when it last was what limited a transfer.
    slow_with
        The peers with which it has carried clearly less since it was at its level.
    before, accuser
        Proofs and limits from before it was taken for slower, and the peer of the transfer that made it so: that one
        may turn out to be the slow one.
    fallen_at
        When it was counted to have become slower: what began before proves no more.
    """

    carried: deque[Sighting] = field(default_factory=lambda: deque(maxlen=_KEPT))
    proofs: list[tuple[float, float]] = field(default_factory=list)
    reached: dict[Direction, float] = field(default_factory=dict)
    limits: dict[Direction, float] = field(default_factory=dict)
    slow_with: dict[Direction, None] = field(default_factory=dict)
    before: tuple[list[tuple[float, float]], dict[Direction, float]] = field(default_factory=lambda: ([], {}))
    accuser: Direction | None = None
    used_at: float = -math.inf
    at_level: float = -math.inf
    fallen_at: float = -math.inf

    @property
    def unknown(self) -> bool:
        return not self.proofs

    @property
    def level(self) -> float:
        """The most that it has carried lately, bytes per second; infinity where nothing was seen."""
        return self.proofs[0][1] if self.proofs else math.inf

    @property
    def does_limit(self) -> bool:
        """Whether it was what limited a transfer in the last minute before it was used last."""
        return max(self.limits.values(), default=-math.inf) > self.used_at - _KEPT_S

    def use(self, at: float) -> None:
        """Forget what it was seen to carry more than a minute before it was used last, because it is used now."""
        self.proofs = [one for one in self.proofs if one[0] > self.used_at - _KEPT_S]
        self.used_at = max(self.used_at, at)
        if not self.proofs:
            self.reached.clear()

    def is_at_level(self, rate: float) -> bool:
        return self.unknown or rate >= (1 - _TOLERANCE) * self.level

    def prove(self, rate: float, at: float, peer: Direction) -> None:
        """Learn that it has carried that much, about its level or more, while it was used with a peer."""
        self.proofs = [*(one for one in self.proofs if one[1] > rate), (at, rate)]
        self.reached[peer] = rate
        self.slow_with.clear()
        self.accuser, self.at_level = None, max(at, self.at_level)

    def busy_with(self) -> list[Direction]:
        """Return the peers with which it has been at its level."""
        least = (1 - _TOLERANCE) * self.level
        return [peer for peer, rate in self.reached.items() if rate >= least]

    def is_established(self, peer: Direction) -> bool:
        """Whether it has been at its level with several others than that peer."""
        return len([one for one in self.busy_with() if one != peer]) >= _OTHERS

    def confirm(self, at: float) -> None:
        """Learn that it is at its level."""
        self.slow_with.clear()
        self.at_level = max(at, self.at_level)

    def slow_down(self, rate: float, at: float, accuser: Direction) -> None:
        """Believe that it has become slower."""
        self.slow_with.clear()
        if self.accuser is None:
            self.before = self.proofs, self.limits
        self.proofs, self.limits, self.reached = [(at, rate)], {accuser: at}, {}
        self.accuser = accuser

    def clear(self) -> None:
        """Believe what was known before it was taken for slower."""
        self.proofs, self.limits = self.before
        self.accuser = None


class SteadyEstimates:
    """Rates of every direction, as far as they have been seen.

    A direction that limits transfers has the rate of its level: the most that it has carried in the last minute before
    it was used last.  Another one can carry that at least, and may carry more: so that it is tried, it is hoped to be
    as fast as the fastest that was seen, and twice as fast as most at least.

    Both directions of a transfer may have been busy.  If one of them was as busy with two other peers at least, and the
    other one was not, it is the limit; else the one that carried others at the same time; else both are taken for it.
    If neither was busy, one of them has become slower: not one that has carried as much as before since the transfer
    began, but the one that is slow with more peers, and of equals the one that was at its level longest ago.  The peers
    that were taken for slower because of it are cleared.  A transfer that should have ended tells that before it ends.

    Where rates change every few seconds, what was seen a while ago counts for too much here: see `Estimates`.

    Parameters
    ----------
    fastest
        Bytes per second of an interface before anything is known.
    """

    def __init__(self, fastest: float = UNLIMITED) -> None:
        self._fastest = fastest
        self._ways: defaultdict[Direction, _Direction] = defaultdict(_Direction)
        self._unjudged: list[Sighting] = []
        # By direction, what may go on still, as if it ended now.
        self._open: dict[Direction, list[Sighting]] = {}
        self._counters = Counters()

    def observe(self, seen: Sighting) -> None:
        """Learn from a transfer that has ended, when `state` is asked next."""
        if seen.tells:
            for key in seen.directions:
                self._ways[key].carried.append(seen)
            self._unjudged.append(seen)
            self._counters.end(seen)

    def count(self, count: Count, now: float, ways: Iterable[tuple[str, str]] = ()) -> None:
        """Learn from what an interface has carried lately; between those hosts transfers may be under way."""
        self._counters.note_under_way(ways, now)
        if self._counters.take(count, now):
            judge(self._counters, self, count.host, now)

    def level(self, key: Direction) -> float:
        """Return the bytes per second that a direction is known to carry, infinity where nothing is known."""
        return self._ways[key].level if key in self._ways else math.inf

    def expected(self, key: Direction) -> float:
        """Return the bytes per second that a direction is expected to carry."""
        return self._rate(key, self._hope())

    def may_rise(self, key: Direction) -> bool:
        """Whether it is expected to carry no more than that; of others more is expected already."""
        return self._ways[key].does_limit

    def confirm(self, key: Direction, at: float) -> None:
        """Learn that a direction is as fast as it was."""
        if key in self._ways:
            self._ways[key].confirm(at)

    def rise(self, key: Direction, rate: float, at: float, *, limited: bool) -> None:
        """Learn that a direction carries more than was known, and whether another end was busy, so that it may more."""
        way = self._ways[key]
        way.use(at)
        if limited:
            way.limits.clear()
        way.proofs = [(at, rate)]
        way.confirm(at)

    def settle(self, key: Direction, rate: float, since: float, at: float) -> None:
        """Learn what a direction carries at most."""
        way = self._ways[key]
        way.use(at)
        way.fallen_at = since if rate < way.level else way.fallen_at
        self._slow_down(key, rate, at, key)
        way.confirm(at)

    def fall(self, keys: Sequence[Direction], rate: float, since: float, at: float) -> None:
        """Learn that the first direction carries only that, or one of the others, which carry the same."""
        for key in keys[1:]:
            self._ways[keys[0]].slow_with[key] = None
            self._ways[key].slow_with[keys[0]] = None
        slow = self._slowest(keys)
        way = self._ways[slow]
        way.use(at)
        way.fallen_at = since
        self._slow_down(slow, rate, at, keys[0] if slow != keys[0] else keys[-1])

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
        self._open = {}
        for one in (*running, *beside):
            for key in one.directions if one.sender != one.receiver else ():
                self._open.setdefault(key, []).append(one)
        unjudged, self._unjudged = self._unjudged, []
        for one in sorted(unjudged, key=lambda one: one.end):
            self._judge(one)
        for one in sorted(running, key=lambda one: one.begin):
            self._blame(one, [self._most(key, one) for key in one.directions])
        hope = self._hope()
        return NetworkState.steady(hosts, lambda direction: self._rate(direction, hope), now)

    def _hope(self) -> float:
        """Return the bytes per second of a direction of which nothing is known."""
        levels = [way.level for way in self._ways.values() if not way.unknown]
        return max(*levels, _HOPE * median_high(levels)) if levels else self._fastest

    def _rate(self, key: Direction, hope: float) -> float:
        way = self._ways.get(key)
        if way is None or way.unknown:
            return hope
        return way.level if way.does_limit else max(way.level, hope)

    def _least(self, key: Direction, seen: Sighting) -> float:
        """Return the bytes per second that a direction has carried in about the time of a transfer, at least."""
        begin = seen.begin - _WITHIN * (seen.end - seen.begin)
        within = (one for one in self._ways[key].carried if one.begin >= begin and one.end <= seen.end)
        return sum(one.size_bytes for one in within) / (seen.end - seen.begin)

    def _most(self, key: Direction, seen: Sighting) -> float:
        """Return the bytes per second that it may have carried: what overlaps may have gone in that time alone.

        As far as that is remembered: where more than `_KEPT` others have ended meanwhile it may be more.
        """
        way = self._ways[key]
        level, bytes_beside = way.level, 0.0
        for one in (*way.carried, *self._open.get(key, ())):
            overlap_s = min(one.end, seen.end) - max(one.begin, seen.begin)
            if overlap_s > 0 and one is not seen:
                bytes_beside += min(one.size_bytes, level * overlap_s)
        return (seen.size_bytes + bytes_beside) / (seen.end - seen.begin)

    def _judge(self, seen: Sighting) -> None:
        keys = seen.directions
        ways = [self._ways[key] for key in keys]
        for way in ways:
            way.use(seen.end)
        most = [self._most(key, seen) for key in keys]
        busy = [way.is_at_level(rate) for way, rate in zip(ways, most, strict=True)]
        if not any(busy):
            self._blame(seen, most)
            return
        proven = set()
        for key, peer, way, may_be in zip(keys, keys[::-1], ways, busy, strict=True):
            rate = self._least(key, seen)
            if way.is_at_level(rate) and (seen.begin >= way.fallen_at or rate <= way.level):
                way.prove(rate, seen.end, peer)
                if may_be:
                    proven.add(key)
        limiting = self._limiting(seen, most, busy)
        for key, peer in zip(keys, keys[::-1], strict=True):
            if key in proven and key in limiting:
                self._limit(key, peer, seen.end)

    def _limiting(self, seen: Sighting, most: Sequence[float], busy: Sequence[bool]) -> list[Direction]:
        """Return what limited a transfer; both of its directions, where nothing tells them apart."""
        keys = seen.directions
        signs = (
            busy,
            [self._ways[key].is_established(peer) for key, peer in zip(keys, keys[::-1], strict=True)],
            [rate > (1 + _TOLERANCE) * seen.rate for rate in most],
        )
        deciding = next((sign for sign in signs if sum(sign) == 1), (True, True))
        return [key for key, holds in zip(keys, deciding, strict=True) if holds]

    def _limit(self, key: Direction, peer: Direction, at: float) -> None:
        """Learn that a direction was what limited a transfer with a peer."""
        way = self._ways[key]
        way.limits[peer] = at
        busy_with = way.busy_with()
        if len(busy_with) <= _OTHERS:
            return
        for other in busy_with:
            one = self._ways[other]  # it may have been taken for what limits when less was known
            if list(one.limits) == [key] and abs(one.level - way.level) < _TOLERANCE * way.level:
                one.limits.clear()

    def _blame(self, seen: Sighting, most: Sequence[float]) -> None:
        """Find which direction has become slower, if both have carried clearly less than they could."""
        keys = seen.directions
        ways = [self._ways[key] for key in keys]
        if not all(rate < _CLEARLY * way.level < math.inf for way, rate in zip(ways, most, strict=True)):
            return
        # What slows it was not as fast as ever since it began, nor is it a direction before which nothing waits.
        sends, receives = 0, 1
        either = [receives] if self._counters.is_free(seen.sender, seen.end) else [sends, receives]
        open_to_doubt = [number for number in either if ways[number].at_level <= seen.begin] or either
        for number in open_to_doubt:
            ways[number].slow_with[keys[1 - number]] = None
        slow = self._slowest([keys[number] for number in open_to_doubt])
        number = keys.index(slow)
        self._slow_down(slow, most[number], seen.end, keys[1 - number])

    def _slowest(self, keys: Sequence[Direction]) -> Direction:
        """Return which of some directions has become slower, as it seems now."""
        return max(keys, key=lambda key: (len(self._ways[key].slow_with), -self._ways[key].at_level))

    def _slow_down(self, key: Direction, rate: float, at: float, accuser: Direction) -> None:
        """Believe that a direction has become slower, and clear those that were taken for slower because of it."""
        for peer in [self._ways[one] for one in self._ways[key].slow_with]:
            if peer.accuser == key:
                peer.clear()
        self._ways[key].slow_down(rate, at, accuser)
