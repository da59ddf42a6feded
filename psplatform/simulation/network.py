"""Network interfaces, one per host with a rate in each direction, around a core that never congests.

A transfer leaves through the sender's interface and enters through the receiver's while it leaves.  Each direction of
an interface serves its transfers one after the other, in the order in which they begin, at the rate it has at each
moment; the transfer is over when both are done with it.  Serving in order instead of sharing the rate among all changes
when each of several simultaneous transfers ends, not when the last one does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from numpy.random import Generator, Philox, SeedSequence

from psplatform.errors import ConfigurationError
from psplatform.jobs.clauses import require_not_negative, require_positive

_RATES: Final = 21  # stream of random numbers
_BYTES_PER_GIGABIT: Final = 1e9 / 8
_CHUNK: Final = 64


@dataclass(frozen=True, slots=True)
class Links:
    """What the interfaces are like.

    Attributes
    ----------
    gigabits
        Rates an interface may have, gigabits per second.
    chances
        How likely each of them is, adding up to 1.
    every_s
        Seconds after which each direction of each interface draws a rate anew; infinity for never.
    latency_s
        Seconds that every message takes beside its transfer.
    workers_per_host, servers_per_host
        Processes that share an interface.
    """

    gigabits: tuple[float, ...]
    chances: tuple[float, ...] = (1.0,)
    every_s: float = math.inf
    latency_s: float = 0.0
    workers_per_host: int = 1
    servers_per_host: int = 1

    def __post_init__(self) -> None:
        for rate in self.gigabits:
            require_positive("network", "gbps", rate)
        for chance in self.chances:
            require_not_negative("network", "chance", chance)
        if len(self.chances) != len(self.gigabits) or not math.isclose(sum(self.chances), 1.0, abs_tol=1e-9):
            raise ConfigurationError("network: give one chance for each rate, adding up to 1")
        if not self.every_s > 0:
            raise ConfigurationError(f"network: every={self.every_s} must be above 0 s")
        require_not_negative("network", "latency", self.latency_s)
        if min(self.workers_per_host, self.servers_per_host) < 1:
            raise ConfigurationError("network: a host has at least one worker or server")


@dataclass
class Direction:
    """One direction of one interface.

    Attributes
    ----------
    free_at
        When what was begun so far is done.
    """

    links: Links
    source: Generator
    free_at: float = 0.0
    _rates: list[float] = field(default_factory=list)

    def serve(self, size_bytes: float, begin: float) -> float:
        """Serve a transfer after those begun so far, not before `begin`; return when it is done."""
        self.free_at = self.finish(size_bytes, max(begin, self.free_at))
        return self.free_at

    def finish(self, size_bytes: float, begin: float) -> float:
        """Return when `size_bytes` that begin at `begin` are through, at the rates of the time."""
        every_s = self.links.every_s
        if math.isinf(every_s):
            return begin + size_bytes / self._rate(0)
        now, left = begin, size_bytes
        period = int(begin // every_s)
        while now + left / self._rate(period) > (period + 1) * every_s:
            end = (period + 1) * every_s
            left -= self._rate(period) * (end - now)
            now, period = end, period + 1
        return now + left / self._rate(period)

    def _rate(self, period: int) -> float:
        while period >= len(self._rates):
            drawn = self.source.choice(self.links.gigabits, size=_CHUNK, p=self.links.chances)
            self._rates += (drawn * _BYTES_PER_GIGABIT).tolist()
        return self._rates[period]


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
        left = leaving.serve(size_bytes, now)
        arrived = self._direction(receiver, outward=False).serve(size_bytes, begin)
        return max(left, arrived) + self.links.latency_s - now

    def apart(self, sender: str, receiver: str, size_bytes: float, begin: float) -> float:
        """Return the seconds of a transfer that begins later, without a place in the queues of now."""
        ways = self._direction(sender, outward=True), self._direction(receiver, outward=False)
        return max(way.finish(size_bytes, begin) for way in ways) + self.links.latency_s - begin

    def _direction(self, host: str, *, outward: bool) -> Direction:
        key = host, outward
        if key not in self._directions:
            # Keyed by what is named, not by the order in which interfaces are first used.
            spawn_key = (_RATES, int(outward), *host.encode())
            source = Generator(Philox(SeedSequence(self.seed, spawn_key=spawn_key)))
            self._directions[key] = Direction(self.links, source)
        return self._directions[key]
