"""Which offered gradients are sent now, by which way: everything that has not begun is planned anew each time.

A receding horizon: at each tick all offers are ordered and grouped at the newest rates, as if no others were to come;
what begins before the next tick is granted, and the rest is forgotten until then.  So no long reservation has to be
amended when rates change or a host is lost.  The state of the planner is what is under way, until it is told what
became of that: what is only late keeps interfaces busy.

Differences from the paper (MLfabric, section 5), which plans a batch of updates each 100 ms and keeps to it: plans are
made anew, and an offer whose way is idle need not wait for the tick.  A group is granted as a whole once its first
member begins, because a sum must know its members; each of them has its own time to begin.  What could be summed with
others that are expected soon may be held (`holding`).

A slow host whose gradients have no deadlines may wait for as long as faster ones keep the servers busy.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product, repeat
from typing import Final, Protocol

from psplatform.core.protocol.member_messages import Carried
from psplatform.core.transfers import Grant, Offer, PullPlan, PullRequest, TransferPlan
from psplatform.network.counters import Count, Sample
from psplatform.network.grouping import Group, group, with_neighbours
from psplatform.network.holding import Holding
from psplatform.network.legs import Leg
from psplatform.network.ordering import Ordered, order
from psplatform.network.serving import Serving
from psplatform.network.sightings import Sighting
from psplatform.network.state import NetworkState, Parts

_ALONE: Final = 1.2
"""A transfer that takes no longer than so many times what it would take alone has an idle way."""


class Knowledge(Protocol):
    """What is known of rates."""

    def observe(self, seen: Sighting) -> None:
        """Learn from a transfer that has ended."""

    def count(self, count: Count, now: float, ways: Iterable[tuple[str, str]] = ()) -> None:
        """Learn from what an interface has carried lately; between those hosts transfers may be under way."""

    def state(
        self, hosts: Iterable[str], now: float, running: Iterable[Sighting] = (), beside: Iterable[Sighting] = ()
    ) -> NetworkState:
        """Return what the interfaces of these hosts can carry, with nothing reserved.

        `running` are transfers that have not ended, and `beside` others that may not have, as if they ended now.
        """


@dataclass(eq=False)
class _UnderWay:
    """A grant: the transfers to its aggregator, if it has one, and the one to the servers; and when it should end."""

    keys: tuple[int, ...]
    to_aggregator: list[Leg]
    to_servers: Leg
    end: float

    @property
    def granted(self) -> list[Leg]:
        """The transfer of each gradient: to the aggregator, or of the only one, to the servers."""
        return self.to_aggregator or [self.to_servers]

    def unsent(self, now: float) -> bool:
        """Whether nothing of it has begun."""
        return not any(leg.has_begun(now) for leg in self.granted)


class FabricPlanner:
    """Plans on what the estimates say and what it has granted itself.

    Parameters
    ----------
    servers
        Of each shard its server's host, with the bytes of a gradient for it.
    aggregators
        Hosts that may sum what others send, in the order in which they are used.
    estimates
        What interfaces can carry.
    tick_s
        Seconds until the next plan.
    relays
        Hosts that may hand parameters on.  Without any, workers pull whenever they go on.
    others
        So many others may do both: the first of those that are able to, where no server is.
    """

    def __init__(
        self,
        servers: Parts,
        aggregators: Sequence[str],
        estimates: Knowledge,
        tick_s: float,
        relays: Sequence[str] = (),
        *,
        others: int = 0,
    ) -> None:
        self._shards, self._servers = list(servers), _by_host(servers)
        self._aggregators = aggregators
        self._estimates, self.tick_s = estimates, tick_s
        self._under_way: dict[int, _UnderWay] = {}
        self._moved_at = -math.inf
        self._relays, self._others = relays, others
        self._serving = Serving()
        self._holding = Holding()

    @property
    def servers(self) -> Parts:
        """The host of each shard's server, with the bytes of a gradient's part for it."""
        return self._shards

    @property
    def sums(self) -> bool:
        """Whether there are aggregators."""
        return bool(self._aggregators or self._others)

    @property
    def relays(self) -> bool:
        """Whether it plans when workers pull, and through whom."""
        return bool(self._relays or self._others)

    def plan_pulls(self, waiting: Sequence[PullRequest], now: float, able: Collection[str] | None = None) -> PullPlan:
        """Return who of those that wait for parameters may be sent them now; of the relays those in `able`, or all."""
        relays = self._helpers(self._relays, able)
        state = self._state(waiting, now, relays)
        relays = _fastest_first(state, relays, now)
        return self._serving.plan(waiting, state, self._servers, relays, now=now, tick_s=self.tick_s)

    def pulled(self, key: int, begin: float, end: float) -> None:
        """Learn what interfaces can carry from parameters that a worker has got."""
        host = self._serving.host_of(key)
        if host is not None:
            self._holding.note_parameters(host, end)
        seen = self._serving.pulled(key, begin, end, self._servers)
        if begin >= self._moved_at:
            for one in seen:
                self._estimates.observe(one)

    def settle_pull(self, key: int) -> None:
        """Forget what is under way to a worker, because it is gone or does something else."""
        self._serving.settle(key)

    def plan(self, offers: Sequence[Offer], now: float, able: Collection[str] | None = None) -> TransferPlan:
        """Return what is sent before the next tick; offers that are under way are left out.

        Of the aggregators those in `able` sum, or all.  Deadlines count from the next update.  What is under way comes
        before an offer if it arrives earlier.  Offers that must go `alone` have the places that they would have if all
        went straight, and the others are summed beside them.
        """
        offers = [one for one in offers if one.key not in self._under_way]
        for offer in offers:
            self._holding.note_offer(offer, now)
        self._holding.forget_others(offers)
        helpers = self._helpers(self._aggregators, able)
        state = self._state(offers, now, [*helpers, *self._holding.hosts])
        ordered = order(self._due(offers, state, now), state, self._servers, now)
        lone, state = _lone(ordered, state)
        if lone.kept or lone.dropped:
            ends = [one.end for one in lone.transfers]
            others = self._due([one for one in offers if not one.alone], state, now, ends)
            ordered = order(others, state, self._servers, now)
        aggregators = _fastest_first(state, helpers, now)
        self._holding.note_rates(state, aggregators, self._servers)
        summed = with_neighbours(group(ordered, aggregators), aggregators, now)
        granted, waiting = list[Grant](), []
        for one in (*group(lone, ()).groups, *summed.groups):
            ahead = sum(len(each.keys) for each in granted if each.end <= one.forward.end)
            if math.isinf(one.begin) or (one.begin < now + self.tick_s and not self._is_held(one, state, ahead, now)):
                # What gets nowhere at the known rates is sent as well: they may be wrong.
                aggregator = None if one.aggregator is None else aggregators[one.aggregator]
                granted.append(self._grant(one, aggregator, now))
            else:
                waiting += [offer.key for offer, _ in one.members]
        dropped = tuple(one.key for one in (*lone.dropped, *ordered.dropped))
        return TransferPlan(tuple(granted), dropped, tuple(waiting))

    def grant_at_once(self, offer: Offer, now: float, waiting: Iterable[Offer] = ()) -> Grant | float:
        """Return the grant of an offer whose way is idle; else when it may be, and infinity if only a plan can tell.

        Parameters
        ----------
        waiting
            The other offers: none of them may become late because of this one.  Looked at only if the way is idle.
        """
        self._holding.note_offer(offer, now)
        state = self._state([offer], now)
        transfer = state.transfer(offer.host, self._servers, now)
        if not transfer.parts and offer.key not in self._under_way and math.isfinite(transfer.end):
            return self._grant(Group(None, ((offer, transfer),), transfer), None, now)  # all servers are on its host
        late = offer.deadline is not None and offer.deadline <= self._ahead(transfer.end)
        if offer.key in self._under_way or math.isinf(transfer.end) or late:
            return math.inf
        if transfer.end > now:
            alone = self._rates([offer.host], now).transfer(offer.host, self._servers, now)
            if transfer.end - now > _ALONE * (alone.end - now):
                ends = [one.end for one in self._under_way.values() if one.end > now]
                return transfer.begin if transfer.begin > now else min(ends, default=math.inf)
            others = [one for one in waiting if one.key != offer.key]
            coming = self._serving.coming()
            if not offer.alone and self._holding.may_hold(transfer.end - now, others, coming, now):
                return math.inf
            state = self._state(others, now)
            due = [(one.deadline, self._end(one, state, now)) for one in others if one.deadline is not None]
            if any(deadline <= self._ahead(end) + 1 for deadline, end in due):
                return math.inf
        return self._grant(Group(None, ((offer, transfer),), transfer), None, now)

    def begins(self, now: float) -> dict[int, tuple[float, float]]:
        """Return when the gradients may be sent that were granted and begin later, by key, and are expected to end.

        None begins later than it was to.
        """
        legs = [(one, key, leg) for one in self._flights for key, leg in zip(one.keys, one.granted, strict=True)]
        unsent = [(one, key, leg) for one, key, leg in legs if leg.may_begin(now)]
        if unsent:
            self._state([], now)
        for one in dict.fromkeys(one for one, _, _ in unsent):
            one.to_servers.begin()  # what is sent when all of it is collected
        return {key: (leg.begin(), one.end) for one, key, leg in unsent}

    def arrive(self, key: int, host: str, begin: float, end: float) -> None:
        """Learn what interfaces can carry from a gradient, or a sum, that went to the servers, and settle it."""
        if begin >= self._moved_at:
            for receiver, size_bytes in self._servers:
                self._estimates.observe(Sighting(host, receiver, size_bytes, begin, end))
        self.settle(key)

    def seen(self, sender: str, receiver: str, begin: float, end: float) -> None:
        """Learn what interfaces can carry from a gradient that has come to an aggregator."""
        whole = sum(size_bytes for _, size_bytes in self._servers)
        self._estimates.observe(Sighting(sender, receiver, whole, begin, end))

    def count(self, count: Carried, now: float) -> tuple[float, float]:
        """Learn what the interface of a host has carried until now; return what it is believed to carry out and in."""
        legs = [leg for one in self._flights for leg in (*one.to_aggregator, one.to_servers)]
        ways = [way for leg in (*legs, *self._serving.legs) for way in leg.ways]
        # A worker that has waited too long for its relay has asked the servers.
        served = dict.fromkeys(to for leg in self._serving.legs for _, to in leg.ways)
        ways += [way for way in product([server for server, _ in self._servers], served) if way not in ways]
        samples = zip(count.seconds, count.out, count.into, count.waiting or repeat(None), strict=False)
        self._estimates.count(Count(count.source, count.host, tuple(Sample(*one) for one in samples)), now, ways)
        believed = self._rates([count.host], now)[count.host]
        return believed.out.at(now), believed.into.at(now)

    def settle(self, key: int) -> None:
        """Forget what is under way of a gradient, because it has arrived or is lost, and of those in its sum."""
        found = self._under_way.get(key)
        for other in found.keys if found is not None else ():
            if self._under_way.get(other) is found:
                del self._under_way[other]

    def serve(self, shard: int, host: str, now: float) -> None:
        """Plan what goes to a shard for that host from now on.

        What is under way is sent there anew, so that nobody can say when it ends, and its time tells of no rate.
        """
        self._shards[shard] = host, self._shards[shard][1]
        self._servers = _by_host(self._shards)
        self._under_way.clear()
        self._serving.forget()
        self._moved_at = now

    @property
    def _flights(self) -> list[_UnderWay]:
        """What is under way, in the order in which it was granted."""
        return list(dict.fromkeys(self._under_way.values()))

    def _grant(self, one: Group, aggregator: str | None, now: float) -> Grant:
        keys = tuple(offer.key for offer, _ in one.members)
        begins = tuple(now if math.isinf(transfer.begin) else transfer.begin for _, transfer in one.members)
        end = one.forward.end
        to_aggregator = []
        if aggregator is not None:
            whole = {aggregator: sum(size_bytes for _, size_bytes in self._servers)}
            to_aggregator = [Leg(whole, transfer) for _, transfer in one.members]
        under_way = _UnderWay(keys, to_aggregator, Leg(dict(self._servers), one.forward), end)
        self._under_way.update(dict.fromkeys(keys, under_way))
        return Grant(keys, begins, aggregator, end)

    def _is_held(self, one: Group, state: NetworkState, ahead: int, now: float) -> bool:
        """Whether what could begin before the next tick is left to that."""
        return self._holding.holds(one, state, self._serving.coming(), ahead, now=now, tick_s=self.tick_s)

    def _due(
        self, offers: Iterable[Offer], state: NetworkState, now: float, before: Collection[float] = ()
    ) -> list[Offer]:
        """Return the offers, their deadlines counted from what arrives first: what is under way, and ends `before`."""

        def ahead(one: Offer) -> int:
            end = self._end(one, state, now)
            return self._ahead(end) + sum(each <= end for each in before)

        return [one if one.deadline is None else replace(one, deadline=one.deadline - ahead(one)) for one in offers]

    def _end(self, offer: Offer, state: NetworkState, now: float) -> float:
        """Return when an offer that is sent now, straight, is at the servers."""
        return state.transfer(offer.host, self._servers, now).end

    def _ahead(self, end: float) -> int:
        """Return how many updates under way are there by then."""
        return sum(one.end <= end for one in self._under_way.values())

    def _helpers(self, listed: Sequence[str], able: Collection[str] | None) -> list[str]:
        """Return the hosts that help now: of those listed the able ones, and of the able ones so many others."""
        servers = [server for server, _ in self._servers]
        others = (host for host in able or () if host not in servers and host not in listed)
        return [*(host for host in listed if able is None or host in able), *islice(others, self._others)]

    def _rates(self, hosts: Sequence[str], now: float) -> NetworkState:
        servers = [server for server, _ in self._servers]
        flights = self._flights
        running = [seen for one in flights if not one.to_aggregator for seen in one.to_servers.until(now)]
        running += self._serving.running(now)
        summed = [leg for one in flights if one.to_aggregator for leg in (*one.to_aggregator, one.to_servers)]
        beside = [seen for leg in (*summed, *self._serving.handed_on) for seen in leg.until(now)]
        return self._estimates.state(dict.fromkeys([*servers, *hosts]), now, running, beside)

    def _state(self, asked: Sequence[Offer | PullRequest], now: float, helpers: Sequence[str] = ()) -> NetworkState:
        """Return what is left beside what is under way, which is expected anew at the newest rates."""
        # That of which something has begun has its interfaces already.
        flights = sorted(self._flights, key=lambda one: one.unsent(now))
        legs = [leg for one in flights for leg in (*one.to_aggregator, one.to_servers)]
        hosts = [*(host for leg in legs for host in leg.hosts), *self._serving.hosts, *(one.host for one in asked)]
        state = self._rates([*hosts, *helpers], now)
        for leg in legs:
            leg.advance(now)
        late = [one for one in flights if not any(leg.left for leg in (*one.to_aggregator, one.to_servers))]
        for one in late:
            one.end = one.to_servers.overrun(state, now)
        self._serving.overrun(state, now)
        for one in flights:
            if one in late:
                continue
            collected = max([now, *(leg.go_on(state, leg.may_go_on(now)) for leg in one.to_aggregator)])
            one.end = one.to_servers.go_on(state, collected if one.to_aggregator else one.to_servers.may_go_on(now))
        self._serving.go_on(state, now)
        return state


def _lone(ordered: Ordered, state: NetworkState) -> tuple[Ordered, NetworkState]:
    """Return the offers of an order that must go alone, at the times that they have there, and what is left beside."""
    chosen = [(one, transfer) for one, transfer in zip(ordered.kept, ordered.transfers, strict=True) if one.alone]
    left = state.copy()
    for _, transfer in chosen:
        left.reserve(transfer)
    kept, transfers = tuple(one for one, _ in chosen), tuple(transfer for _, transfer in chosen)
    dropped = tuple(one for one in ordered.dropped if one.alone)
    return Ordered(kept, transfers, dropped, (left,), ordered.to, ordered.now), left


def _fastest_first(state: NetworkState, hosts: Sequence[str], now: float) -> list[str]:
    """Return the hosts, those before that have most left of their slower direction."""
    left = {host: min(state[host].out.at(now), state[host].into.at(now)) for host in hosts}
    return sorted(hosts, key=lambda host: -left[host])


def _by_host(shards: Parts) -> list[tuple[str, float]]:
    """Return the hosts of the shards' servers, with the bytes for all that are there."""
    found: dict[str, float] = {}
    for host, size_bytes in shards:
        found[host] = found.get(host, 0.0) + size_bytes
    return list(found.items())
