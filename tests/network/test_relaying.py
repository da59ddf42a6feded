"""Which workers get new parameters through a relay."""

from __future__ import annotations

import math
import random

import pytest
from fabric_cases import drawn, equal, network

from psplatform.core.transfers import PullRequest
from psplatform.network.rates import Rates
from psplatform.network.relaying import spread
from psplatform.network.state import NetworkState, Parts


def straight(waiting: list[PullRequest], state: NetworkState, servers: Parts, now: float) -> float:
    """Return when the last one has everything, sent one after the other."""
    state, end = state.copy(), now
    for one in waiting:
        for server, size_bytes in servers:
            transfer = state.transfer(server, [(one.host, size_bytes)], now)
            state.reserve(transfer)
            end = max(end, transfer.end)
    return end


def of(*hosts: str) -> list[PullRequest]:
    return [PullRequest(number, host) for number, host in enumerate(hosts)]


def test_a_relay_hands_on_what_the_server_would_send_again_and_again() -> None:
    """Eight hosts at 1: straight takes 8 s.  The relay has it after 1 s and serves four, the server three."""
    waiting = of(*(f"h{number}" for number in range(8)))
    routes = {one.key: one for one in spread(waiting, equal(8), [("s", 1.0)], ["h0"], now=0.0)}
    assert max(one.end for one in routes.values()) <= 5.0
    assert {one.relay for one in routes.values()} == {None, 0}
    # The worker beside the relay has what the relay has.
    assert (routes[0].relay, routes[0].begin, routes[0].end) == (0, 0.0, 1.0)


def test_what_the_server_can_send_as_early_is_not_handed_on() -> None:
    """Four hosts at 1: the relay has it after 1 s, and hands on to one; to the last, the server is as early as it is.

    A relay that handed on to both would send its own gradient a second later.
    """
    waiting = of("h0", "h1", "h2", "h3")
    routes = spread(waiting, equal(4), [("s", 1.0)], ["h0"], now=0.0)
    assert max(one.end for one in routes) == 3.0
    assert sorted(one.relay is None for one in routes) == [False, False, True, True]


def test_one_worker_that_cannot_be_reached_does_not_keep_the_others_from_relays() -> None:
    state = network({**{f"h{number}": (1.0, 1.0) for number in range(8)}, "dead": (1.0, 0.0), "s": (1.0, 1.0)})
    routes = spread(of("dead", *(f"h{number}" for number in range(8))), state, [("s", 1.0)], ["h0"], now=0.0)
    assert max(one.end for one in routes if one.key > 0) <= 5.0


def test_three_relays_are_faster_than_one() -> None:
    waiting = of(*(f"h{number}" for number in range(24)))
    ends = [
        max(one.end for one in spread(waiting, equal(24), [("s", 1.0)], relays, now=0.0))
        for relays in ([], ["h0"], ["h0", "h1", "h2"])
    ]
    assert ends[0] == 24.0
    assert ends[0] > 1.7 * ends[1] > 1.7 * ends[2]


def test_a_server_that_is_faster_than_all_of_them_needs_no_relay() -> None:
    state = network({**{f"h{number}": (1.0, 1.0) for number in range(4)}, "s": (4.0, 4.0)})
    routes = spread(of("h0", "h1", "h2", "h3"), state, [("s", 1.0)], ["h0"], now=0.0)
    assert {(one.relay, one.end) for one in routes} == {(None, 1.0)}


def test_a_relay_that_cannot_be_reached_is_not_used() -> None:
    state = network({**{f"h{number}": (1.0, 1.0) for number in range(4)}, "r": (1.0, 0.0), "s": (1.0, 1.0)})
    routes = spread(of("h0", "h1", "h2", "h3"), state, [("s", 1.0)], ["r"], now=0.0)
    assert [one.relay for one in routes] == [None] * 4


def test_a_worker_that_cannot_be_reached_waits_alone() -> None:
    state = network({"h0": (1.0, 1.0), "dead": (1.0, 0.0), "s": (1.0, 1.0)})
    routes = {one.key: one.end for one in spread(of("dead", "h0"), state, [("s", 1.0)], ["h0"], now=0.0)}
    assert routes == {0: math.inf, 1: 1.0}


def test_without_waiting_workers_nothing_is_sent() -> None:
    assert spread([], equal(1), [("s", 1.0)], ["h0"], now=0.0) == ()


def test_the_state_that_was_given_stays_as_it_is() -> None:
    state = equal(4)
    spread(of("h0", "h1", "h2"), state, [("s", 1.0)], ["h0"], now=0.0)
    assert state["s"].out == Rates.steady(1.0)


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("seed", range(60))
def test_each_worker_is_served_once_and_never_later_than_straight_from_the_servers(seed: int, servers: int) -> None:
    state, _, offers, to = drawn(random.Random(seed), servers=servers)
    waiting = [PullRequest(one.key, one.host) for one in offers]
    relays = sorted({one.host for one in offers})[:2]
    routes = spread(waiting, state, to, relays, now=1.0)
    assert sorted(one.key for one in routes) == [one.key for one in waiting], f"seed {seed}"
    order = {one.key: one for one in waiting}
    last = max(one.end for one in routes)
    assert last <= straight([order[one.key] for one in routes], state, to, 1.0) + 1e-9, f"seed {seed}"
