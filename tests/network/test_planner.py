"""Plans that are made anew at each tick: what is granted, and what that makes of a run."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

import pytest

from psplatform.core.transfers import Grant, Offer, PullRequest
from psplatform.network.estimates import Estimates
from psplatform.network.planner import FabricPlanner
from psplatform.network.rates import Rates
from psplatform.network.relaying import spread
from psplatform.network.sightings import Sighting
from psplatform.network.state import Interface, NetworkState
from psplatform.network.steady import SteadyEstimates

BYTES = 100.0


def known(rates: dict[str, tuple[float, float]]) -> Estimates:
    estimates = Estimates(fastest=1.0, forget_s=1e9)
    for host, (out, into) in rates.items():
        estimates.report(host, out, into, 0.0)
    return estimates


def planner(
    rates: dict[str, tuple[float, float]], aggregators: tuple[str, ...] = (), tick_s: float = 0.1
) -> FabricPlanner:
    return FabricPlanner([("s", BYTES)], aggregators, known(rates), tick_s)


def alike(hosts: int) -> dict[str, tuple[float, float]]:
    return {**{f"h{number}": (100.0, 100.0) for number in range(hosts)}, "s": (100.0, 100.0)}


def test_what_begins_before_the_next_tick_is_granted_and_the_rest_waits() -> None:
    one = planner(alike(3))
    plan = one.plan([Offer(number, f"h{number}") for number in range(3)], now=0.0)
    assert plan.granted == (Grant((0,), (0.0,), None, 1.0),)
    assert (plan.dropped, plan.waiting) == ((), (1, 2))


def test_what_is_under_way_is_not_sent_over() -> None:
    """At 0.5 s half of the first is through: the second begins at 1.0 s, after the next tick."""
    one = planner(alike(2))
    one.plan([Offer(0, "h0")], now=0.0)
    assert one.plan([Offer(1, "h1")], now=0.5).waiting == (1,)
    assert one.plan([Offer(1, "h1")], now=0.95).granted == (
        Grant((1,), (pytest.approx(1.0),), None, pytest.approx(2.0)),
    )


def test_an_idle_way_is_granted_at_once_and_a_busy_one_is_not() -> None:
    one = planner(alike(2))
    assert one.grant_at_once(Offer(0, "h0"), now=0.0) == Grant((0,), (0.0,), None, 1.0)
    assert one.grant_at_once(Offer(1, "h1"), now=0.2) == 1.0
    one.settle(0)
    assert one.grant_at_once(Offer(1, "h1"), now=0.2) == Grant((1,), (0.2,), None, 1.2)


def test_what_begins_later_may_begin_once_what_it_waits_for_has_arrived() -> None:
    """It was expected at 1.0 s, and came sooner."""
    one = planner(alike(2))
    one.plan([Offer(0, "h0")], now=0.0)
    one.plan([Offer(1, "h1")], now=0.95)
    assert one.begins(0.96) == {1: (pytest.approx(1.0), pytest.approx(2.0))}
    one.arrive(0, "h0", 0.0, 0.97)
    assert one.begins(0.97) == {1: (0.97, pytest.approx(1.97))}
    assert one.begins(0.98) == {}, "it has begun"


def test_what_begins_later_does_not_take_the_way_of_what_is_being_sent() -> None:
    """It was granted earlier, behind one that is lost, in whose stead another is sent."""
    one = planner(alike(3), tick_s=10.0)
    one.plan([Offer(0, "h0"), Offer(1, "h1")], now=0.0)
    one.settle(0)
    assert isinstance(one.grant_at_once(Offer(2, "h2"), now=0.0), Grant)
    assert one.begins(0.5) == {1: (pytest.approx(1.0), pytest.approx(2.0))}
    one.arrive(2, "h2", 0.0, 0.75)
    assert one.begins(0.75) == {1: (0.75, pytest.approx(1.75))}


def test_what_begins_later_is_never_put_off() -> None:
    estimates = known(alike(2))
    one = FabricPlanner([("s", BYTES)], (), estimates, 0.1)
    one.plan([Offer(0, "h0")], now=0.0)
    one.plan([Offer(1, "h1")], now=0.95)
    estimates.report("s", 1.0, 1.0, 0.96)
    (begin, end) = one.begins(0.96)[1]
    assert (begin, end > 100.0) == (pytest.approx(1.0), True)


def test_members_of_a_group_begin_sooner_each_by_itself() -> None:
    """The aggregator collects twice as fast as was thought, from 0.5 s on."""
    estimates = known(alike(6) | {"s": (30.0, 30.0)})
    one = FabricPlanner([("s", BYTES)], ("h0",), estimates, 10.0)
    granted = one.plan([Offer(number, f"h{number}") for number in range(1, 6)], now=0.0).granted
    (grant,) = [summed for summed in granted if summed.aggregator]
    later = {key: begin for key, begin in zip(grant.keys, grant.begins, strict=True) if begin > 0.5}
    assert len(later) > 1
    for number in range(6):
        estimates.report(f"h{number}", 200.0, 200.0, 0.5)
    found = one.begins(0.5)
    assert found.keys() == later.keys()
    assert all(found[key][0] < later[key] for key in later)
    assert len({begin for begin, _ in found.values()}) == len(later)
    assert all(end < grant.end for _, end in found.values())


def test_a_gradient_on_the_servers_host_is_granted_whatever_is_under_way() -> None:
    one = planner(alike(1))
    one.plan([Offer(0, "h0")], now=0.0)
    assert one.grant_at_once(Offer(1, "s"), now=0.5) == Grant((1,), (0.5,), None, 0.5)


def test_deadlines_count_behind_what_arrives_before() -> None:
    """The one due at 2 is in time behind one that is under way, and late behind two."""
    for under_way, kept in ((1, True), (2, False)):
        one = planner(alike(4), tick_s=5.0)
        one.plan([Offer(number, f"h{number}") for number in range(under_way)], now=0.0)
        plan = one.plan([Offer(9, "h3", 2)], now=0.0)
        assert (plan.dropped == ()) is kept


def test_what_arrives_later_is_not_ahead() -> None:
    """A gradient on the server's host is there at once, and a fast one before a slow one that is under way."""
    one = planner({"slow": (1.0, 1.0), "h0": (100.0, 100.0), "s": (100.0, 100.0)})
    one.plan([Offer(0, "slow")], now=0.0)
    assert one.grant_at_once(Offer(1, "s", 1), now=0.0) == Grant((1,), (0.0,), None, 0.0)
    one.settle(1)
    assert one.plan([Offer(2, "h0", 1)], now=0.0).dropped == ()


