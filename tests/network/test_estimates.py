"""What interfaces can carry, learned from transfers that have ended."""

from __future__ import annotations

import math
import random

import pytest

from psplatform.network.estimates import Estimates
from psplatform.network.rates import Rates
from psplatform.network.sightings import Sighting
from psplatform.network.state import Interface, NetworkState

MB = 1e6


class Cluster:
    """Hosts with true rates, on which transfers go one after the other, each observed when it has ended."""

    def __init__(self, rates: dict[str, tuple[float, float]], **given: float) -> None:
        self.rates, self.now = dict(rates), 0.0
        self.estimates = Estimates(**{"fastest": 1000 * MB, "forget_s": 1e6, **given})

    def send(self, sender: str, receiver: str, size_bytes: float = 10 * MB) -> None:
        seconds = size_bytes / min(self.rates[sender][0], self.rates[receiver][1])
        begin, end = self.now, self.now + seconds
        self.estimates.observe(Sighting(sender, receiver, size_bytes, begin, end))
        self.now = end + seconds  # until it is judged

    def send_together(self, *pairs: tuple[str, str], size_bytes: float = 10 * MB) -> None:
        """Send at the same time into one interface, which is what is slow: all of them end together."""
        (receiver,) = {to for _, to in pairs}
        end = self.now + len(pairs) * size_bytes / self.rates[receiver][1]
        for sender, _ in pairs:
            self.estimates.observe(Sighting(sender, receiver, size_bytes, self.now, end))
        self.now += 2 * (end - self.now)

    def path(self, sender: str, receiver: str) -> float:
        state = self.estimates.state((sender, receiver), self.now)
        return min(state[sender].out.at(self.now), state[receiver].into.at(self.now))

    def into(self, host: str) -> float:
        return self.estimates.state([host], self.now)[host].into.at(self.now)

    def out(self, host: str) -> float:
        return self.estimates.state([host], self.now)[host].out.at(self.now)


def test_nothing_is_known_at_first() -> None:
    state = Estimates(fastest=5.0, forget_s=1.0).state(["a"], now=3.0)
    assert state["a"] == Interface(Rates.steady(5.0, 3.0), Rates.steady(5.0, 3.0))


def test_the_server_is_what_is_slow_where_workers_are_faster_among_each_other() -> None:
    cluster = Cluster({"a": (400 * MB, 400 * MB), "b": (400 * MB, 400 * MB), "s": (100 * MB, 100 * MB)})
    cluster.send("a", "s")
    cluster.send("a", "b")
    assert (cluster.out("a"), cluster.into("b")) == pytest.approx((400 * MB, 400 * MB), rel=1e-3)
    assert cluster.into("s") == pytest.approx(100 * MB, rel=1e-3)


def test_one_slow_worker_is_found_and_the_server_cleared_by_the_others() -> None:
    cluster = Cluster({"a": (400 * MB, 400 * MB), "slow": (50 * MB, 50 * MB), "s": (100 * MB, 100 * MB)})
    for _ in range(2):
        cluster.send("a", "s")
        cluster.send("slow", "s")
    cluster.send("a", "s")
    assert (cluster.path("a", "s"), cluster.path("slow", "s")) == pytest.approx((100 * MB, 50 * MB), rel=1e-3)


def test_a_rate_that_has_changed_is_known_after_the_next_transfer_of_each_of_two_workers() -> None:
    cluster = Cluster({"a": (400 * MB, 400 * MB), "b": (400 * MB, 400 * MB), "s": (100 * MB, 100 * MB)})
    for sender in ("a", "b", "a", "b"):
        cluster.send(sender, "s")
    for rate in (20 * MB, 300 * MB):
        cluster.rates["s"] = rate, rate
        cluster.send("a", "s")
        assert cluster.path("a", "s") == pytest.approx(rate, rel=1e-3)
        cluster.send("b", "s")
        assert cluster.path("b", "s") == pytest.approx(rate, rel=1e-3)


