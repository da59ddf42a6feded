"""Interfaces: transfers take what those before them have left, at the rates of the moment."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from psplatform.errors import ConfigurationError
from psplatform.network.rates import Rates, pieces
from psplatform.simulation.network import Direction, Links, Network

MEGABYTE = 1e6
GIGABIT = Links((0.008,))  # a megabyte each second


def network(links: Links = GIGABIT, seed: int = 0) -> Network:
    return Network(links, seed)


def test_a_transfer_takes_its_bytes_at_the_rate_and_the_latency_once() -> None:
    links = Links((0.008,), latency_s=0.25)
    assert network(links).transfer("a", "b", 3 * MEGABYTE, now=10.0) == pytest.approx(3.25)


def test_two_equal_transfers_into_one_interface_take_twice_as_long_as_one() -> None:
    one = network()
    first, second = (one.transfer(sender, "b", MEGABYTE, now=0.0) for sender in ("a", "c"))
    assert (first, second) == (1.0, 2.0)


def test_two_equal_transfers_out_of_one_interface_take_twice_as_long_as_one() -> None:
    one = network()
    assert [one.transfer("a", to, MEGABYTE, now=0.0) for to in ("b", "c")] == [1.0, 2.0]


def test_the_directions_of_an_interface_are_independent() -> None:
    one = network()
    assert [one.transfer("a", "b", MEGABYTE, 0.0), one.transfer("b", "a", MEGABYTE, 0.0)] == [1.0, 1.0]


def test_an_interface_that_has_been_idle_serves_at_once() -> None:
    one = network()
    one.transfer("a", "b", MEGABYTE, now=0.0)
    assert one.transfer("a", "b", MEGABYTE, now=5.0) == 1.0


@pytest.mark.parametrize(("size", "seconds"), [(0.5, 0.5), (1, 1.0), (1.5, 2.5), (2, 3.0)])
def test_what_waits_to_leave_takes_nothing_of_the_receiver_before(size: float, seconds: float) -> None:
    """The second transfer out of a enters b from 1 s to 2 s; before and after that b is free."""
    one = network()
    one.transfer("a", "c", MEGABYTE, now=0.0)
    assert one.transfer("a", "b", MEGABYTE, now=0.0) == 2.0
    assert one.transfer("d", "b", size * MEGABYTE, now=0.0) == seconds
    assert one.transfer("e", "b", MEGABYTE, now=0.0) == 2 + size


def test_a_slow_sender_leaves_the_rest_of_the_receiver_to_others() -> None:
    """A host that sends at a tenth occupies a tenth: the transfer behind it has the other nine."""
    links = Links((0.008, 0.0008), (0.5, 0.5), every_s=1e9)
    one = network(links)
    rates = {host: one._direction(host, 0.0, outward=True).rate(0) for host in map(str, range(20))}
    slow = next(host for host, rate in rates.items() if rate == MEGABYTE / 10)
    fast = next(host for host, rate in rates.items() if rate == MEGABYTE)
    others = [f"receiver {number}" for number in range(20)]
    receiver = next(host for host in others if one._direction(host, 0.0, outward=False).rate(0) == MEGABYTE)
    assert one.transfer(slow, receiver, MEGABYTE, now=0.0) == pytest.approx(10.0)
    assert one.transfer(fast, receiver, MEGABYTE, now=0.0) == pytest.approx(1 / 0.9)


def test_transfers_that_are_over_are_forgotten() -> None:
    one = network()
    for number in range(50):
        one.transfer("a", "b", MEGABYTE, now=2.0 * number)
    assert max(len(way.rates.times) for way in one._directions.values()) <= 3


@pytest.mark.parametrize("seed", range(6))
def test_an_interface_is_never_idle_while_something_waits_and_never_serves_two_at_a_time(seed: int) -> None:
    """Whatever the order in which transfers are known, together they end when the last byte can be through."""
    rng = random.Random(seed)
    begins = [rng.uniform(0, 10) for _ in range(30)]
    sizes = [rng.uniform(0, 1) * MEGABYTE for _ in begins]
    one = network()
    ends = [
        one.transfer(f"sender {number}", "b", size, now=0.0, late_s=begin)
        for number, (begin, size) in enumerate(zip(begins, sizes, strict=True))
    ]
    end = 0.0
    for begin, size in sorted(zip(begins, sizes, strict=True)):
        end = max(end, begin) + size / MEGABYTE
    assert max(ends) == pytest.approx(end), f"seed {seed}"


def test_processes_of_one_host_need_no_interface() -> None:
    assert network().transfer("a", "a", MEGABYTE, now=0.0) == 0.0
    assert network().transfer("a", "a", MEGABYTE, now=0.0, late_s=2.0) == 2.0


def test_a_late_transfer_has_its_place_from_when_it_begins_on() -> None:
    one = network()
    assert one.transfer("a", "b", MEGABYTE, now=0.0, late_s=9.0) == 10.0
    assert one.transfer("a", "b", MEGABYTE, now=0.0) == 1.0
    assert one.transfer("a", "b", MEGABYTE, now=8.5) == 2.0


def test_nothing_takes_the_latency() -> None:
    assert network(Links((0.008,), latency_s=0.25)).transfer("a", "b", 0.0, now=1.0) == 0.25


# --- rates that change ---

CHANGING = Links((0.008, 0.08, 0.0008), (0.5, 0.3, 0.2), every_s=0.5)


def integrated(rates: Direction, size: float, begin: float, steps: int = 400) -> float:
    """Return when `size` bytes are through, added up in small steps that end with the periods; and the step."""
    step = CHANGING.every_s / steps
    number, left = round(begin / step), size
    while left > 0:
        left -= rates.rate(number // steps) * step
        number += 1
    return number * step


def finish(way: Direction, size: float, begin: float, now: float = 0.0) -> float:
    """Return when `size` bytes that begin at `begin` are through, and reserve that."""
    way.forget(now)
    while (taken := pieces(way.rates, Rates.steady(math.inf), size, begin)) is None:
        way.draw(now)
    way.rates = way.rates.less(taken)
    return taken[-1].end


@pytest.mark.parametrize("seed", range(12))
def test_a_transfer_through_changing_rates_is_their_exact_integral(seed: int) -> None:
    """Within one step of an integration in small steps."""
    rng = random.Random(seed)
    step = CHANGING.every_s / 400
    for _ in range(10):
        one = Direction(CHANGING, seed, (1, 2))
        size, begin = rng.uniform(0, 6) * MEGABYTE, step * rng.randrange(4000)
        found = finish(one, size, begin, now=begin * rng.random())
        assert abs(found - integrated(one, size, begin)) <= 1.001 * step, f"seed {seed}: {size} bytes from {begin} s"


@pytest.mark.parametrize("seed", range(4))
def test_where_a_transfer_is_cut_changes_nothing(seed: int) -> None:
    rng = random.Random(seed)
    whole, cut = (Direction(CHANGING, seed, (1,)) for _ in range(2))
    parts = [rng.uniform(0, 2) * MEGABYTE for _ in range(20)]
    ends = [finish(cut, part, 0.3) for part in parts]
    assert ends[-1] == pytest.approx(finish(whole, sum(parts), 0.3)), f"seed {seed}"


@pytest.mark.parametrize("seed", range(4))
def test_what_is_known_of_the_rates_is_what_they_are_however_long_nothing_was_sent(seed: int) -> None:
    rng, way = random.Random(seed), Direction(CHANGING, seed, (1,))
    now = 0.0
    for _ in range(30):
        now += rng.choice((0.01, 0.6, 200.0)) * rng.random()
        way.forget(now)
        way.draw(now)
        for later in (0.0, 0.3, 2.0, 7.0):
            true = way.rate(int((now + later) // CHANGING.every_s))
            assert way.rates.at(now + later) == (true if now + later < way.known_until else 0.0), f"seed {seed}"
        assert way.known_until > now, f"seed {seed}"


def test_rates_come_with_their_chances_and_from_seed_and_name_alone() -> None:
    """Over 3000 periods each rate has its share within four standard errors, whatever was asked before."""
    one, same, other = (Direction(CHANGING, seed, (0,)) for seed in (1, 1, 2))
    rates = [one.rate(period) for period in range(3000)]
    for rate, chance in zip(CHANGING.gigabits, CHANGING.chances, strict=True):
        share = Counter(rates)[rate * 1e9 / 8] / len(rates)
        assert share == pytest.approx(chance, abs=4 * math.sqrt(chance * (1 - chance) / len(rates)))
    assert [same.rate(period) for period in range(2999, -1, -1)] == rates[::-1]
    assert [other.rate(period) for period in range(3000)] != rates


def test_many_senders_that_were_idle_make_a_receiver_known_no_further_than_it_is_needed() -> None:
    one = network(Links((0.008, 0.08), (0.5, 0.5), every_s=0.01))
    for number in range(30):
        one.transfer(f"sender {number}", "b", MEGABYTE / 1000, now=0.0)
    assert one._direction("b", 0.0, outward=False).known_until < 5.0


def test_after_very_many_periods_the_rate_is_the_mean_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = finish(Direction(CHANGING, 3, (0,)), 2000 * MEGABYTE, 0.0)
    monkeypatch.setattr("psplatform.simulation.network._PERIODS", 200)
    one = Direction(CHANGING, 3, (0,))
    assert finish(one, 2000 * MEGABYTE, 0.0) == pytest.approx(exact, rel=0.1)
    end = finish(one, 1000 * MEGABYTE, 0.0)
    assert one.rates.at(end + 1.0) == pytest.approx((0.008 * 0.5 + 0.08 * 0.3 + 0.0008 * 0.2) * 1e9 / 8)
    kept = one.rates
    one.draw(0.0)
    assert one.rates == kept
    assert finish(one, 1e30, 0.0) > 1e20


def test_no_two_directions_change_together() -> None:
    one = network(CHANGING)
    found = {
        tuple(one._direction(host, 0.0, outward=outward).rate(period) for period in range(40))
        for host in ("worker 0", "worker 1", "server 0")
        for outward in (False, True)
    }
    assert len(found) == 6


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"gigabits": (0.0,)}, "nic: gbps must be finite numbers above 0, not (0.0,)"),
        ({"gigabits": (math.nan,)}, "gbps must be finite numbers above 0, not (nan,)"),
        ({"gigabits": (1.0, 2.0), "chances": (0.5, 0.4)}, "one chance for each rate of gbps, adding up to 1"),
        ({"gigabits": (1.0, 2.0), "chances": (1.0,)}, "one chance for each rate"),
        (
            {"gigabits": (1.0, 2.0), "chances": (1.5, -0.5)},
            "change: chance must be finite numbers of at least 0, not (1.5, -0.5)",
        ),
        ({"gigabits": (1.0,), "every_s": 0.0}, "change: every must be a float of at least 0.001, not 0.0"),
        ({"gigabits": (1.0,), "every_s": math.nan}, "every must be a float of at least 0.001, not nan"),
        ({"gigabits": (1.0,), "latency_s": -1.0}, "nic: latency must be a finite number of at least 0, not -1.0"),
        ({"gigabits": (1.0,), "workers_per_host": 0}, "hosts: workers must be an int of at least 1, not 0"),
        ({"gigabits": (1.0,), "servers_per_host": 0}, "hosts: servers must be an int of at least 1, not 0"),
    ],
)
def test_interfaces_that_make_no_sense_are_refused(fields: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Links(**fields)  # type: ignore[arg-type]
    assert sentence in str(caught.value)


def test_what_interfaces_have_left_is_known_for_an_hour_and_is_what_transfers_take() -> None:
    links = Links((0.008, 0.0008), (0.5, 0.5), every_s=5.0)
    one, two = network(links, seed=3), network(links, seed=3)
    one.transfer("a", "b", MEGABYTE, now=0.0)
    two.transfer("a", "b", MEGABYTE, now=0.0)
    left = one.left(["a", "b", "c"], now=1.0)
    assert min(left["a"].out.at(3600.0), left["c"].into.at(3600.0)) > 0
    seconds = [left.transfer("a", [("c", MEGABYTE)], begin).end - begin for begin in (1.0, 17.0, 400.0)]
    for begin, found in zip((1.0, 17.0, 400.0), seconds, strict=True):
        other = network(links, seed=3)
        if begin == 1.0:
            other = two
        assert found == pytest.approx(other.transfer("a", "c", MEGABYTE, begin))


def test_looking_at_what_is_left_takes_nothing() -> None:
    one, two = network(), network()
    assert one.left(["a", "b"], now=0.0)["a"].out == Rates.steady(MEGABYTE)
    assert one.transfer("a", "b", MEGABYTE, 2.0) == two.transfer("a", "b", MEGABYTE, 2.0)