def test_what_is_overdue_no_longer_counts() -> None:
    """It would be the second, due first, as long as the one before it is expected."""
    for now, dropped in ((0.5, (1,)), (5.1, ())):
        one = planner(alike(2))
        one.plan([Offer(0, "h0")], now=0.0)
        assert one.plan([Offer(1, "h1", 1)], now).dropped == dropped


def test_what_gets_nowhere_is_not_ahead_and_under_way_until_somebody_knows_better() -> None:
    one = planner({"dead": (0.0, 100.0), "h0": (100.0, 100.0), "s": (100.0, 100.0)})
    one.plan([Offer(0, "dead")], now=0.0)
    assert one.plan([Offer(1, "h0", 1)], now=0.0).dropped == ()
    one.settle(1)
    assert one.plan([Offer(0, "dead")], now=1e6).granted == ()
    one.settle(0)
    assert one.plan([Offer(0, "dead")], now=1e6).granted != ()


def test_what_slows_down_while_it_is_under_way_is_expected_anew() -> None:
    """From 0.1 s on the server takes a tenth: 90 bytes are left for 9 s."""
    one = planner(alike(2))
    one.grant_at_once(Offer(0, "h0"), now=0.0)
    one._estimates.report("s", 100.0, 10.0, 0.1)
    for now in (0.1, 0.9, 2.0, 5.0):
        assert one.grant_at_once(Offer(1, "h1"), now) == pytest.approx(9.1)
    one.settle(0)
    assert isinstance(one.grant_at_once(Offer(1, "h1"), 5.0), Grant)


