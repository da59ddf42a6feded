"""Network interfaces, one per host with a rate in each direction, around a core that never congests.

A transfer takes the smaller of what the sender's outgoing and the receiver's incoming direction have left at each
moment (`psplatform.network.rates`).  So transfers that meet at one bottleneck follow each other in the order in which
they were sent, and a slow peer leaves the rest of a fast interface to others.  Serving one after the other instead of
sharing a bottleneck among all changes when each of several simultaneous transfers ends, not when the last one does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from numpy.random import Generator, Philox, SeedSequence

from psplatform.core.parameters import parameter, settle
from psplatform.errors import ConfigurationError
from psplatform.network.rates import BYTES_PER_GIGABIT, Rates, pieces
from psplatform.network.state import Interface, NetworkState

_RATES: Final = 21  # stream of random numbers
_CHUNK: Final = 64
"""Rates drawn at once."""

_SHORTEST_S: Final = 0.001
"""Rates that change more often than this differ little from their mean, and a transfer goes through each of them."""

_AHEAD_S: Final = 3600.0

_PERIODS: Final = 100_000
"""A transfer that takes longer than this has seen every rate often enough: what comes later, on the interface for which
it waits longest, has the mean of them."""


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
    rates: Rates = field(init=False)
    """What it has left; nothing from the first period on that is not drawn yet."""

    _drawn: int = field(default=0, init=False)
    _complete: bool = field(init=False)
    _chunk: int = field(default=-1, init=False)
    _chunk_rates: list[float] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._complete = math.isinf(self.links.every_s)
        self.rates = Rates.steady(self.rate(0) if self._complete else 0.0)

    @property
    def known_until(self) -> float:
        """The end of the last period whose rate is drawn."""
        return math.inf if self._complete else self._drawn * self.links.every_s

    def forget(self, now: float) -> None:
        """Forget what was before `now`; nothing begins earlier any more."""
        self.rates = self.rates.since(now)
        if not self._complete:
            self._drawn = max(self._drawn, int(now // self.links.every_s))

    def draw(self, now: float) -> None:
        """Know the rates of as many periods more as are known from `now` on; after very many, the mean for ever."""
        if self._complete:
            return
        every_s = self.links.every_s
        first, known = self._drawn, self._drawn - int(now // every_s)
        begin = first * every_s
        steps = [one for one in zip(self.rates.times, self.rates.rates, strict=True) if one[0] < begin]
        if known > _PERIODS:
            steps.append((begin, self._mean_rate()))
            self._complete = True
        else:
            self._drawn += max(known, _CHUNK)
            steps += [(period * every_s, self.rate(period)) for period in range(first, self._drawn)]
            steps.append((self._drawn * every_s, 0.0))
        self.rates = Rates(*map(tuple, zip(*steps, strict=True)))

    def _mean_rate(self) -> float:
        pairs = zip(self.links.gigabits, self.links.chances, strict=True)
        return BYTES_PER_GIGABIT * sum(rate * chance for rate, chance in pairs)

    def rate(self, period: int) -> float:
        """Return bytes per second in a period, which depends on nothing but the seed and the names."""
        chunk, number = divmod(period, _CHUNK)
        if chunk != self._chunk:
            source = Generator(Philox(SeedSequence(self.seed, spawn_key=(_RATES, *self.key, chunk))))
            drawn = source.choice(self.links.gigabits, size=_CHUNK, p=self.links.chances)
            self._chunk, self._chunk_rates = chunk, (drawn * BYTES_PER_GIGABIT).tolist()
        return self._chunk_rates[number]


@dataclass
class Network:
    """All interfaces of a simulated cluster; hosts are named by any text."""

    links: Links
    seed: int
    _directions: dict[tuple[str, bool], Direction] = field(default_factory=dict)
    _looked_at: dict[tuple[str, bool], Direction] = field(default_factory=dict)

    def transfer(self, sender: str, receiver: str, size_bytes: float, now: float, *, late_s: float = 0.0) -> float:
        """Send bytes from host to host, at `now` or so much later; return the seconds from now until they have arrived.

        What was sent before goes first, even if this one is ready earlier than another that was sent late.
        """
        if sender == receiver:
            return late_s
        out, into = self._direction(sender, now, outward=True), self._direction(receiver, now, outward=False)
        begin = now + late_s
        while (taken := pieces(out.rates, into.rates, size_bytes, begin)) is None:
            # The other one may be known far ahead already.
            min(out, into, key=lambda way: way.known_until).draw(now)
        if taken:
            out.rates, into.rates = out.rates.less(taken), into.rates.less(taken)
        return (taken[-1].end if taken else begin) + self.links.latency_s - now

    def capacity(self, host: str, moment: float) -> tuple[float, float]:
        """Return the bytes per second of both directions of a host's interface, out and in, whatever is sent."""
        period = 0 if math.isinf(self.links.every_s) else int(moment // self.links.every_s)
        out, into = (self._known(host, outward=outward).rate(period) for outward in (True, False))
        return out, into

    def left(self, hosts: Iterable[str], now: float) -> NetworkState:
        """Return what the interfaces of these hosts have left from `now` on, for an hour at least."""
        interfaces = {}
        for host in hosts:
            ways = [self._direction(host, now, outward=outward) for outward in (True, False)]
            for way in ways:
                while way.known_until < now + _AHEAD_S:
                    way.draw(now)
            interfaces[host] = Interface(*(way.rates for way in ways))
        return NetworkState(interfaces)

    def _known(self, host: str, *, outward: bool) -> Direction:
        """Return what answers for the rates of a direction alone: asking does not move the other one on."""
        key = host, outward
        if key not in self._looked_at:
            self._looked_at[key] = Direction(self.links, self.seed, _key(host, outward=outward))
        return self._looked_at[key]

    def _direction(self, host: str, now: float, *, outward: bool) -> Direction:
        key = host, outward
        if key not in self._directions:
            # Keyed by what is named, not by the order in which interfaces are first used.
            self._directions[key] = Direction(self.links, self.seed, _key(host, outward=outward))
        self._directions[key].forget(now)
        return self._directions[key]


def _key(host: str, *, outward: bool) -> tuple[int, ...]:
    return int(outward), *host.encode()