def test_of_two_that_may_have_slowed_down_it_is_the_one_that_was_seen_longest_ago() -> None:
    cluster = Cluster(dict.fromkeys("abs", (100 * MB, 100 * MB)))
    for sender in ("a", "b", "b"):
        cluster.send(sender, "s")
    cluster.rates["a"] = 20 * MB, 20 * MB
    cluster.send("a", "s")
    assert (cluster.out("a"), cluster.into("s")) == pytest.approx((20 * MB, 100 * MB), rel=1e-3)


def test_transfers_that_wait_for_each_other_do_not_count_twice() -> None:
    """Ten are sent at once and come one after the other, at the rate of the server and no more."""
    estimates = Estimates(fastest=1000 * MB, forget_s=1e6)
    for number in range(1, 11):
        estimates.observe(Sighting(f"w{number}", "s", 10 * MB, 0.0, 0.1 * number))
    assert estimates.state(["s"], 2.0)["s"].into.at(2.0) == pytest.approx(100 * MB, rel=1e-3)


def test_what_should_have_ended_shows_a_slow_server_before_it_ends() -> None:
    """Of two that take long already it can have carried one at most, and neither worker is held to be slow."""
    cluster = Cluster(dict.fromkeys("abs", (100 * MB, 100 * MB)))
    for sender in ("a", "b", "a", "b"):
        cluster.send(sender, "s")
    running = [Sighting(sender, "s", 10 * MB, cluster.now, cluster.now + 1.0) for sender in "ab"]
    state = cluster.estimates.state("abs", cluster.now + 1.0, running)
    assert state["s"].into.at(cluster.now + 1) == pytest.approx(10 * MB, rel=1e-3)
    assert min(state[one].out.at(cluster.now + 1) for one in "ab") > 15 * MB


@pytest.mark.parametrize("ended", [False, True])
def test_a_transfer_beside_one_that_goes_on_is_not_slow_by_itself(ended: bool) -> None:
    """Each has half of what the server takes; whether the other one ends at last makes no difference."""
    cluster = Cluster({"a": (100 * MB, 100 * MB), "slow": (50 * MB, 50 * MB), "s": (100 * MB, 100 * MB)})
    for sender in ("a", "slow") * 5:
        cluster.send(sender, "s")
    begin, estimates = cluster.now, cluster.estimates
    a, slow = Sighting("a", "s", 10 * MB, begin, begin + 0.2), Sighting("slow", "s", 15 * MB, begin, begin + 0.3)
    running = [] if ended else [Sighting("slow", "s", 15 * MB, begin, begin + 0.25)]
    estimates.observe(a)
    if ended:
        estimates.observe(slow)
    state = estimates.state(["a", "s"], begin + 0.25, running)
    assert min(state["a"].out.at(begin + 0.25), state["s"].into.at(begin + 0.25)) > 95 * MB


def test_beside_one_that_goes_on_still_a_rate_that_was_seen_long_ago_is_doubted() -> None:
    for silent_s, slow in ((5.0, False), (60.0, True)):
        estimates = Estimates(fastest=1000 * MB, forget_s=10.0)
        for host in "ab":
            estimates.report(host, 100 * MB, 100 * MB, 0.0)
        estimates.report("s", 100 * MB, 100 * MB, silent_s)
        estimates.observe(Sighting("a", "s", 10 * MB, silent_s, silent_s + 0.5))
        now, beside = silent_s + 0.6, [Sighting("b", "s", 48 * MB, silent_s, silent_s + 0.6)]
        assert (estimates.state(["a"], now, (), beside)["a"].out.at(now) < 50 * MB) is slow


def test_a_transfer_that_hangs_accuses_one_of_its_ends_and_not_both_in_turn() -> None:
    """Whichever it is: the other one keeps its rate, however often that is looked at."""
    cluster = Cluster(dict.fromkeys("abs", (100 * MB, 100 * MB)))
    for sender in ("a", "b", "a", "b"):
        cluster.send(sender, "s")
    begin, accused = cluster.now, set()
    for late_s in (0.2, 0.3, 0.5, 1.0, 2.0, 5.0):
        now = begin + late_s
        state = cluster.estimates.state("abs", now, [Sighting("a", "s", 10 * MB, begin, now)])
        rates = {"a": state["a"].out.at(now), "s": state["s"].into.at(now)}
        accused |= {host for host, rate in rates.items() if rate < 70 * MB}
    assert len(accused) == 1