def test_an_idle_way_is_kept_for_what_would_be_late_otherwise() -> None:
    one, waiting = planner(alike(3)), Offer(1, "h1", 1)
    assert one.grant_at_once(Offer(2, "h2", 20), now=0.0, waiting=[waiting]) == math.inf
    assert isinstance(one.grant_at_once(waiting, now=0.0, waiting=[waiting]), Grant)


def test_what_is_under_way_is_not_granted_again() -> None:
    one = planner(alike(2))
    one.plan([Offer(0, "h0", 1)], now=0.0)
    plan = one.plan([Offer(0, "h0", 1)], now=0.0)
    assert (plan.granted, plan.dropped, plan.waiting) == ((), (), ())
    assert one.grant_at_once(Offer(0, "h0"), now=0.0) == math.inf


def test_a_sum_is_granted_as_a_whole_and_settled_as_a_whole() -> None:
    rates = {**{f"h{number}": (400.0, 400.0) for number in range(8)}, "s": (100.0, 100.0)}
    one = planner(rates, ("h0",))
    plan = one.plan([Offer(number, f"h{number}") for number in range(8)], now=0.0)
    (sum_,) = [grant for grant in plan.granted if grant.aggregator is not None]
    assert len(sum_.keys) > 2
    assert len(sum_.begins) == len(sum_.keys)
    assert sorted(sum_.begins) == list(sum_.begins)
    assert isinstance(one.grant_at_once(Offer(9, "h1"), now=0.1), float)
    for grant in plan.granted:
        one.settle(grant.keys[0])
    assert one.grant_at_once(Offer(9, "h1"), now=0.1) == Grant((9,), (0.1,), None, pytest.approx(1.1))


def slow_server(hosts: int) -> dict[str, tuple[float, float]]:
    return {**{f"h{number}": (1000.0, 1000.0) for number in range(hosts)}, "s": (100.0, 100.0)}


def test_a_sum_that_would_wait_for_the_server_is_planned_anew_until_it_is_time() -> None:
    one = planner(slow_server(4), ("h1",))
    one.plan([Offer(0, "h0")], now=0.0)  # until 1.0 s
    assert one.plan([Offer(1, "h1"), Offer(2, "h2")], now=0.3).waiting == (1, 2)
    (grant,) = one.plan([Offer(number, f"h{number}") for number in (1, 2, 3)], now=0.8).granted
    assert (sorted(grant.keys), grant.aggregator, grant.end) == ([1, 2, 3], "h1", pytest.approx(2.0))


def test_one_that_goes_by_itself_keeps_no_others_from_being_summed() -> None:
    """All begin before the next plan, so that nothing waits; it has its place among them, and is in no sum."""
    one = planner(slow_server(4), ("h1",), tick_s=10.0)
    plan = one.plan([Offer(0, "h0", alone=True), *(Offer(number, f"h{number}") for number in (1, 2, 3))], now=0.0)
    assert [(sorted(grant.keys), grant.aggregator) for grant in plan.granted] == [([0], None), ([1, 2, 3], "h1")]


def test_one_that_goes_by_itself_comes_no_sooner_than_the_deadlines_of_others_allow() -> None:
    one = planner(slow_server(4), ("h1",))
    plan = one.plan([Offer(3, "h3", alone=True), Offer(0, "h0", 1), Offer(1, "h1", 2)], now=0.0)
    (first,) = plan.granted
    assert 0 in first.keys
    assert (plan.dropped, plan.waiting[0]) == ((), 3)


def test_one_that_goes_by_itself_and_would_be_overtaken_too_often_is_dropped() -> None:
    """It takes 10 s, in which the server receives all the others."""
    one = planner({**slow_server(4), "h3": (10.0, 10.0)}, ("h1",))
    plan = one.plan([Offer(3, "h3", 1, alone=True), *(Offer(number, f"h{number}") for number in range(3))], now=0.0)
    assert plan.dropped == (3,)


