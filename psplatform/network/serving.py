"""When workers are sent the parameters, and through which relay: planned anew as often as gradients are.

Whoever waits while the servers are busy sending may get the parameters through a relay, together with others that wait.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from psplatform.core.transfers import PullGrant, PullPlan, PullRequest, patience_s
from psplatform.network.legs import Leg
from psplatform.network.relaying import spread
from psplatform.network.state import NetworkState, Parts


@dataclass(eq=False)
class _Served:
    """What servers send to one host, and what that hands on.

    With a `key`, a worker there asks for it, who says when it has it.
    """

    host: str
    key: int | None
    fetched: list[Leg]
    handed_on: list[Leg]
    end: float
    expires: float = math.inf

    def go_on(self, state: NetworkState, now: float) -> None:
        there = max([now, *(leg.go_on(state, leg.may_go_on(now)) for leg in self.fetched)])
        self.end = max([there, *(leg.go_on(state, there) for leg in self.handed_on)])

    @property
    def legs(self) -> list[Leg]:
        return [*self.fetched, *self.handed_on]

    @property
    def late(self) -> bool:
        return not any(leg.left for leg in self.legs)


class Serving:
    """What is under way to workers.

    Parameters
    ----------
    relays
        Hosts that may hand on.
    """

    def __init__(self, relays: Sequence[str]) -> None:
        self.relays = relays
        self._under_way: list[_Served] = []

    @property
    def hosts(self) -> Iterator[str]:
        """The hosts that something is under way to or from."""
        return (host for one in self._under_way for leg in one.legs for host in leg.hosts)

    def forget(self) -> None:
        """Expect nothing of what is under way."""
        self._under_way.clear()

    def overrun(self, state: NetworkState, now: float) -> None:
        """Take what was expected before now as gone; reserve for what should be there, and is not."""
        self._under_way = [one for one in self._under_way if now < (one.end if one.key is None else one.expires)]
        for one in self._under_way:
            for leg in one.legs:
                leg.advance(now)
            if one.late:
                one.end = max([now, *(leg.overrun(state, now) for leg in one.fetched)])

    def go_on(self, state: NetworkState, now: float) -> None:
        """Expect anew what else is under way, and reserve it."""
        for one in self._under_way:
            if not one.late:
                one.go_on(state, now)

    def pulled(self, key: int) -> str | None:
        """Count what came straight to a worker as there; return its host, if it was that."""
        found = next((one for one in self._under_way if one.key == key), None)
        if found is None:
            return None
        self._under_way.remove(found)
        return found.host

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
                served = self._send(state, servers, hosts[route.key], route.key, now)
                granted.append(PullGrant(route.key, None, served.end))
                continue
            relay = relays[route.relay]
            if route.relay not in through:
                through[route.relay] = self._send(state, servers, relay, None, now)
            served = through[route.relay]
            there = max([now, *(leg.expected.end for leg in served.fetched)])
            leg = _sent(state, relay, hosts[route.key], sum(size_bytes for _, size_bytes in servers), there)
            served.handed_on.append(leg)
            served.end = max(served.end, leg.expected.end)
            granted.append(PullGrant(route.key, relay, leg.expected.end))
        return PullPlan(tuple(granted), now + tick_s)

    def _send(self, state: NetworkState, servers: Parts, host: str, key: int | None, now: float) -> _Served:
        legs = [_sent(state, server, host, size_bytes, now) for server, size_bytes in servers]
        served = _Served(host, key, legs, [], max([now, *(leg.expected.end for leg in legs)]))
        served.expires = now + patience_s(served.end - now)
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
