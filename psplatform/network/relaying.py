"""Which workers get new parameters through a relay: MLfabric's tree of distributors (section 5.4).

It is the grouping of gradients run backwards: where an aggregator collects from its group and sends one sum on, a relay
gets the parameters once and hands them to its group; the group that would be summed last is served first.

Differences from the paper: how many workers are served by no relay is searched as for aggregators; a worker on the host
of a relay that is used gets the parameters from it; what a relay would hand on last is sent by the servers instead,
where that is no later, because the relay's host has a gradient to send as well; and where the tree turns out not to be
faster, no relay is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from psplatform.core.transfers import Offer, PullRequest
from psplatform.network.grouping import Grouped, group
from psplatform.network.ordering import order
from psplatform.network.state import NetworkState, Parts, Transfer

_SAME: Final = 1 + 1e-9
"""Times that differ by less are the same."""


@dataclass(frozen=True, slots=True)
class Route:
    """How a worker gets the parameters.

    Attributes
    ----------
    key
        As in the request.
    relay
        The number of the relay's host among those that were given; ``None`` for straight from the servers.
    begin, end
        When the servers begin to send what it gets, to it or to its relay, and when all of it is there, seconds.
    """

    key: int
    relay: int | None
    begin: float
    end: float


def spread(
    waiting: Sequence[PullRequest], state: NetworkState, servers: Parts, relays: Sequence[str], now: float
) -> tuple[Route, ...]:
    """Return the routes by which the last worker has the parameters as early as possible, in the order of sending.

    Workers that cannot be reached count for nothing.

    Parameters
    ----------
    servers
        Their hosts, with the bytes that each of them sends to a worker.
    relays
        Hosts that may hand parameters on.
    """
    offers = [Offer(one.key, one.host) for one in waiting]
    mirrored = state.mirrored()
    ordered = order(offers, mirrored, servers, now)
    grouped = group(ordered, relays)
    tree = _without_needless(partial(_forwards, grouped, state, servers, relays, now), now)
    straight = _forwards(group(ordered, ()), state, servers, (), now, frozenset())
    return tree if _took(tree, now) * _SAME < _took(straight, now) else straight


def _took(routes: Sequence[Route], now: float) -> float:
    """Return the seconds until all have the parameters."""
    return max((one.end for one in routes if one.end < math.inf), default=now) - now


def _without_needless(forwards: Callable[[frozenset[int]], tuple[Route, ...]], now: float) -> tuple[Route, ...]:
    """Return the routes on which servers send what relays would hand on last, as long as that makes nothing later."""
    straight = frozenset[int]()
    tree = forwards(straight)
    while relayed := [one for one in tree if one.relay is not None and one.end < math.inf]:
        straight |= {max(relayed, key=lambda one: one.end).key}
        other = forwards(straight)
        if _took(other, now) > _took(tree, now) * _SAME:
            break
        tree = other
    return tree


def _forwards(
    grouped: Grouped, state: NetworkState, servers: Parts, relays: Sequence[str], now: float, straight: frozenset[int]
) -> tuple[Route, ...]:
    """Return the routes by the groups of an order; the keys in `straight` come last, and from the servers."""
    state, routes = state.copy(), list[Route]()
    whole = sum(size_bytes for _, size_bytes in servers)
    used = {relays[one.aggregator]: one.aggregator for one in grouped.groups if one.aggregator is not None}
    # Workers that a relay has beside it go with the relay, whatever group they are in.
    beside: dict[int, list[Offer]] = {}
    last: list[Offer] = []
    for one in grouped.groups:
        for offer, _ in one.members:
            if one.aggregator is None and offer.host in used:
                beside.setdefault(used[offer.host], []).append(offer)
    for one in reversed(grouped.groups):
        members = [offer for offer, _ in reversed(one.members)]
        if one.aggregator is None:
            (offer,) = members
            if offer.host not in used:
                routes.append(Route(offer.key, None, *_fetch(state, servers, offer.host, now)))
            continue
        relay = relays[one.aggregator]
        begin, there = _fetch(state, servers, relay, now)
        for offer in [*beside.pop(one.aggregator, ()), *members]:
            if offer.key in straight:
                last.append(offer)
                continue
            handed_on = _send(state, relay, offer.host, whole, there)
            routes.append(Route(offer.key, one.aggregator, begin, handed_on.end))
    routes += [Route(one.key, None, *_fetch(state, servers, one.host, now)) for one in last]
    return tuple(routes)


def _fetch(state: NetworkState, servers: Parts, host: str, now: float) -> tuple[float, float]:
    """Reserve what every server sends to a host; return when the first begins, and when all of it is there."""
    sent = [_send(state, server, host, size_bytes, now) for server, size_bytes in servers]
    return min((one.begin for one in sent), default=now), max((one.end for one in sent), default=now)


def _send(state: NetworkState, sender: str, receiver: str, size_bytes: float, begin: float) -> Transfer:
    transfer = state.transfer(sender, [(receiver, size_bytes)], begin)
    state.reserve(transfer)
    return transfer
