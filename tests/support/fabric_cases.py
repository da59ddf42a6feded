"""Networks and offers for the tests of the planner, drawn or plain."""

from __future__ import annotations

import random
from collections.abc import Iterable

from fabric_reference import Link, Links

from psplatform.core.transfers import Offer
from psplatform.network.rates import Rates
from psplatform.network.state import Interface, NetworkState


def network(rates: dict[str, tuple[float, float]]) -> NetworkState:
    """Return steady interfaces: outgoing and incoming rate by host."""
    return NetworkState({host: Interface(*map(Rates.steady, both)) for host, both in rates.items()})


def equal(hosts: int, rate: float = 1.0) -> NetworkState:
    return network({**{f"h{number}": (rate, rate) for number in range(hosts)}, "s": (rate, rate)})


def keys(offers: Iterable[Offer]) -> list[int]:
    return [one.key for one in offers]


Drawn = tuple[NetworkState, Links, list[Offer], list[tuple[str, float]]]


def drawn(rng: random.Random, *, servers: int, alike: bool = False) -> Drawn:
    """Return a network whose interfaces carry something already, the same for the reference, and offers on it.

    Where interfaces are `alike`, everything is a small multiple of a power of two: many transfers end together, many
    fit exactly, and no sum is rounded.
    """
    hosts = [f"h{number}" for number in range(rng.randrange(1, 7))]
    names = [*hosts, *(f"s{number}" for number in range(servers))]
    links = Links({host: (Link(own_rates(rng, alike)), Link(own_rates(rng, alike))) for host in names})
    state = NetworkState(
        {
            host: Interface(*(Rates(*map(tuple, zip(*one.own, strict=True))) for one in both))
            for host, both in links.hosts.items()
        }
    )
    for _ in range(rng.randrange(4)):
        sender, receiver = rng.choice(hosts), rng.choice(names)
        size = float(rng.choice((2, 4, 8))) if alike else rng.uniform(0.5, 10)
        if sender != receiver:
            state.reserve(state.transfer(sender, [(receiver, size)], begin=0.0))
            links.send(sender, receiver, size, 0.0, reserve=True)
    count = rng.randrange(1, 14)
    bound = rng.choice((None, 3, count, 2 * count))
    offers = [
        Offer(key, rng.choice(hosts), None if bound is None or rng.random() < 0.1 else rng.randrange(-1, bound + 1))
        for key in range(count)
    ]
    return (
        state,
        links,
        offers,
        [(f"s{number}", float(rng.choice((2, 4))) if alike else rng.uniform(1, 8)) for number in range(servers)],
    )


def own_rates(rng: random.Random, alike: bool) -> list[tuple[float, float]]:
    """Return a steady rate for most, and steps for some; few are dead."""
    if rng.random() < 0.05:
        return [(0.0, 0.0)]
    if alike:
        return [(0.0, 4.0)] if rng.random() < 0.6 else [(0.0, 4.0), (3.0, 0.0), (4.0, float(rng.choice((2, 4, 8))))]
    moments = [0.0] if rng.random() < 0.6 else [0.0, rng.uniform(0, 3), rng.uniform(3, 9)]
    return [(moment, rng.uniform(0.5, 10)) for moment in moments]