def test_what_still_runs_says_nothing_before_it_should_have_ended() -> None:
    cluster = Cluster(dict.fromkeys("as", (100 * MB, 100 * MB)))
    cluster.send("a", "s")
    running = [Sighting("a", "s", 10 * MB, cluster.now, cluster.now + 0.1)]
    state = cluster.estimates.state("as", cluster.now + 0.1, running)
    assert state["s"].into.at(cluster.now) == pytest.approx(100 * MB, rel=1e-3)


@pytest.mark.parametrize("known", [False, True])
def test_transfers_at_the_same_time_count_together(known: bool) -> None:
    """Four into one interface at a quarter of its rate each: it carries the sum, and none of the four is slow."""
    cluster = Cluster(dict.fromkeys("abcds", (100 * MB, 100 * MB)))
    if known:
        for sender in "abcd":
            cluster.send(sender, "s")
    for _ in range(3):
        cluster.send_together(*((sender, "s") for sender in "abcd"))
        assert [cluster.out(sender) for sender in "abcd"] == pytest.approx([100 * MB] * 4, rel=1e-3)
        assert cluster.into("s") == pytest.approx(100 * MB, rel=1e-3)


def test_a_server_that_slows_down_is_found_by_the_second_worker_that_is_slow_with_it() -> None:
    cluster = Cluster({**dict.fromkeys("abcxyz", (400 * MB, 400 * MB)), "s": (100 * MB, 100 * MB)})
    cluster.send("x", "y")
    cluster.send("z", "s")
    cluster.rates["s"] = 20 * MB, 20 * MB
    cluster.send("a", "s")
    cluster.send("b", "s")
    assert cluster.into("s") == pytest.approx(20 * MB, rel=1e-3)
    usual = 4 / sum(1 / (rate * MB) for rate in (400, 400, 100, 20))
    assert [cluster.out(sender) for sender in "abc"] == pytest.approx([usual] * 3, rel=1e-3), "nothing is known of them"


def test_the_order_in_which_transfers_are_told_is_of_no_consequence() -> None:
    """Three one after the other, told when all have ended, the last one first."""
    estimates = Estimates(fastest=1000 * MB, forget_s=1e6)
    for number in (2, 1, 0):
        estimates.observe(Sighting("abc"[number], "s", 10 * MB, 0.1 * number, 0.1 * number + 0.1))
    assert estimates.state(["s"], 1.0)["s"].into.at(1.0) == pytest.approx(100 * MB, rel=1e-3)


def test_asking_for_hosts_that_never_sent_keeps_nothing_of_them() -> None:
    estimates = Estimates(fastest=1000 * MB, forget_s=1e6)
    for number in range(5):
        estimates.state([f"h{number}"], 1.0)
    assert not estimates._ways


def test_what_was_seen_long_ago_is_tried_again() -> None:
    """In `forget_s` the seconds for a byte come closer to what is usual by the factor 1/e."""
    cluster = Cluster({"a": (100 * MB, 100 * MB), "b": (100 * MB, 100 * MB), "s": (100 * MB, 10 * MB)}, forget_s=10.0)
    cluster.send("a", "b")
    cluster.send("a", "s")
    known = [1 / (100 * MB), 1 / (100 * MB), 1 / (10 * MB)]
    usual, known_s = sum(known) / 3, known[2]
    assert 1 / cluster.into("s") == pytest.approx(usual + (known_s - usual) * math.exp(-0.1), rel=1e-3)
    cluster.now += 9.0
    assert 1 / cluster.into("s") == pytest.approx(usual + (known_s - usual) / math.e, rel=1e-3)


def test_what_is_not_known_takes_as_long_for_a_byte_as_what_is_known_does_on_average() -> None:
    estimates = Estimates(fastest=1000 * MB, forget_s=10.0)
    estimates.report("a", 400 * MB, 400 * MB, 0.0)
    estimates.report("b", 400 * MB, 57.142857 * MB, 0.0)
    assert estimates.state(["c"], 0.0)["c"].out.at(0.0) == pytest.approx(160 * MB, rel=1e-3)


