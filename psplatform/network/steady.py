"""What interfaces can carry where rates are expected to stay as they are, from the transfers that have ended.

A transfer proves what both its directions carry at least: the bytes of all that began and ended within its time.  It
went as fast as the slower of the two let it, so that one of them was busy; that one carried about as much as it can.
Which one it was follows from all that may have gone through either meanwhile, and from how many peers it was busy with.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median_high
from typing import Final

from psplatform.network.rates import Rates
from psplatform.network.sightings import UNLIMITED, Sighting
from psplatform.network.state import Interface, NetworkState

_TOLERANCE: Final = 0.15
"""Rates closer than this part of them are the same: vectors are packed and copied as well, by busy processors."""

_CLEARLY: Final = 0.6
"""A direction that has carried less than this part of its rate, while it was to be busy, has changed."""

_WITHIN: Final = 0.05
"""Part of a transfer's time by which another one may begin before it and count as within it."""

_KEPT: Final = 64
"""Transfers of a direction that are kept, to know what went beside one of them."""

_KEPT_S: Final = 60.0
"""Seconds for which it counts what a direction was seen to carry, while it is seen again."""

_OTHERS: Final = 2
"""A direction that has carried as much with so many other peers is what limits a transfer, not its other one."""

_HOPE: Final = 2.0
"""Times the usual rate that an unknown one is hoped to have: else none is tried where those seen first are slow."""


@dataclass(eq=False)
class _Direction:
    """What is known of a direction.

    Attributes
    ----------
    proofs
        When it has carried how many bytes per second at least, but for what is less than its level.
    reached
        By peer, the most it has carried while a transfer with that one went on, as long as that was about its level.
    limits
        By peer, when it last was what limited a transfer.
    slow_with
        The peers with which it has carried clearly less since it was at its level.
    before, accuser
        Proofs and limits from before it was taken for slower, and the peer of the transfer that made it so: that one
        may turn out to be the slow one.
    """

    carried: deque[Sighting] = field(default_factory=lambda: deque(maxlen=_KEPT))
    proofs: list[tuple[float, float]] = field(default_factory=list)
    reached: dict[_Direction, float] = field(default_factory=dict)
    limits: dict[_Direction, float] = field(default_factory=dict)
    slow_with: dict[_Direction, None] = field(default_factory=dict)
    before: tuple[list[tuple[float, float]], dict[_Direction, float]] = field(default_factory=lambda: ([], {}))
    accuser: _Direction | None = None
    at_level: float = -math.inf

    @property
    def unknown(self) -> bool:
        return not self.proofs

    @property
    def level(self) -> float:
        """The most that it has carried lately, bytes per second; infinity where nothing was seen."""
        return max((rate for _, rate in self.proofs), default=math.inf)

    def is_at_level(self, rate: float) -> bool:
        return self.unknown or rate >= (1 - _TOLERANCE) * self.level

    def prove(self, rate: float, at: float, peer: _Direction) -> None:
        """Learn that it has carried that much, about its level or more, while it was used with a peer."""
        self.proofs = [*(one for one in self.proofs if one[0] > at - _KEPT_S), (at, rate)]
        self.reached[peer] = rate
        self.slow_with.clear()
        self.accuser, self.at_level = None, max(at, self.at_level)

    def is_established(self, peer: _Direction) -> bool:
        """Whether it has been at its level with several others than that peer."""
        least = (1 - _TOLERANCE) * self.level
        return sum(rate >= least for one, rate in self.reached.items() if one is not peer) >= _OTHERS

    def limit(self, peer: _Direction, at: float) -> None:
        """Learn that it was what limited a transfer with a peer."""
        self.limits[peer] = at
        level = self.level
        busy_with = [one for one, rate in self.reached.items() if rate >= (1 - _TOLERANCE) * level]
        if len(busy_with) <= _OTHERS:
            return
        for one in busy_with:  # some may have been taken for what limits when less was known
            if list(one.limits) == [self] and abs(one.level - level) < _TOLERANCE * level:
                one.limits.clear()

    def slow_down(self, rate: float, at: float, accuser: _Direction) -> None:
        """Believe that it has become slower, and clear the peers that were taken for slower in its stead."""
        for peer in self.slow_with:
            if peer.accuser is self:
                peer.proofs, peer.limits = peer.before
                peer.accuser = None
        self.slow_with.clear()
        if self.accuser is None:
            self.before = self.proofs, self.limits
        self.proofs, self.limits, self.reached = [(at, rate)], {accuser: at}, {}
        self.accuser = accuser


_Ways = tuple[_Direction, _Direction]


