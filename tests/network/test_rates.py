"""What interfaces have left, and transfers on it: equal to adding up every reservation anew."""

from __future__ import annotations

import math
import random

import pytest
from fabric_reference import Link

from psplatform.network.rates import Rates, pieces
from psplatform.network.state import Interface, NetworkState


def end_of(out: Rates, into: Rates, size_bytes: float, begin: float) -> float:
    taken = pieces(out, into, size_bytes, begin)
    return math.inf if taken is None else taken[-1].end


def test_a_transfer_takes_the_smaller_rate_of_the_two_directions() -> None:
    assert end_of(Rates.steady(10.0), Rates.steady(4.0), 8.0, begin=1.0) == 3.0


def test_what_the_narrower_direction_leaves_of_the_wider_one_stays_free() -> None:
    """Figure 5 of the paper: 100 Mb at 10 Mb/s leave 90 of the server's 100 Mb/s."""
    slow, fast, server = Rates.steady(10.0), Rates.steady(1000.0), Rates.steady(100.0)
    first = pieces(slow, server, 100.0, begin=0.0)
    assert first is not None
    assert first[-1].end == 10.0
    assert end_of(fast, server.less(first), 100.0, begin=0.0) == pytest.approx(1.111, abs=1e-3)
    assert end_of(fast, server, 100.0, begin=0.0) == 1.0


def test_a_transfer_waits_where_nothing_is_left_and_goes_on_where_something_is() -> None:
    """Algorithm 1: 30 MB over a rate that changes, with a gap in the middle."""
    rates = Rates((0.0, 2.0, 4.0, 5.0), (10.0, 0.0, 5.0, 2.5))
    taken = pieces(rates, Rates.steady(100.0), 30.0, begin=0.0)
    assert taken is not None
    assert [(one.begin, one.end, one.rate) for one in taken] == [
        (0.0, 2.0, 10.0),
        (2.0, 4.0, 0.0),
        (4.0, 5.0, 5.0),
        (5.0, 7.0, 2.5),
    ]
    assert rates.less(taken) == Rates((0.0, 7.0), (0.0, 2.5))


def test_a_direction_that_carries_nothing_any_more_never_finishes() -> None:
    assert pieces(Rates((0.0, 1.0), (1.0, 0.0)), Rates.steady(9.0), 2.0, begin=0.0) is None
    assert end_of(Rates((0.0, 1.0), (1.0, 0.0)), Rates.steady(9.0), 1.0, begin=0.0) == 1.0


def test_steps_that_are_over_are_forgotten() -> None:
    rates = Rates((0.0, 1.0, 2.0), (1.0, 2.0, 3.0))
    assert rates.since(1.5) == Rates((1.0, 2.0), (2.0, 3.0))
    assert rates.since(-1.0) == rates
    assert [rates.at(moment) for moment in (-1.0, 0.0, 1.0, 9.0)] == [1.0, 1.0, 2.0, 3.0]


def test_transfers_that_meet_at_one_bottleneck_leave_one_step_behind() -> None:
    """However many were sent one behind the other, what is left is nothing, then everything."""
    server = Rates.steady(10.0)
    for _ in range(50):
        taken = pieces(Rates.steady(40.0), server, 5.0, begin=0.0)
        assert taken is not None
        server = server.less(taken)
    assert server == Rates((0.0, 25.0), (0.0, 10.0))


@pytest.mark.parametrize("end", [0.3, 0.7, 1.1])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_what_fits_exactly_into_a_gap_ends_with_it(end: float, count: int) -> None:
    """Sums that are rounded leave no last byte behind for later, or for ever."""
    for later in (0.0, 1e9):
        gap = Rates((0.0, end, 5.0), (1.25e9, 0.0, later))
        for _ in range(count):
            taken = pieces(gap, Rates.steady(1e10), 1.25e9 * (end - 0.1) / count, begin=0.1)
            assert taken is not None
            gap = gap.less(taken)
        assert taken[-1].end == pytest.approx(end)
        assert gap.at(end - 1e-6) == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_rounding_leaves_no_steps_behind(seed: int) -> None:
    """Rates whose sums are not exact, taken out hundreds of times: a reservation adds two steps at the most."""
    rng = random.Random(seed)
    into, reservations = Rates.steady(10e9 / 8), 300
    for _ in range(reservations):
        out = Rates((0.0, rng.random()), (0.0, rng.choice((2.5e9, 3.3e9, 5e9)) / 8))
        taken = pieces(out, into, 100e6, begin=0.0)
        assert taken is not None
        into = into.less(taken)
        assert all(earlier < later for earlier, later in zip(into.times, into.times[1:], strict=False)), f"seed {seed}"
    assert len(into.times) <= 2 * reservations, f"seed {seed}"