def test_beside_one_that_goes_on_still_the_unknown_may_well_be_slow() -> None:
    estimates = Estimates(fastest=1000 * MB, forget_s=10.0)
    for host in ("b", "s"):
        estimates.report(host, 100 * MB, 100 * MB, 0.0)
    estimates.observe(Sighting("a", "s", 10 * MB, 0.0, 0.5))
    beside = [Sighting("b", "s", 48 * MB, 0.0, 0.6)]
    assert estimates.state(["a"], 0.6, (), beside)["a"].out.at(0.6) < 50 * MB


def test_a_monitor_is_believed_until_something_newer_is_seen() -> None:
    estimates = Estimates(fastest=1000 * MB, forget_s=1e6)
    estimates.report("a", 40 * MB, 30 * MB, at=5.0)
    estimates.report("a", 1 * MB, 1 * MB, at=4.0)
    state = estimates.state(["a"], 5.0)
    assert (state["a"].out.at(5.0), state["a"].into.at(5.0)) == pytest.approx((40 * MB, 30 * MB), rel=1e-3)
    estimates.report("b", 40 * MB, 40 * MB, at=5.0)
    estimates.observe(Sighting("a", "b", 10 * MB, 6.0, 7.0))
    assert estimates.state(["a"], 8.0)["a"].out.at(8.0) == pytest.approx(10 * MB, rel=1e-3)
    estimates.report("a", 60 * MB, 30 * MB, at=9.0)
    estimates.observe(Sighting("a", "b", 20 * MB, 7.0, 8.0))
    assert estimates.state(["a"], 9.0)["a"].out.at(9.0) == pytest.approx(60 * MB, rel=1e-3)


@pytest.mark.parametrize(
    "seen",
    [
        Sighting("a", "a", 10 * MB, 0.0, 1.0),
        Sighting("a", "b", 100.0, 0.0, 1.0),
        Sighting("a", "b", 10 * MB, 1.0, 1.0),
        Sighting("a", "b", 10 * MB, 2.0, 1.0),
        Sighting("a", "b", 10 * MB, 1.0, 1.0001),
    ],
)
def test_what_says_nothing_about_a_rate_is_not_believed(seen: Sighting) -> None:
    estimates = Estimates(fastest=7.0, forget_s=1.0)
    estimates.observe(seen)
    assert estimates.state(["a"], 1.0)["a"].out.at(1.0) == 7.0


@pytest.mark.parametrize("seed", range(30))
def test_after_every_pair_has_sent_the_rates_into_the_server_are_known(seed: int) -> None:
    """Drawn rates, each worker to the server and to two others, twice, in a drawn order."""
    rng = random.Random(seed)
    workers = [f"w{number}" for number in range(6)]
    cluster = Cluster({host: (rng.uniform(20, 400) * MB, rng.uniform(20, 400) * MB) for host in [*workers, "s"]})
    for _ in range(3):
        pairs = [(one, to) for one in workers for to in ["s", *rng.sample([w for w in workers if w != one], 2)]]
        rng.shuffle(pairs)
        for sender, receiver in pairs:
            cluster.send(sender, receiver)
    for one in workers:
        true = min(cluster.rates[one][0], cluster.rates["s"][1])
        assert cluster.path(one, "s") == pytest.approx(true, rel=0.15), f"seed {seed}: {one}"


def test_plans_on_what_is_known_are_those_on_the_truth() -> None:
    """What the estimates end in is a network like any other."""
    cluster = Cluster({"a": (400 * MB, 400 * MB), "b": (100 * MB, 100 * MB), "s": (100 * MB, 100 * MB)})
    cluster.send("a", "s")
    cluster.send("b", "s")
    known = cluster.estimates.state(("a", "b", "s"), cluster.now)
    true = NetworkState(
        {host: Interface(Rates.steady(out), Rates.steady(into)) for host, (out, into) in cluster.rates.items()}
    )
    for sender in "ab":
        found, expected = (one.transfer(sender, [("s", 10 * MB)], cluster.now).end for one in (known, true))
        assert found == pytest.approx(expected, rel=1e-3)
