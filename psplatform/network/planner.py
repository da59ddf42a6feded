"""Which offered gradients are sent now, by which way: everything that has not begun is planned anew each time.

A receding horizon: at each tick all offers are ordered and grouped at the newest rates, as if no others were to come;
what begins before the next tick is granted, and the rest is forgotten until then.  So no long reservation has to be
amended when rates change or a host is lost.  The state of the planner is what is under way, and that expires.

Differences from the paper (MLfabric, section 5), which plans a batch of updates each 100 ms and keeps to it: plans are
made anew, and an offer whose way is idle need not wait for the tick.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from psplatform.network.estimates import Estimates
from psplatform.network.grouping import Group, group
from psplatform.network.ordering import Offer, order
from psplatform.network.state import NetworkState, Parts, Transfer

_ALONE: Final = 1.05
"""A transfer that takes no longer than so many times what it would take alone has an idle way."""

_OVERDUE: Final = 4.0
"""What has not arrived in so many times the seconds that were expected, and `_GRACE_S`, is under way no longer."""

_GRACE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Grant:
    """Gradients that are sent now: one straight to the servers, or some to an aggregator that sends their sum on.

    Attributes
    ----------
    keys
        Of the offers, in the order in which they are summed.
    aggregator
        The number of the aggregator's host; ``None`` for straight.
    end
        When it is expected at the servers.
    """

    keys: tuple[int, ...]
    aggregator: int | None
    end: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What is sent now, what is dropped where it lies, and what waits for the next plan."""

    granted: tuple[Grant, ...]
    dropped: tuple[int, ...]
    waiting: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _UnderWay:
    """The transfers of a grant, as they were expected when it was made."""

    grant: Grant
    since: float
    transfers: tuple[Transfer, ...]


class FabricPlanner:
    """Plans on what the estimates say and what it has granted itself.

    Parameters
    ----------
    servers
        Their hosts, with the bytes of a gradient for each.
    aggregators
        Hosts that may sum what others send, in the order in which they are used.
    estimates
        What interfaces can carry.
    tick_s
        Seconds until the next plan.
    """

    def __init__(self, servers: Parts, aggregators: Sequence[str], estimates: Estimates, tick_s: float) -> None:
        self._servers, self._aggregators = servers, aggregators
        self._estimates, self._tick_s = estimates, tick_s
        self._under_way: dict[int, _UnderWay] = {}

    def plan(self, offers: Sequence[Offer], now: float) -> Plan:
        """Return what is sent before the next tick.

        Deadlines count from the next update; those that are under way come before what is granted now.
        """
        state = self._state(offers, now)
        ahead = self._updates_under_way()
        due = [one if one.deadline is None else replace(one, deadline=one.deadline - ahead) for one in offers]
        ordered = order(due, state, self._servers, now)
        granted, waiting = [], []
        for one in group(ordered, self._aggregators).groups:
            begins = min(transfer.begin for _, transfer in one.members)
            if begins < now + self._tick_s or math.isinf(begins):
                # What gets nowhere at the known rates is sent as well: they may be wrong.
                granted.append(self._grant(one, now))
            else:
                waiting += [offer.key for offer, _ in one.members]
        return Plan(tuple(granted), tuple(one.key for one in ordered.dropped), tuple(waiting))

    def grant_at_once(self, offer: Offer, now: float) -> Grant | float:
        """Return the grant of an offer whose way is idle; else when it may be, and infinity if only a plan can tell."""
        transfer = self._state([offer], now).transfer(offer.host, self._servers, now)
        if math.isinf(transfer.end) or (offer.deadline is not None and offer.deadline <= self._updates_under_way()):
            return math.inf
        alone = self._rates([offer.host], now).transfer(offer.host, self._servers, now)
        if transfer.end - now <= _ALONE * (alone.end - now):
            return self._grant(Group(None, ((offer, transfer),), transfer), now)
        return transfer.begin if transfer.begin > now else transfer.end

    def settle(self, key: int) -> None:
        """Forget what is under way of a gradient, because it has arrived or is lost, and of those in its sum."""
        found = self._under_way.pop(key, None)
        for other in found.grant.keys if found is not None else ():
            self._under_way.pop(other, None)

    def _grant(self, one: Group, now: float) -> Grant:
        grant = Grant(tuple(offer.key for offer, _ in one.members), one.aggregator, one.forward.end)
        transfers = [transfer for _, transfer in one.members] if one.aggregator is not None else []
        under_way = _UnderWay(grant, now, (*transfers, one.forward))
        self._under_way.update(dict.fromkeys(grant.keys, under_way))
        return grant

    def _updates_under_way(self) -> int:
        return len(self._under_way)

    def _rates(self, hosts: Sequence[str], now: float) -> NetworkState:
        servers = [server for server, _ in self._servers]
        return self._estimates.state(dict.fromkeys([*servers, *self._aggregators, *hosts]), now)

    def _state(self, offers: Sequence[Offer], now: float) -> NetworkState:
        """Return what is left beside what is under way, at the newest rates."""
        for key, one in list(self._under_way.items()):
            expected_s = one.grant.end - one.since
            if now > one.since + _OVERDUE * expected_s + _GRACE_S:
                del self._under_way[key]
        flights = list({id(one): one for one in self._under_way.values()}.values())
        senders = [transfer.sender for one in flights for transfer in one.transfers]
        state = self._rates([*senders, *(one.host for one in offers)], now)
        for one in flights:
            for transfer in one.transfers:
                left = [(receiver, _bytes_after(now, taken)) for receiver, taken in transfer.parts]
                rest = state.transfer(transfer.sender, left, max(now, transfer.begin))
                if math.isfinite(rest.end):
                    state.reserve(rest)
        return state


def _bytes_after(moment: float, taken: Sequence[tuple[float, float, float]]) -> float:
    """Return the bytes of the pieces of a transfer that were expected to go after a moment."""
    return sum(max(0.0, end - max(begin, moment)) * rate for begin, end, rate in taken)