def drawn_rates(rng: random.Random) -> list[tuple[float, float]]:
    """Return rates at 0 and some moments, some of them zero, the last one not."""
    moments = [0.0, *sorted(rng.uniform(0, 20) for _ in range(rng.randrange(4)))]
    rates = [rng.choice((0.0, rng.uniform(1, 10), rng.uniform(1, 10))) for _ in moments]
    return list(zip(moments, [*rates[:-1], rng.uniform(1, 10)], strict=True))


@pytest.mark.parametrize("seed", range(200))
def test_reservations_are_what_adding_them_up_gives_and_never_exceed_the_rates(seed: int) -> None:
    rng = random.Random(seed)
    hosts = ("a", "b", "c")
    own = {(host, way): drawn_rates(rng) for host in hosts for way in ("out", "into")}
    links = {key: Link(rates) for key, rates in own.items()}
    state = NetworkState(
        {
            host: Interface(*(Rates(*map(tuple, zip(*own[host, way], strict=True))) for way in ("out", "into")))
            for host in hosts
        }
    )
    for _ in range(12):
        sender, receiver = rng.sample(hosts, 2)
        size, begin = rng.uniform(1, 40), rng.uniform(0, 15)
        transfer = state.transfer(sender, [(receiver, size)], begin)
        state.reserve(transfer)
        (_, taken), *_ = transfer.parts
        assert sum(one.rate * (one.end - one.begin) for one in taken) == pytest.approx(size), f"seed {seed}"
        for one in taken:
            for key in ((sender, "out"), (receiver, "into")):
                left = min(links[key].at(one.begin), links[key].at((one.begin + one.end) / 2))
                assert one.rate <= left + 1e-9, f"seed {seed}: more than is left"
        for key in ((sender, "out"), (receiver, "into")):
            links[key].taken += [(one.begin, one.end, one.rate) for one in taken]
        for host in hosts:
            for way, rates in (("out", state[host].out), ("into", state[host].into)):
                for moment in [rng.uniform(0, 60) for _ in range(20)]:
                    assert rates.at(moment) == pytest.approx(links[host, way].at(moment), abs=1e-9), f"seed {seed}"


def test_processes_of_one_host_reach_each_other_at_once_and_reserve_nothing() -> None:
    state = NetworkState({"a": Interface(Rates.steady(1.0), Rates.steady(1.0))})
    transfer = state.transfer("a", [("a", 100.0)], begin=3.0)
    state.reserve(transfer)
    assert (transfer.begin, transfer.end, transfer.parts) == (3.0, 3.0, ())
    assert state["a"].out == Rates.steady(1.0)


def test_parts_for_several_hosts_leave_one_interface_behind_each_other() -> None:
    """The sender sends at 10; the servers take 4 and 8: the second part has the 6 that the first leaves, then all."""
    steady = Rates.steady
    state = NetworkState(
        {
            "a": Interface(steady(10.0), steady(10.0)),
            "s": Interface(steady(4.0), steady(4.0)),
            "t": Interface(steady(8.0), steady(8.0)),
        }
    )
    transfer = state.transfer("a", [("s", 8.0), ("t", 16.0)], begin=0.0)
    assert [taken[-1].end for _, taken in transfer.parts] == [2.0, 2.5]
    state.reserve(transfer)
    assert state["a"].out == Rates((0.0, 2.0, 2.5), (0.0, 2.0, 10.0))
    assert state["t"].into == Rates((0.0, 2.0, 2.5), (2.0, 0.0, 8.0))


def test_parts_for_one_host_share_its_interface() -> None:
    state = NetworkState({"a": Interface(*(Rates.steady(10.0),) * 2), "s": Interface(*(Rates.steady(4.0),) * 2)})
    transfer = state.transfer("a", [("s", 8.0), ("s", 8.0)], begin=0.0)
    assert transfer.end == 4.0
    state.reserve(transfer)
    assert state["s"].into == Rates((0.0, 4.0), (0.0, 4.0))


def test_a_copy_is_a_state_of_its_own_and_a_mirror_exchanges_the_directions() -> None:
    state = NetworkState({host: Interface(Rates.steady(1.0), Rates.steady(2.0)) for host in "ab"})
    copied = state.copy()
    copied.reserve(copied.transfer("a", [("b", 3.0)], begin=0.0))
    assert state["a"].out == Rates.steady(1.0)
    assert copied.mirrored()["a"].into == copied["a"].out == Rates((0.0, 3.0), (0.0, 1.0))
