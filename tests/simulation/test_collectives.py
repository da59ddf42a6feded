"""How long ring and tree all-reduce take: closed forms, changing rates, and equal to integrating every step anew."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import pytest
from fabric_cases import network, own_rates
from fabric_reference import Link, Links

from psplatform.errors import ConfigurationError
from psplatform.network.rates import Rates
from psplatform.network.state import Interface, NetworkState
from psplatform.simulation.collectives import ring_all_reduce, tree_all_reduce

MEGABYTE = 1e6
GIGABIT = 1e9 / 8


def names(count: int) -> list[str]:
    return [f"h{number:02}" for number in range(count)]


def alike(count: int, rate: float) -> NetworkState:
    return network(dict.fromkeys(names(count), (rate, rate)))


@pytest.mark.parametrize(
    ("hosts", "seconds"),
    [
        (names(15) * 2, 2 * 29 / 30 * 100 * MEGABYTE / (10 * GIGABIT / 2)),
        (names(15), 2 * 14 / 15 * 100 * MEGABYTE / (10 * GIGABIT)),
        (sorted(names(15) * 2), 2 * 29 / 30 * 100 * MEGABYTE / (10 * GIGABIT)),
    ],
    ids=["flat and striped", "hosts sum first", "flat, ranks of a host side by side"],
)
def test_thirty_ranks_on_fifteen_hosts(hosts: list[str], seconds: float) -> None:
    """MLfabric's section 2: 100 MB at 10 Gb/s; its text says 320 ms flat and 160 ms with sums inside hosts first.

    The closed form 2 (n - 1) / n * size / rate gives 309 ms only where both ranks of a host send to another one, at
    half of its rate each.  Where the ring visits both ranks of a host one after the other, it takes 155 ms.
    """
    assert ring_all_reduce(alike(15, 10 * GIGABIT), hosts, 100 * MEGABYTE, at=0.0) == pytest.approx(seconds)


def test_the_two_figures_of_the_paper_are_309_and_149_milliseconds() -> None:
    flat, summed = (ring_all_reduce(alike(15, 10 * GIGABIT), names(15) * each, 100 * MEGABYTE, 0.0) for each in (2, 1))
    assert (round(flat, 3), round(summed, 3)) == (0.309, 0.149)


@pytest.mark.parametrize("count", range(2, 17))
def test_a_ring_of_equal_hosts_sends_almost_twice_the_size_through_each_interface(count: int) -> None:
    end = ring_all_reduce(alike(count, 4.0), names(count), 10.0, at=3.0)
    assert end == pytest.approx(3.0 + 2 * (count - 1) / count * 10.0 / 4.0)


@pytest.mark.parametrize("fan_in", [1, 2, 3, 5])
@pytest.mark.parametrize("count", range(1, 17))
def test_each_level_of_a_tree_takes_as_long_as_its_largest_family_up_and_down(count: int, fan_in: int) -> None:
    """One level is not full at most, the deepest: its largest family may be smaller."""
    below, level, families = count - 1, 1, []
    while below > 0:
        families.append(min(fan_in, below))
        level *= fan_in
        below -= level
    end = tree_all_reduce(alike(count, 4.0), names(count), 10.0, at=3.0, fan_in=fan_in)
    assert end == pytest.approx(3.0 + 2 * sum(families) * 10.0 / 4.0)


@pytest.mark.parametrize(("out", "into"), [(1.0, 8.0), (8.0, 1.0), (1.0, 1.0)])
def test_one_slow_direction_decides_how_long_every_step_of_a_ring_takes(out: float, into: float) -> None:
    rates = dict.fromkeys(names(5), (8.0, 8.0)) | {"h03": (out, into)}
    assert ring_all_reduce(network(rates), names(5), 10.0, at=0.0) == pytest.approx(2 * 4 * (10.0 / 5) / 1.0)


def test_a_slow_leaf_leaves_its_parents_interface_to_the_other_children() -> None:
    """Up: the slow one at 1 of 10 and the other at 9 of 10; down: the parent sends at 1 and at 9 of 10."""
    star = network({"root": (10.0, 10.0), "slow": (1.0, 1.0), "fast": (10.0, 10.0)})
    assert tree_all_reduce(star, ["root", "slow", "fast"], 30.0, at=0.0) == pytest.approx(2 * 30.0 / 1.0)


def test_the_children_of_a_host_share_its_incoming_direction_and_other_hosts_do_not() -> None:
    """Seven hosts, two levels: the two families of the lower one take 2 s beside each other, the upper one 2 s."""
    assert tree_all_reduce(alike(7, 10.0), names(7), 10.0, at=0.0) == pytest.approx(2 * (2.0 + 2.0))


def test_a_rate_that_changes_in_the_middle_of_a_step_changes_what_is_left_of_it() -> None:
    """Two hosts, 20 bytes, so two steps of 10 bytes at 5 bytes per second, which are 1 from 3 s on.

    The first step takes 2 s.  Of the second one 5 bytes are sent until 3 s, and the other 5 take 5 s.
    """
    steady, changing = Rates.steady(5.0), Rates((0.0, 3.0), (5.0, 1.0))
    pair = NetworkState({"a": Interface(steady, steady), "b": Interface(changing, steady)})
    assert ring_all_reduce(pair, ["a", "b"], 20.0, at=0.0) == pytest.approx(8.0)
    # Up, b sends 5 + 5 bytes until 3 s and 10 more until 13 s; down, only its incoming direction counts.
    assert tree_all_reduce(pair, ["a", "b"], 20.0, at=0.0) == pytest.approx(3.0 + 5.0 + 20.0 / 5.0)


def test_a_dead_interface_ends_nothing_and_hangs_nothing_and_an_interrupted_one_is_waited_for() -> None:
    dead = network({"a": (1.0, 1.0), "b": (0.0, 1.0), "c": (1.0, 1.0)})
    assert ring_all_reduce(dead, ["a", "b", "c"], 1.0, at=0.0) == math.inf
    assert tree_all_reduce(dead, ["a", "b", "c"], 1.0, at=0.0) == math.inf
    steady, gap = Rates.steady(1.0), Rates((0.0, 1.0, 5.0), (1.0, 0.0, 1.0))
    pair = NetworkState({"a": Interface(steady, gap), "b": Interface(steady, steady)})
    assert ring_all_reduce(pair, ["a", "b"], 3.0, at=0.0) == pytest.approx(5.5 + 1.5)


@pytest.mark.parametrize("hosts", [["h00"], ["h00"] * 4])
def test_within_one_host_it_takes_no_time(hosts: list[str]) -> None:
    assert ring_all_reduce(alike(1, 1.0), hosts, 10.0, at=7.0) == 7.0
    assert tree_all_reduce(alike(1, 1.0), hosts, 10.0, at=7.0) == 7.0


def test_no_bytes_take_no_time_even_where_nothing_can_be_sent() -> None:
    assert ring_all_reduce(alike(3, 0.0), names(3), 0.0, at=7.0) == 7.0
    assert tree_all_reduce(alike(3, 0.0), names(3), 0.0, at=7.0) == 7.0


@pytest.mark.parametrize("reduce", [ring_all_reduce, tree_all_reduce])
@pytest.mark.parametrize(
    ("hosts", "size_bytes", "field"),
    [
        ([], 1.0, "hosts"),
        (["h00"], -1.0, "size_bytes"),
        (["h00"], math.nan, "size_bytes"),
        (["h00"], math.inf, "size_bytes"),
    ],
)
def test_what_cannot_be_reduced_is_refused(
    reduce: Callable[..., float], hosts: list[str], size_bytes: float, field: str
) -> None:
    with pytest.raises(ConfigurationError, match=r"^an all-reduce .*; (name|give) [^;.]*$") as refused:
        reduce(alike(1, 1.0), hosts, size_bytes, 0.0)
    assert refused.value.field == field


def test_a_tree_without_children_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="give 1 or more"):
        tree_all_reduce(alike(2, 1.0), names(2), 1.0, 0.0, fan_in=0)


def test_the_network_that_was_given_stays_as_it_is() -> None:
    state = alike(3, 1.0)
    ring_all_reduce(state, names(3), 1.0, at=0.0)
    tree_all_reduce(state, names(3), 1.0, at=0.0)
    assert [state[host] for host in names(3)] == [alike(3, 1.0)[host] for host in names(3)]


@pytest.mark.parametrize("seed", range(60))
def test_both_equal_the_integration_of_every_transfer(seed: int) -> None:
    """On interfaces with steps, some of them dead, and with hosts that have several ranks."""
    rng = random.Random(seed)
    hosts = rng.choices(names(5), k=rng.randrange(1, 9))
    links = Links({host: (Link(own_rates(rng, False)), Link(own_rates(rng, False))) for host in names(5)})
    state = NetworkState(
        {
            host: Interface(*(Rates(*map(tuple, zip(*one.own, strict=True))) for one in both))
            for host, both in links.hosts.items()
        }
    )
    size, at, fan_in = rng.uniform(1, 30), rng.uniform(0, 4), rng.randrange(1, 4)
    assert ring_all_reduce(state, hosts, size, at) == pytest.approx(naive_ring(links, hosts, size, at)), f"seed {seed}"
    found = tree_all_reduce(state, hosts, size, at, fan_in=fan_in)
    assert found == pytest.approx(naive_tree(links, hosts, size, at, fan_in)), f"seed {seed}"


def naive_step(links: Links, pairs: Sequence[tuple[str, str]], size: float, begin: float) -> float:
    if math.isinf(begin):
        return begin
    step = links.copy()
    return max([step.send(sender, receiver, size, begin, reserve=True) for sender, receiver in pairs], default=begin)


def naive_ring(links: Links, hosts: list[str], size: float, at: float) -> float:
    count = len(hosts)
    for _ in range(2 * count - 2):
        at = naive_step(links, [(hosts[rank], hosts[(rank + 1) % count]) for rank in range(count)], size / count, at)
    return at


def naive_tree(links: Links, hosts: list[str], size: float, at: float, fan_in: int) -> float:
    """By the depth of each host, which is the number of its ancestors."""

    def depth(number: int) -> int:
        return 1 + depth((number - 1) // fan_in) if number else 0

    depths = [depth(number) for number in range(len(hosts))]
    for wanted in [*range(max(depths), 0, -1), *range(-1, -max(depths) - 1, -1)]:
        pairs = [
            (hosts[number], hosts[(number - 1) // fan_in])[:: 1 if wanted > 0 else -1]
            for number in range(len(hosts))
            if depths[number] == abs(wanted)
        ]
        at = naive_step(links, pairs, size, at)
    return at