def test_what_is_under_way_counts_once_against_the_deadlines_of_what_is_held() -> None:
    """Seven are there at 2.0 s, and five more may be before these two."""
    one = planner(slow_server(10), ("h1",))
    rest = [Offer(number, f"h{number}") for number in range(2, 10)]
    one.plan(rest, now=0.0)
    one.settle(2)
    (sum_,) = one.plan(rest[1:], now=0.75).granted
    assert (len(sum_.keys), sum_.end) == (7, pytest.approx(2.2, abs=0.3))
    assert one.plan([Offer(10, "h0", 12), Offer(11, "h1", 12)], now=0.8).waiting == (10, 11)


def summing_pair() -> FabricPlanner:
    """Return a planner that has seen the workers of h1 and h2 take 0.2 s from parameters to gradient.

    At 4.2 s it is offered the next one of h1; h2 has its parameters since 4.1 s.
    """
    one = FabricPlanner([("s", BYTES)], ("h1",), known(slow_server(3)), 0.1, ("h1",))
    for begin in (0.0, 3.0):
        one.plan_pulls([PullRequest(1, "h1"), PullRequest(2, "h2")], begin)
        one.pulled(1, begin, begin + 1.0)
        one.pulled(2, begin, begin + 1.1)
        if begin == 0.0:
            for key, host, now in ((1, "h1", 1.2), (2, "h2", 1.3)):
                one.plan([Offer(key, host)], now)
                one.settle(key)
    return one


def test_an_idle_way_is_kept_a_while_for_what_will_be_summed_with_it() -> None:
    one = summing_pair()
    assert one.grant_at_once(Offer(3, "h1"), 4.2) == math.inf
    assert one.plan([Offer(3, "h1")], 4.25).waiting == (3,)
    (grant,) = one.plan([Offer(3, "h1"), Offer(4, "h2")], 4.3).granted
    assert (sorted(grant.keys), grant.aggregator, grant.end) == ([3, 4], "h1", pytest.approx(5.4))


def test_what_does_not_come_is_not_waited_for() -> None:
    one = summing_pair()
    assert one.grant_at_once(Offer(3, "h1"), 4.2) == math.inf
    assert one.plan([Offer(3, "h1")], 4.45).waiting == (3,)
    assert one.plan([Offer(3, "h1")], 4.55).granted == (Grant((3,), (4.55,), None, pytest.approx(5.55)),)


def test_there_is_always_another_one_but_nobody_waits_for_all_of_them() -> None:
    one = FabricPlanner([("s", BYTES)], ("h0",), known(slow_server(9)), 0.1, ("h0",))
    for number in range(1, 9):
        one._holding.note_parameters(f"h{number}", 0.0)
        one._holding.note_offer(Offer(100 + number, f"h{number}"), 0.2)
        one._holding.note_parameters(f"h{number}", 1.0 + 0.15 * number)
    waited = [now for now in (1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8) if one.plan([Offer(0, "h0")], now).waiting]
    assert waited == [1.1, 1.2, 1.3, 1.4]


@pytest.mark.parametrize("offer", [Offer(3, "h1", 2), Offer(3, "h1", alone=True)])
def test_what_may_be_late_or_goes_by_itself_waits_for_nothing(offer: Offer) -> None:
    one = summing_pair()
    assert one.plan([offer], 4.2).granted == (Grant((3,), (4.2,), None, pytest.approx(5.2)),)


def test_where_collecting_takes_as_long_as_the_server_does_nothing_is_waited_for() -> None:
    estimates = known(alike(3))
    one = FabricPlanner([("s", BYTES)], ("h1",), estimates, 0.1, ("h1",))
    for host in ("h1", "h2"):
        one._holding.note_parameters(host, 0.0)
        one._holding.note_offer(Offer(int(host[1:]) + 100, host), 0.2)
        one._holding.note_parameters(host, 1.0)
    assert one.plan([Offer(1, "h1")], 1.2).granted


def test_what_has_arrived_tells_what_interfaces_carry() -> None:
    """Ten times slower than was thought: the next is expected to take as long."""
    size = 1e6
    one = FabricPlanner([("s", size)], (), Estimates(fastest=size, forget_s=1e9), 0.1)
    assert one.grant_at_once(Offer(0, "h0"), now=0.0) == Grant((0,), (0.0,), None, 1.0)
    one.grant_at_once(Offer(9, "s"), now=9.0)  # long after the first was to have arrived
    one.arrive(0, "h0", 0.0, 10.0)
    assert one.grant_at_once(Offer(1, "h0"), now=30.0) == Grant((1,), (30.0,), None, pytest.approx(40.0))


