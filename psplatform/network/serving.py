"""When workers are sent the parameters, and through which relay: planned anew as often as gradients are.

Whoever waits while the servers are busy sending may get the parameters through a relay, together with others that wait.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from psplatform.core.transfers import PullGrant, PullPlan, PullRequest
from psplatform.network.legs import Leg
from psplatform.network.relaying import spread
from psplatform.network.sightings import Sighting
from psplatform.network.state import NetworkState, Parts


@dataclass(eq=False)
class _Served:
    """What servers send to one host, for workers there and for those to which it hands it on.

    `legs` are by the keys of these workers, until they have the parameters: the transfer from this host to theirs, or
    ``None`` for a worker that is here.  `there_at` is when the parameters have come here, once that is known.
    """

    host: str
    fetched: list[Leg]
    legs: dict[int, Leg | None]
    end: float
    there_at: float | None = None

    def go_on(self, state: NetworkState, now: float) -> None:
        there = max([now, *(leg.go_on(state, leg.may_go_on(now)) for leg in self.fetched)])
        self.end = max([there, *(leg.go_on(state, there) for leg in self.handed_on)])

    def host_of(self, key: int) -> str:
        leg = self.legs[key]
        return self.host if leg is None else leg.hosts[-1]

    @property
    def handed_on(self) -> list[Leg]:
        return [leg for leg in self.legs.values() if leg is not None]

    @property
    def late(self) -> bool:
        return not any(leg.left for leg in (*self.fetched, *self.handed_on))


class Serving:
    """What is under way to workers."""

    def __init__(self) -> None:
        self._under_way: list[_Served] = []

    @property
    def hosts(self) -> Iterator[str]:
        """The hosts that something is under way to or from."""
        return (host for leg in self.legs for host in leg.hosts)

    @property
    def legs(self) -> Iterator[Leg]:
        """All that is or may be under way."""
        return (leg for one in self._under_way for leg in (*one.fetched, *one.handed_on))

    def running(self, now: float) -> list[Sighting]:
        """Return what servers and relays are known to send still, as if it ended now."""
        here = [one for one in self._under_way if None in one.legs.values()]
        sent = [seen for one in here for leg in one.fetched for seen in leg.until(now)]
        relayed = [(one.there_at, leg) for one in self._under_way for leg in one.handed_on if one.there_at is not None]
        return sent + [seen for there_at, leg in relayed for seen in leg.until(now, there_at)]

    @property
    def handed_on(self) -> Iterator[Leg]:
        """What relays and servers send by way of relays of which nobody knows whether it has come there."""
        for one in self._under_way:
            if one.there_at is None:
                yield from one.handed_on
            if None not in one.legs.values():
                yield from one.fetched

    def forget(self) -> None:
        """Expect nothing of what is under way."""
        self._under_way.clear()

    def overrun(self, state: NetworkState, now: float) -> None:
        """Take what was expected before now as gone; reserve for what should be there, and is not."""
        for one in self._under_way:
            for leg in (*one.fetched, *one.handed_on):
                leg.advance(now)
            if one.late:
                one.end = max([now, *(leg.overrun(state, now) for leg in one.fetched or one.handed_on)])

    def go_on(self, state: NetworkState, now: float) -> None:
        """Expect anew what else is under way, and reserve it."""
        for one in self._under_way:
            if not one.late:
                one.go_on(state, now)

    def host_of(self, key: int) -> str | None:
        """Return the host of a worker that something is under way to; ``None`` if nothing is."""
        found = self._find(key)
        return found.host_of(key) if found is not None else None

    def coming(self) -> Iterator[tuple[str, float]]:
        """Yield the host of each worker that something is under way to, and when it is expected there."""
        for one in self._under_way:
            there = max((leg.expected.end for leg in one.fetched), default=-math.inf)
            for key, leg in one.legs.items():
                yield one.host_of(key), there if leg is None else leg.expected.end

    def pulled(self, key: int, begin: float, end: float, servers: Parts) -> list[Sighting]:
        """Count what a worker was sent as there; return the transfers whose times are known by that."""
        found = self._find(key)
        if found is None:
            return []
        leg, seen = found.legs[key], list[Sighting]()
        if leg is not None and found.there_at is not None:
            whole = sum(size_bytes for _, size_bytes in servers)
            seen = [Sighting(found.host, leg.hosts[-1], whole, max(begin, found.there_at), end)]
        elif leg is None and found.there_at is None and found.fetched:
            seen = [Sighting(server, found.host, size_bytes, begin, end) for server, size_bytes in servers]
            found.there_at = end
        found.fetched.clear()
        self.settle(key)
        return seen

    def settle(self, key: int) -> None:
        """Expect nothing more for a worker."""
        found = self._find(key)
        if found is not None:
            del found.legs[key]
            if not found.legs:
                self._under_way.remove(found)

    def _find(self, key: int) -> _Served | None:
        return next((one for one in self._under_way if key in one.legs), None)

    def plan(
        self,
        waiting: Sequence[PullRequest],
        state: NetworkState,
        servers: Parts,
        relays: Sequence[str],
        *,
        now: float,
        tick_s: float,
    ) -> PullPlan:
        """Return who is sent the parameters before the next tick, once the servers have nothing else to send."""
        idle_at = max((_idle_at(state, server, now) for server, _ in servers), default=now)
        if now < idle_at < math.inf:
            return PullPlan((), min(idle_at, now + tick_s))
        granted: list[PullGrant] = []
        through: dict[int, _Served] = {}
        hosts = {one.key: one.host for one in waiting}
        for route in spread(waiting, state, servers, relays, now):
            if now + tick_s <= route.begin < math.inf:
                continue
            if route.relay is None:
                served = self._send(state, servers, hosts[route.key], now)
                served.legs[route.key] = None
                granted.append(PullGrant(route.key, None, served.end))
                continue
            relay = relays[route.relay]
            if route.relay not in through:
                through[route.relay] = self._send(state, servers, relay, now)
            served = through[route.relay]
            there = max([now, *(leg.expected.end for leg in served.fetched)])
            end = there
            served.legs[route.key] = None
            if hosts[route.key] != relay:
                leg = _sent(state, relay, hosts[route.key], sum(size_bytes for _, size_bytes in servers), there)
                served.legs[route.key], end = leg, leg.expected.end
                served.end = max(served.end, end)
            granted.append(PullGrant(route.key, relay, end))
        return PullPlan(tuple(granted), now + tick_s)

    def _send(self, state: NetworkState, servers: Parts, host: str, now: float) -> _Served:
        legs = [_sent(state, server, host, size_bytes, now) for server, size_bytes in servers]
        served = _Served(host, legs, {}, max([now, *(leg.expected.end for leg in legs)]))
        self._under_way.append(served)
        return served


def _sent(state: NetworkState, sender: str, receiver: str, size_bytes: float, begin: float) -> Leg:
    transfer = state.transfer(sender, [(receiver, size_bytes)], begin)
    state.reserve(transfer)
    return Leg({receiver: size_bytes}, transfer)


def _idle_at(state: NetworkState, server: str, now: float) -> float:
    """Return from when on the server's host has anything left to send with; infinity where it never has."""
    out = state[server].out.since(now)
    return next((max(moment, now) for moment, rate in zip(out.times, out.rates, strict=True) if rate > 0), math.inf)
