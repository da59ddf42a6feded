"""The order of gradients and what is dropped: MLfabric's Algorithm 2, equal to a naive form of it."""

from __future__ import annotations

import math
import random

import pytest
from fabric_cases import drawn, equal, keys, network
from fabric_reference import Link, Links
from fabric_reference import order as naive_order

from psplatform.core.transfers import Offer
from psplatform.network import ordering
from psplatform.network.ordering import order
from psplatform.network.rates import Rates
from psplatform.network.state import Interface, NetworkState


def test_a_slow_gradient_that_must_go_first_is_dropped_for_the_fast_one_behind_it() -> None:
    """Figure 5 of the paper: g1 would take 10 s, g2 behind it 1.1 s; g1 is dropped, and g2 takes 1 s."""
    state = network({"slow": (10.0, 10.0), "fast": (1000.0, 1000.0), "s": (100.0, 100.0)})
    offers = [Offer(1, "slow", 1), Offer(2, "fast", 5)]
    found = order(offers, state, [("s", 100.0)], now=0.0)
    assert (keys(found.kept), keys(found.dropped)) == ([2], [1])
    assert [one.end for one in found.transfers] == [1.0]


def test_without_deadlines_the_shortest_goes_first() -> None:
    state = network({"a": (1.0, 1.0), "b": (4.0, 4.0), "c": (2.0, 2.0), "s": (8.0, 8.0)})
    found = order([Offer(number, host) for number, host in enumerate("abc")], state, [("s", 8.0)], now=0.0)
    assert keys(found.kept) == [1, 2, 0]
    assert [one.end for one in found.transfers] == [2.0, 4.0, 8.0]


def test_equal_ones_go_in_turn_and_of_one_host_by_deadline() -> None:
    offers = [Offer(0, "h1", 9), Offer(1, "h0", 8), Offer(2, "h1", 7), Offer(3, "h0")]
    found = order(offers, equal(2), [("s", 1.0)], now=0.0)
    assert keys(found.kept) == [2, 1, 0, 3]


def test_a_deadline_that_has_passed_is_dropped_and_the_printed_algorithm_lets_it_slip_through() -> None:
    offers = [Offer(0, "h0", 0), Offer(1, "h1", 5)]
    assert keys(order(offers, equal(2), [("s", 1.0)], 0.0).dropped) == [0]
    assert keys(order(offers, equal(2), [("s", 1.0)], 0.0, strict_paper=True).kept) == [0, 1]


def test_of_two_with_one_deadline_both_are_sent_in_time_if_both_can_be() -> None:
    """Three equal hosts, the last two due at 2: they go first.  Printed, the last of them goes third, too late."""
    offers = [Offer(0, "h0"), Offer(1, "h1", 2), Offer(2, "h2", 2)]
    assert keys(order(offers, equal(3), [("s", 1.0)], 0.0).kept) == [1, 2, 0]
    assert keys(order(offers, equal(3), [("s", 1.0)], 0.0, strict_paper=True).kept) == [0, 1, 2]


def test_of_more_with_one_deadline_than_can_meet_it_the_slowest_is_dropped() -> None:
    state = network({"a": (1.0, 1.0), "b": (2.0, 2.0), "c": (4.0, 4.0), "s": (4.0, 4.0)})
    offers = [Offer(number, host, 2) for number, host in enumerate("abc")]
    found = order(offers, state, [("s", 4.0)], now=0.0)
    assert (keys(found.kept), keys(found.dropped)) == ([2, 1], [0])


def test_dropped_ones_hold_no_position() -> None:
    """Two are dropped because they are late; the one due at 1 is the first that is kept."""
    offers = [Offer(0, "h0", -3), Offer(1, "h0", 0), Offer(2, "h1", 1)]
    found = order(offers, equal(2), [("s", 1.0)], now=0.0)
    assert (keys(found.kept), keys(found.dropped)) == ([2], [0, 1])


def test_what_cannot_get_through_is_dropped_under_a_deadline_and_kept_last_without_one() -> None:
    state = network({"dead": (0.0, 1.0), "h": (1.0, 1.0), "s": (1.0, 1.0)})
    offers = [Offer(0, "dead", 9), Offer(1, "dead"), Offer(2, "h", 9)]
    found = order(offers, state, [("s", 1.0)], now=0.0)
    assert (keys(found.kept), keys(found.dropped)) == ([2, 1], [0])
    assert [one.end for one in found.transfers] == [1.0, math.inf]


def test_a_dead_server_drops_everything_that_has_a_deadline_and_hangs_nothing() -> None:
    state = network({"h": (1.0, 1.0), "s": (0.0, 0.0)})
    found = order([Offer(0, "h", 1), Offer(1, "h", 7), Offer(2, "h")], state, [("s", 1.0)], now=0.0)
    assert (keys(found.kept), keys(found.dropped)) == ([2], [0, 1])


def test_a_gradient_on_the_servers_own_host_is_there_at_once() -> None:
    found = order([Offer(0, "h0"), Offer(1, "s")], equal(1), [("s", 1.0)], now=2.0)
    assert [(one.key, transfer.end) for one, transfer in zip(found.kept, found.transfers, strict=True)] == [
        (1, 2.0),
        (0, 3.0),
    ]


def test_without_offers_nothing_is_kept_or_dropped() -> None:
    found = order([], equal(1), [("s", 1.0)], now=0.0)
    assert (found.kept, found.transfers, found.dropped) == ((), (), ())


