"""Network interfaces, one per host with a rate in each direction, around a core that never congests.

A transfer leaves through the sender's interface and enters through the receiver's while it leaves.  Each direction of
an interface serves one transfer at a time, at the rate it has at each moment: a transfer gets all the time that is left
free by those sent before it, from when it begins on; it is over when both directions are done with it.  Serving one
after the other instead of sharing the rate among all changes when each of several simultaneous transfers ends, not when
the last one does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from numpy.random import Generator, Philox, SeedSequence

from psplatform.core.parameters import parameter, settle
from psplatform.errors import ConfigurationError

_RATES: Final = 21  # stream of random numbers
_BYTES_PER_GIGABIT: Final = 1e9 / 8
_CHUNK: Final = 64
"""Rates drawn at once."""

_SHORTEST_S: Final = 0.001
"""Rates that change more often than this differ little from their mean, and a transfer goes through each of them."""

_PERIODS: Final = 100_000
"""A transfer that takes longer than this has seen every rate often enough, and goes on at their mean."""


@dataclass(frozen=True, slots=True)
class Links:
    """What the interfaces are like."""

    gigabits: tuple[float, ...] = parameter(above=0, finite=True, alias="nic: gbps", help="rates, gigabits per second")
    chances: tuple[float, ...] = parameter(
        (1.0,), minimum=0, finite=True, alias="change: chance", help="chance of each rate, adding up to 1"
    )
    every_s: float = parameter(
        math.inf,
        minimum=_SHORTEST_S,
        alias="change: every",
        help="seconds after which each direction of an interface draws a rate anew",
    )
    latency_s: float = parameter(
        0.0, minimum=0, finite=True, alias="nic: latency", help="seconds that every message takes beside its transfer"
    )
    workers_per_host: int = parameter(1, minimum=1, alias="hosts: workers", help="workers that share an interface")
    servers_per_host: int = parameter(1, minimum=1, alias="hosts: servers", help="servers that share an interface")

    def __post_init__(self) -> None:
        settle(self)
        if len(self.chances) != len(self.gigabits) or not math.isclose(sum(self.chances), 1.0, abs_tol=1e-9):
            raise ConfigurationError("change: give one chance for each rate of gbps, adding up to 1")


@dataclass
class Direction:
    """One direction of one interface.

    Parameters
    ----------
    key
        Names it among the streams of random numbers.
    """

    links: Links
    seed: int
    key: tuple[int, ...]
    _busy: list[tuple[float, float]] = field(default_factory=list)
    _chunk: int = -1
    _rates: list[float] = field(default_factory=list)

    @property
    def free_at(self) -> float:
        """When all that was sent so far is done."""
        return self._busy[-1][1] if self._busy else 0.0

    def serve(self, size_bytes: float, begin: float, now: float) -> float:
        """Serve a transfer in the time that is free from `begin` on; return when it is done.

        What is over at `now` is forgotten.
        """
        before, after = [], []
        moment, left, done = begin, size_bytes, self.finish(size_bytes, begin)
        for start, end in self._busy:
            if start >= done:
                after.append((start, end))
            elif end < begin:
                before += [(start, end)] if end > now else []
            else:
                left -= self._bytes_between(moment, start)
                moment = max(moment, end)
                begin, done = min(begin, start), self.finish(left, moment)
        # From its begin to its end no time is free any more.
        self._busy = [*before, (begin, done), *after]
        return done

    def _bytes_between(self, begin: float, end: float) -> float:
        total, now, every_s = 0.0, begin, self.links.every_s
        if end - begin > _PERIODS * every_s:
            return self._mean_rate() * (end - begin)
        while now < end:
            period = 0 if math.isinf(every_s) else int(now // every_s)
            until = min(end, (period + 1) * every_s)
            if until <= now:  # the product was rounded down onto `now`
                period, until = period + 1, min(end, (period + 2) * every_s)
            total, now = total + self._rate(period) * (until - now), until
        return total

    def finish(self, size_bytes: float, begin: float) -> float:
        """Return when `size_bytes` that begin at `begin` are through, at the rates of the time."""
        every_s = self.links.every_s
        if math.isinf(every_s):
            return begin + size_bytes / self._rate(0)
        now, left, first = begin, size_bytes, int(begin // every_s)
        for period in range(first, first + _PERIODS):
            end, rate = (period + 1) * every_s, self._rate(period)
            if now + left / rate <= end:
                return now + left / rate
            left, now = left - rate * (end - now), end
        return now + left / self._mean_rate()

    def _mean_rate(self) -> float:
        pairs = zip(self.links.gigabits, self.links.chances, strict=True)
        return _BYTES_PER_GIGABIT * sum(rate * chance for rate, chance in pairs)

    def _rate(self, period: int) -> float:
        """Return bytes per second in a period, which depends on nothing but the seed and the names."""
        chunk, number = divmod(period, _CHUNK)
        if chunk != self._chunk:
            source = Generator(Philox(SeedSequence(self.seed, spawn_key=(_RATES, *self.key, chunk))))
            drawn = source.choice(self.links.gigabits, size=_CHUNK, p=self.links.chances)
            self._chunk, self._rates = chunk, (drawn * _BYTES_PER_GIGABIT).tolist()
        return self._rates[number]


@dataclass
class Network:
    """All interfaces of a simulated cluster; hosts are named by any text."""

    links: Links
    seed: int
    _directions: dict[tuple[str, bool], Direction] = field(default_factory=dict)

    def transfer(self, sender: str, receiver: str, size_bytes: float, now: float) -> float:
        """Send bytes from host to host at `now`; return the seconds until they have arrived."""
        if sender == receiver:
            return 0.0
        leaving = self._direction(sender, outward=True)
        begin = max(now, leaving.free_at)
        left = leaving.serve(size_bytes, begin, now)
        arrived = self._direction(receiver, outward=False).serve(size_bytes, begin, now)
        return max(left, arrived) + self.links.latency_s - now

    def apart(self, sender: str, receiver: str, size_bytes: float, begin: float) -> float:
        """Return the seconds of a transfer that begins later, without a place in the queues of now."""
        ways = self._direction(sender, outward=True), self._direction(receiver, outward=False)
        return max(way.finish(size_bytes, begin) for way in ways) + self.links.latency_s - begin

    def _direction(self, host: str, *, outward: bool) -> Direction:
        key = host, outward
        if key not in self._directions:
            # Keyed by what is named, not by the order in which interfaces are first used.
            self._directions[key] = Direction(self.links, self.seed, (int(outward), *host.encode()))
        return self._directions[key]