def test_what_waits_is_looked_at_only_where_the_way_is_idle() -> None:
    def never() -> Iterator[Offer]:
        raise AssertionError
        yield

    one = planner(alike(2))
    one.plan([Offer(0, "h0")], now=0.0)
    assert one.grant_at_once(Offer(1, "h1"), now=0.2, waiting=never()) == 1.0
    assert one.grant_at_once(Offer(1, "h1", 1), now=0.2, waiting=never()) == math.inf


def test_rates_of_zero_drop_what_has_a_deadline_and_send_the_rest() -> None:
    one = planner({"h0": (0.0, 100.0), "s": (100.0, 100.0)})
    plan = one.plan([Offer(0, "h0", 9), Offer(1, "h0")], now=0.0)
    assert plan.dropped == (0,)
    assert plan.granted == (Grant((1,), (0.0,), None, math.inf),)


# --- in a loop: workers that compute, offer, are granted, and pull ---


@dataclass
class Loop:
    """Asynchronous workers, one on each host, on a network whose true rates the planner knows.

    Without a planner all is sent at once.  A gradient that is late when it arrives is dropped.  Workers whose gradients
    arrive together get the new parameters through relays where that is faster.
    """

    rates: dict[str, tuple[float, float]]
    bound: int
    fabric: FabricPlanner | None = None
    compute_s: float = 0.1
    tick_s: float = 0.1
    version: int = 0
    applied: int = 0
    late: int = 0
    dropped: int = 0
    sums: int = 0
    _agenda: list[tuple[float, int, Callable[[float], None]]] = field(default_factory=list)
    _number: count[int] = field(default_factory=count)
    _labels: dict[int, tuple[str, int]] = field(default_factory=dict)
    _offers: dict[int, str] = field(default_factory=dict)
    _wanting: list[str] = field(default_factory=list)

    def run(self, seconds: float) -> Loop:
        self.network = NetworkState(
            {host: Interface(Rates.steady(out), Rates.steady(into)) for host, (out, into) in self.rates.items()}
        )
        for host in self.rates:
            if host != "s":
                self._at(self.compute_s, lambda now, host=host: self._offer(host, 0, now))
        if self.fabric is not None:
            self._at(self.tick_s, self._tick)
        while self._agenda[0][0] < seconds:
            now, _, action = heapq.heappop(self._agenda)
            action(now)
        return self

    def _at(self, moment: float, action: Callable[[float], None]) -> None:
        heapq.heappush(self._agenda, (moment, next(self._number), action))

    def _send(self, sender: str, receiver: str, now: float) -> float:
        transfer = self.network.transfer(sender, [(receiver, BYTES)], now)
        self.network.reserve(transfer)
        return transfer.end

    def _offer(self, host: str, label: int, now: float) -> None:
        key = next(self._number)
        self._labels[key] = host, label
        self._offers[key] = host
        self._try(key, now)

    def _try(self, key: int, now: float) -> None:
        """Send an offer that still waits if its way is idle, or try again when it may be."""
        if key not in self._offers:
            return
        found = self._ask(key, now) if self.fabric is not None else None
        if isinstance(found, float):
            if found < math.inf:
                self._at(found, lambda then: self._try(key, then))
            return
        host = self._offers.pop(key)
        self._at(self._send(host, "s", now), lambda then: self._arrive((key,), then))

    def _ask(self, key: int, now: float) -> Grant | float:
        assert self.fabric is not None
        return self.fabric.grant_at_once(self._as_offer(key), now, [self._as_offer(one) for one in self._offers])

    def _as_offer(self, key: int) -> Offer:
        host, label = self._labels[key]
        return Offer(key, host, label + self.bound - self.version)

    def _tick(self, now: float) -> None:
        assert self.fabric is not None
        plan = self.fabric.plan([self._as_offer(key) for key in self._offers], now)
        for grant in plan.granted:
            for key in grant.keys:
                del self._offers[key]
            self._begin(grant, now)
        for key in plan.dropped:
            del self._offers[key]
            self.dropped += 1
            self._pull([self._labels.pop(key)[0]], now)
        self._serve(now)
        self._at(now + self.tick_s, self._tick)

    def _begin(self, grant: Grant, now: float) -> None:
        if grant.aggregator is None:
            (key,) = grant.keys
            end = self._send(self._labels[key][0], "s", grant.begins[0])
            self._at(end, lambda then: self._arrive((key,), then))
            return
        self.sums += 1
        ready = max(
            self._send(self._labels[key][0], grant.aggregator, begin)
            for key, begin in zip(grant.keys, grant.begins, strict=True)
        )
        hop = grant.aggregator
        self._at(ready, lambda then: self._at(self._send(hop, "s", then), lambda end: self._arrive(grant.keys, end)))

    def _arrive(self, keys: tuple[int, ...], now: float) -> None:
        hosts = []
        for key in keys:
            host, label = self._labels.pop(key)
            hosts.append(host)
            if self.fabric is not None:
                self.fabric.settle(key)
            if self.version - label >= self.bound:
                self.late += 1
            else:
                self.version += 1
                self.applied += 1
        self._pull(hosts, now)

    def _pull(self, hosts: list[str], now: float) -> None:
        """Serve workers at once; with plans, as soon as the server is idle or a tick comes."""
        self._wanting += hosts
        out = self.network["s"].out.since(now)
        idle = next(max(moment, now) for moment, rate in zip(out.times, out.rates, strict=True) if rate > 0)
        if self.fabric is None or idle == now:
            self._serve(now)
        else:
            self._at(idle, self._serve)

    def _serve(self, now: float) -> None:
        label, relays = self.version, AGGREGATORS[: len(self.rates) - 2] if self.fabric is not None else ()
        horizon = now + self.tick_s if self.fabric is not None else math.inf
        waiting = [PullRequest(number, host) for number, host in enumerate(self._wanting)]
        there: dict[int, float] = {}
        later = []
        for route in spread(waiting, self.network, [("s", BYTES)], relays, now):
            host = self._wanting[route.key]
            if route.begin >= horizon:
                later.append(host)
                continue
            if route.relay is None:
                end = self._send("s", host, now)
            else:
                relay = relays[route.relay]
                if route.relay not in there:
                    there[route.relay] = self._send("s", relay, now)
                end = self._send(relay, host, there[route.relay])
            self._at(end + self.compute_s, lambda then, host=host: self._offer(host, label, then))
        self._wanting = later