def test_the_state_that_was_given_stays_as_it_is() -> None:
    state = equal(2)
    order([Offer(0, "h0"), Offer(1, "h1")], state, [("s", 1.0)], now=0.0)
    assert state["s"].into == Rates.steady(1.0)


def mean_end(ends: list[float]) -> float:
    return sum(ends) / len(ends)


@pytest.mark.parametrize("seed", range(100))
def test_into_a_server_that_is_the_bottleneck_the_mean_end_is_never_worse_than_first_come_first_served(
    seed: int,
) -> None:
    """Hosts that are busy for a while, each faster than the server."""
    rng = random.Random(seed)
    state = network(
        {**{f"h{number}": (rng.uniform(2, 9), 9.0) for number in range(6)}, "x": (9.0, 9.0), "s": (2.0, 2.0)}
    )
    for number in range(6):
        state.reserve(state.transfer(f"h{number}", [("x", rng.uniform(0, 20))], begin=0.0))
    offers = [Offer(key, f"h{rng.randrange(6)}") for key in range(12)]
    ours = [one.end for one in order(offers, state, [("s", 5.0)], now=0.0).transfers]
    assert mean_end(ours) <= mean_end(served_as_they_come(offers, state, 5.0)) + 1e-9, f"seed {seed}"


def test_beside_a_slow_host_the_shortest_first_can_be_worse_at_the_mean() -> None:
    """Not a fact of the paper: begun first, the slow one takes a tenth of the server and the fast one the rest."""
    state = network({"slow": (10.0, 10.0), "fast": (1000.0, 1000.0), "s": (100.0, 100.0)})
    offers = [Offer(1, "slow"), Offer(2, "fast")]
    ours = [one.end for one in order(offers, state, [("s", 100.0)], now=0.0).transfers]
    assert ours == [1.0, 11.0]
    assert served_as_they_come(offers, state, 100.0) == pytest.approx([10.0, 10 / 9])


def served_as_they_come(offers: list[Offer], state: NetworkState, size_bytes: float) -> list[float]:
    served, ends = state.copy(), []
    for one in offers:
        transfer = served.transfer(one.host, [("s", size_bytes)], begin=0.0)
        served.reserve(transfer)
        ends.append(transfer.end)
    return ends


@pytest.mark.parametrize("strict_paper", [False, True])
@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("block", range(8))
def test_the_order_is_that_of_the_naive_algorithm(block: int, servers: int, strict_paper: bool) -> None:
    """On 32 x 50 drawn networks: what is kept, when it arrives, and what is dropped."""
    for seed in range(50 * block, 50 * block + 50):
        compare(seed, servers, alike=False, strict_paper=strict_paper)


@pytest.mark.parametrize("few", [0, 16])
@pytest.mark.parametrize("block", range(8))
def test_it_is_so_where_interfaces_are_alike_and_however_transfers_are_computed(
    monkeypatch: pytest.MonkeyPatch, block: int, few: int
) -> None:
    """One by one, by kind of interface, or all together, as with more hosts than a few."""
    monkeypatch.setattr(ordering, "_FEW", few)
    for seed in range(50 * block, 50 * block + 50):
        compare(seed, 1, alike=True, strict_paper=bool(seed % 2))
        if few == 0:
            compare(seed, 1, alike=False, strict_paper=bool(seed % 2))


def compare(seed: int, servers: int, *, alike: bool, strict_paper: bool) -> None:
    state, links, offers, to = drawn(random.Random(f"{seed} {servers}"), servers=servers, alike=alike)
    found = order(offers, state, to, now=1.0, strict_paper=strict_paper)
    kept, ends, dropped = naive_order(offers, links, to, 1.0, strict=strict_paper)
    assert keys(found.kept) == kept, f"seed {seed}"
    assert [one.end for one in found.transfers] == pytest.approx(ends), f"seed {seed}"
    assert sorted(keys(found.dropped)) == sorted(dropped), f"seed {seed}"


@pytest.mark.parametrize("hosts", [5, 30])
@pytest.mark.parametrize("to", [[], [("s", 0.0)]])
def test_gradients_without_bytes_are_there_at_once(to: list[tuple[str, float]], hosts: int) -> None:
    offers = [Offer(number, f"h{number}", 2 * hosts) for number in range(hosts)]
    found = order(offers, equal(hosts), to, now=3.0)
    assert [one.end for one in found.transfers] == [3.0] * hosts


def test_with_two_servers_the_host_that_is_idle_later_may_still_be_the_first() -> None:
    """The second gradient of h1 is at both servers at 2.1 s, that of h0, which is idle first, at 10.4 s."""
    steady, into = Rates.steady(10.0), Rates((0.0, 2.0), (1.0, 1000.0))
    hosts = {host: Interface(steady, steady) for host in ("h0", "h1")}
    state = NetworkState(
        {**hosts, "s": Interface(steady, into), "t": Interface(steady, Rates((0.0, 0.3), (10.0, 0.01)))}
    )
    offers = [Offer(number, f"h{number % 2}") for number in range(4)]
    found = order(offers, state, [("s", 1.0), ("t", 1.0)], now=0.0)
    links = Links(
        {
            **{host: (Link([(0.0, 10.0)]), Link([(0.0, 10.0)])) for host in ("h0", "h1")},
            "s": (Link([(0.0, 10.0)]), Link([(0.0, 1.0), (2.0, 1000.0)])),
            "t": (Link([(0.0, 10.0)]), Link([(0.0, 10.0), (0.3, 0.01)])),
        }
    )
    assert keys(found.kept) == naive_order(offers, links, [("s", 1.0), ("t", 1.0)], 0.0)[0] == [0, 1, 3, 2]