class SteadyEstimates:
    """Rates of every direction, as far as they have been seen.

    A direction that limits transfers has the rate of its level: the most that it has carried in the last minute in
    which it was seen.  Another one can carry that at least, and may carry more: it is hoped to be as fast as the
    fastest that was seen, or twice as fast as most, so that it is tried.  What has not limited anything for a minute is
    tried again.

    Of a transfer whose two directions may both have been busy, the one limits it that was as busy with several other
    peers; else the one that carried others at the same time; else either.  Where neither may have been, one of them has
    become slower.  It is not one that has carried as much as before since the transfer began; it is the one that is
    slow with more peers, which are cleared then, or else the one that was seen at its level longest ago.  A transfer
    that should have ended tells that before it ends.

    Where rates change every few seconds, what was seen a while ago counts for too much here: see `Estimates`.

    Parameters
    ----------
    fastest
        Bytes per second of an interface before anything is known.
    """

    def __init__(self, fastest: float = UNLIMITED) -> None:
        self._fastest = fastest
        self._ways: dict[tuple[str, bool], _Direction] = {}
        self._unjudged: list[Sighting] = []
        # What may go on still, as if it ended now.
        self._open: list[Sighting] = []

    def observe(self, seen: Sighting) -> None:
        """Learn from a transfer that has ended, when `state` is asked: once others that end with it have ended too."""
        if seen.tells:
            for way in self._both(seen):
                way.carried.append(seen)
            self._unjudged.append(seen)

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
        self._open = [*running, *(one for one in beside if one.sender != one.receiver)]
        unjudged, self._unjudged = self._unjudged, []
        for one in sorted(unjudged, key=lambda one: one.end):
            self._judge(one)
        for one in sorted(running, key=lambda one: one.begin):
            self._doubt(one)
        hope = self._hope()
        rates = {
            (host, outward): self._rate(self._ways.get((host, outward)), now, hope)
            for host in hosts
            for outward in (True, False)
        }
        return NetworkState(
            {
                host: Interface(Rates.steady(rates[host, True], now), Rates.steady(rates[host, False], now))
                for host, _ in rates
            }
        )

    def _both(self, seen: Sighting) -> _Ways:
        out, into = (seen.sender, True), (seen.receiver, False)
        return self._ways.setdefault(out, _Direction()), self._ways.setdefault(into, _Direction())

    def _hope(self) -> float:
        """Return the bytes per second of a direction of which nothing is known."""
        levels = [way.level for way in self._ways.values() if not way.unknown]
        return max(*levels, _HOPE * median_high(levels)) if levels else self._fastest

    def _rate(self, way: _Direction | None, now: float, hope: float) -> float:
        if way is None or way.unknown:
            return hope
        limited_at = max(way.limits.values(), default=-math.inf)
        return way.level if limited_at > now - _KEPT_S else max(way.level, hope)

    def _least(self, way: _Direction, seen: Sighting) -> float:
        """Return the bytes per second that a direction has carried in the time of a transfer, at least."""
        begin = seen.begin - _WITHIN * (seen.end - seen.begin)
        within = (one for one in way.carried if one.begin >= begin and one.end <= seen.end)
        return sum(one.size_bytes for one in within) / (seen.end - seen.begin)

    def _most(self, way: _Direction, seen: Sighting) -> float:
        """Return the bytes per second that it may have carried: what overlaps may have gone in that time alone."""
        beside = (one for one in (*way.carried, *self._open) if one is not seen and way in self._both(one))
        overlaps = ((one, min(one.end, seen.end) - max(one.begin, seen.begin)) for one in beside)
        besides = sum(min(one.size_bytes, way.level * overlap) for one, overlap in overlaps if overlap > 0)
        return (seen.size_bytes + besides) / (seen.end - seen.begin)

    def _judge(self, seen: Sighting) -> None:
        ways = self._both(seen)
        most = [self._most(way, seen) for way in ways]
        busy = [way.is_at_level(rate) for way, rate in zip(ways, most, strict=True)]
        if not any(busy):
            self._blame(ways, most, seen)
            return
        proven = []
        for way, peer, may_be in zip(ways, ways[::-1], busy, strict=True):
            rate = self._least(way, seen)
            if way.is_at_level(rate):
                way.prove(rate, seen.end, peer)
                if may_be:
                    proven.append(way)
        for way in self._limiting(ways, most, busy, seen):
            if way in proven:
                way.limit(ways[1 - ways.index(way)], seen.end)

    def _limiting(self, ways: _Ways, most: Sequence[float], busy: Sequence[bool], seen: Sighting) -> list[_Direction]:
        """Return what limited a transfer; both of its directions, where nothing tells them apart."""
        signs = (
            busy,
            [way.is_established(peer) for way, peer in zip(ways, ways[::-1], strict=True)],
            [rate > (1 + _TOLERANCE) * seen.rate for rate in most],
        )
        deciding = next((sign for sign in signs if sum(sign) == 1), (True, True))
        return [way for way, holds in zip(ways, deciding, strict=True) if holds]

    def _doubt(self, running: Sighting) -> None:
        """Learn from a transfer that has not ended: both its directions have carried less than with all of it."""
        ways = self._both(running)
        self._blame(ways, [self._most(way, running) for way in ways], running)

    def _blame(self, ways: _Ways, most: Sequence[float], seen: Sighting) -> None:
        """Find which of two directions has become slower, if both have carried clearly less than they could."""
        if not all(rate < _CLEARLY * way.level < math.inf for way, rate in zip(ways, most, strict=True)):
            return
        # One that was as fast as ever since the transfer began is not what slows it.
        open_to_doubt = [way for way in ways if way.at_level <= seen.begin] or list(ways)
        for way in open_to_doubt:
            way.slow_with[ways[1 - ways.index(way)]] = None
        slow = max(open_to_doubt, key=lambda way: (len(way.slow_with), -way.at_level))
        number = ways.index(slow)
        slow.slow_down(most[number], seen.end, ways[1 - number])