AGGREGATORS = ("h1", "h2", "h3")
SECONDS = 40.0


def loops(hosts: int, server: float = 1250.0) -> tuple[Loop, Loop]:
    """Return a run without and one with plans: a transfer takes 80 ms, one host has an eighth, the bound is 2 n."""
    rates = {f"h{number}": (1250.0, 1250.0) for number in range(hosts)} | {"s": (server, server)}
    rates["h0"] = (1250.0 / 8, 1250.0 / 8)
    fabric = FabricPlanner([("s", BYTES)], AGGREGATORS[: hosts - 1], known(rates), 0.1)
    return Loop(rates, 2 * hosts).run(SECONDS), Loop(rates, 2 * hosts, fabric).run(SECONDS)


@pytest.mark.parametrize(("hosts", "factor"), [(3, 0.97), (4, 0.97), (6, 1.0), (8, 1.0), (12, 1.2), (16, 1.3)])
def test_plans_apply_more_where_the_server_is_the_bottleneck_and_no_less_elsewhere(hosts: int, factor: float) -> None:
    direct, planned = loops(hosts)
    assert planned.applied >= factor * direct.applied, (direct.applied, planned.applied)
    assert planned.late <= max(direct.late, 0.05 * planned.applied) * 1.1


def test_into_a_server_with_a_quarter_of_the_rate_far_more_is_applied() -> None:
    direct, planned = loops(8, server=1250.0 / 4)
    assert planned.applied >= 1.3 * direct.applied, (direct.applied, planned.applied)
    assert planned.sums > 0


# --- servers that move ---


def two_servers() -> FabricPlanner:
    rates = {**alike(2), "t": (100.0, 100.0)}
    return FabricPlanner([("s", BYTES), ("t", BYTES)], (), known(rates), tick_s=0.1)


def test_what_goes_to_a_shard_goes_to_the_host_that_serves_it_now() -> None:
    one = two_servers()
    assert one.grant_at_once(Offer(0, "s"), 0.0) == Grant((0,), (0.0,), None, 1.0)
    one.settle(0)
    one.serve(1, "s", 0.0)
    assert one.grant_at_once(Offer(1, "s"), 0.0) == Grant((1,), (0.0,), None, 0.0), "both shards are there"
    assert one.grant_at_once(Offer(2, "h0"), 0.0) == Grant((2,), (0.0,), None, 2.0), "and all of it goes there"


def test_what_is_under_way_to_a_lost_server_delays_nobody() -> None:
    """It is sent anew, to a host that may never have been heard of."""
    one = planner(alike(2))
    one.grant_at_once(Offer(0, "h0"), 0.0)
    assert one.grant_at_once(Offer(1, "h1"), 0.5) == 1.0
    one.serve(0, "new", 0.5)
    assert one.grant_at_once(Offer(1, "h1"), 0.5) == Grant((1,), (0.5,), None, pytest.approx(1.5))
    one.arrive(0, "h0", 0.0, 4.0)
    one.settle(0)


def test_a_transfer_that_waited_for_a_server_tells_of_no_rate() -> None:
    one = two_servers()
    before = one.plan([Offer(5, "h0")], 100.0).granted[0].end
    one.settle(5)
    one.grant_at_once(Offer(0, "h0"), 100.0)
    one.serve(0, "s", 101.0)
    one.arrive(0, "h0", 100.0, 90100.0)
    assert one.plan([Offer(6, "h0")], 200000.0).granted[0].end == pytest.approx(200000.0 + before - 100.0)


# --- without any knowledge ---


def ignorant(size_bytes: float) -> FabricPlanner:
    return FabricPlanner([("s", size_bytes), ("s", size_bytes), ("t", size_bytes)], (), SteadyEstimates(), tick_s=0.1)


@pytest.mark.parametrize("size_bytes", [16.0, 4e5, 4e9])
@pytest.mark.parametrize("now", [0.0, 1.5, 1e6])
def test_before_anything_was_seen_nothing_delays_an_offer(size_bytes: float, now: float) -> None:
    """One after the other or together, from one host or from many."""
    one = ignorant(size_bytes)
    for key in range(40):
        begun = now + 0.01 * key
        assert isinstance(one.grant_at_once(Offer(key, f"h{key % 7}"), begun), Grant)
    plan = one.plan([Offer(key, f"h{key % 29}") for key in range(100, 140)], now + 1)
    assert sorted(key for grant in plan.granted for key in grant.keys) == list(range(100, 140))
    assert (plan.dropped, plan.waiting) == ((), ())


def test_what_was_seen_first_is_expected_of_all() -> None:
    one = ignorant(1e6)
    one.grant_at_once(Offer(0, "h0"), 1.0)
    one.arrive(0, "h0", 1.0, 2.0)
    grant = one.grant_at_once(Offer(1, "h1"), 10.0)
    assert isinstance(grant, Grant)
    assert grant.end == pytest.approx(11.0, abs=0.3)


def test_what_is_beside_every_server_is_sent_at_once_even_if_it_may_be_late() -> None:
    """It takes no part of the network, and its delay is judged where it arrives."""
    one = planner(alike(1))
    for key in range(3):
        assert isinstance(one.grant_at_once(Offer(key, "s", 1), 0.0), Grant)


# --- helpers that are not known before ---


def helped(others: int) -> FabricPlanner:
    """Plan for a slow server and fast hosts, of which nobody knows before the run which of them there will be."""
    rates = {"s": (100.0, 100.0)} | {f"h{number}": (1000.0, 1000.0) for number in range(6)}
    return FabricPlanner([("s", BYTES)], (), known(rates), 0.1, others=others)


def test_hosts_that_are_able_sum_up_to_a_number_of_them_and_never_a_server() -> None:
    offers = [Offer(number, f"h{number}") for number in range(6)]
    assert not helped(0).sums
    assert not helped(0).relays
    planner = helped(2)
    assert planner.sums
    assert planner.relays
    used = {one.aggregator for one in helped(2).plan(offers, 0.0, ["s", "h5", "h4", "h3"]).granted} - {None}
    assert used
    assert used <= {"h5", "h4"}


def test_nobody_sums_if_nobody_is_able() -> None:
    offers = [Offer(number, f"h{number}") for number in range(6)]
    for able in ((), ["s"], None):
        assert {one.aggregator for one in helped(2).plan(offers, 0.0, able).granted} == {None}


def test_hosts_that_are_able_hand_on_up_to_a_number_of_them() -> None:
    waiting = [PullRequest(number, f"h{number}") for number in range(6)]
    granted = helped(1).plan_pulls(waiting, 0.0, ["s", "h3", "h2"]).granted
    assert {one.relay for one in granted} <= {None, "h3"}
    assert "h3" in {one.relay for one in granted}


# --- what pulls tell ---


def with_relays() -> FabricPlanner:
    """Relays are on one host; a transfer takes a second."""
    return FabricPlanner([("s", 1e6)], (), Estimates(1e6, forget_s=1e9), tick_s=0.1, relays=["h0"])


def test_parameters_that_are_late_are_under_way_until_they_come() -> None:
    one = with_relays()
    assert one.plan_pulls([PullRequest(1, "h1")], 0.0).granted
    assert not one.plan_pulls([PullRequest(2, "h2")], 0.5).granted, "the server is busy"
    one.pulled(1, 0.0, 100.0)
    (grant,) = one.plan_pulls([PullRequest(2, "h2")], 120.0).granted
    assert grant.end == pytest.approx(220.0), "and takes as long with the next one"


def test_parameters_for_a_worker_that_is_gone_are_expected_no_longer() -> None:
    one = with_relays()
    one.plan_pulls([PullRequest(1, "h1")], 0.0)
    one.settle_pull(1)
    one.settle_pull(1)
    assert one.plan_pulls([PullRequest(2, "h2")], 0.5).granted


def test_what_a_relay_hands_on_tells_of_its_rate_and_what_it_fetched_of_the_server_s() -> None:
    one = with_relays()
    requests = [PullRequest(number, host) for number, host in enumerate(("h0", "h0", "h2", "h1"))]
    granted = {grant.key: grant.relay for grant in one.plan_pulls(requests, 0.0).granted}
    assert granted == {0: "h0", 1: "h0", 3: "h0"}
    one.pulled(0, 0.0, 1.0)
    one.pulled(1, 0.0, 1.0)
    one.pulled(3, 0.0, 11.0)
    state = one._estimates.state(["s", "h0", "h1"], 20.0)
    assert state["s"].out.at(20.0) == pytest.approx(1e6)
    assert min(state["h0"].out.at(20.0), state["h1"].into.at(20.0)) == pytest.approx(1e5)


def test_a_relay_that_has_become_slow_is_noticed_while_it_hands_on() -> None:
    """It has the parameters at 1.0 s, and would need another 0.1 s."""
    hosts, size_bytes, estimates = ("h1", "h2", "h3"), 1e6, SteadyEstimates()
    for number, (sender, receiver) in enumerate((one, other) for one in hosts for other in hosts if one != other):
        estimates.observe(Sighting(sender, receiver, size_bytes, -2.0 + 0.1 * number, -1.9 + 0.1 * number))
    estimates.observe(Sighting("s", "h1", size_bytes, -1.0, 0.0))
    one = FabricPlanner([("s", size_bytes)], hosts, estimates, 0.1, hosts)
    granted = one.plan_pulls([PullRequest(number, f"h{number}") for number in (1, 2, 3)], 0.0).granted
    (relay,) = {each.relay for each in granted}
    one.pulled(int(str(relay)[1:]), 0.0, 1.0)
    before, after = (one._rates(hosts, now)[str(relay)].out.at(now) for now in (1.05, 3.0))
    assert before == pytest.approx(1e7, rel=0.2)
    assert after < 0.3 * before
