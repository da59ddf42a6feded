"""What interfaces can carry where rates stay, learned from transfers that have ended."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable

import cloudpickle
import pytest

from psplatform.network.learning import learned_rates
from psplatform.network.sightings import Sighting
from psplatform.network.steady import SteadyEstimates

MB = 1e6


class Cluster:
    """Hosts with true rates; what goes from one to another alone takes as long as the slower direction needs."""

    def __init__(self, rates: dict[str, float], fastest: float = 1000 * MB) -> None:
        self.rates, self.now = dict(rates), 0.0
        self.estimates = SteadyEstimates(fastest)

    def send(self, sender: str, receiver: str, size_bytes: float = 10 * MB) -> None:
        self.together([(sender, receiver)], size_bytes)

    def together(self, pairs: Iterable[tuple[str, str]], size_bytes: float = 10 * MB) -> None:
        """Let transfers begin at once that share one host's interface, one byte of each in turn."""
        pairs = list(pairs)
        shared = min(self.rates[sender] for sender, _ in pairs), min(self.rates[to] for _, to in pairs)
        end = self.now + len(pairs) * size_bytes / min(shared)
        for sender, receiver in pairs:
            self.estimates.observe(Sighting(sender, receiver, size_bytes, self.now, end))
        self.now = end

    def out(self, host: str) -> float:
        return self.estimates.state([host], self.now)[host].out.at(self.now)

    def into(self, host: str) -> float:
        return self.estimates.state([host], self.now)[host].into.at(self.now)


def around_server(server: float = 100 * MB, worker: float = 400 * MB, *, workers: str = "abcd") -> Cluster:
    """Return a cluster of which every worker has sent a gradient to the server `s`."""
    cluster = Cluster({**dict.fromkeys(workers, worker), "s": server})
    for name in workers:
        cluster.send(name, "s")
    return cluster


def about(rate: float) -> object:
    return pytest.approx(rate, rel=0.01)


# --- what is known ---


def test_nothing_is_known_at_first() -> None:
    assert Cluster({"a": MB}, fastest=5.0).out("a") == 5.0


def test_what_is_busy_with_several_others_limits_and_they_are_hoped_to_be_faster() -> None:
    """The first one is not told from the server when it sends; the others tell."""
    cluster = around_server()
    assert cluster.into("s") == about(100 * MB)
    assert [cluster.out(name) for name in "abcd"] == [about(200 * MB)] * 4


def test_among_each_other_workers_show_what_they_can_carry() -> None:
    cluster = around_server()
    cluster.send("a", "b")
    assert (cluster.out("a"), cluster.into("b")) == (about(400 * MB), about(400 * MB))
    cluster.send("a", "s")
    assert (cluster.out("a"), cluster.into("s")) == (about(400 * MB), about(100 * MB)), "and it stays known"


def test_one_that_is_slow_with_a_server_that_can_do_more_is_known_to_be() -> None:
    cluster = around_server()
    cluster.rates["e"] = 50 * MB
    cluster.send("e", "s")
    assert (cluster.out("e"), cluster.into("s")) == (about(50 * MB), about(100 * MB))


def test_one_that_carries_others_at_the_same_time_is_what_limits_them() -> None:
    cluster = Cluster({**dict.fromkeys("abc", 400 * MB), "s": 100 * MB})
    cluster.together([("s", name) for name in "abc"])
    assert cluster.out("s") == about(100 * MB)
    assert min(cluster.into(name) for name in "abc") >= 100 * MB


def test_with_one_pair_either_may_be_what_limits() -> None:
    cluster = Cluster({"a": 400 * MB, "s": 100 * MB})
    cluster.send("a", "s")
    assert (cluster.out("a"), cluster.into("s")) == (about(100 * MB), about(100 * MB))


def test_of_hosts_that_are_all_alike_each_is_tried_and_known_by_that() -> None:
    cluster = around_server(100 * MB, 100 * MB)
    assert cluster.into("a") == about(200 * MB)
    for sender, receiver in ("ab", "bc", "cd", "da"):
        cluster.send(sender, receiver)
    assert [rate(name) for name in "abcd" for rate in (cluster.out, cluster.into)] == [about(100 * MB)] * 8


def test_what_is_known_to_be_slow_stays_so_however_seldom_it_is_used() -> None:
    cluster = around_server()
    cluster.rates["e"] = 50 * MB
    for _ in range(3):
        for name in "abe":
            cluster.send(name, "s")
        cluster.now += 300.0
        assert (cluster.out("e"), cluster.into("s")) == (about(50 * MB), about(100 * MB))


@pytest.mark.parametrize("times", [0.7, 2.0])
def test_what_has_become_a_little_slower_or_faster_is_known_after_a_minute_of_use(times: float) -> None:
    cluster = around_server()
    cluster.rates["s"] *= times
    for name in "abcd" * 8:
        cluster.send(name, "s")
        cluster.now += 2.0
    assert cluster.into("s") == about(times * 100 * MB)


def test_a_single_transfer_that_seemed_faster_counts_for_a_minute() -> None:
    cluster = around_server()
    cluster.estimates.observe(Sighting("a", "s", 10 * MB, cluster.now, cluster.now + 0.05))
    assert cluster.into("s") > 150 * MB
    for name in "abcd" * 8:
        cluster.now += 2.0
        cluster.send(name, "s")
    assert cluster.into("s") == about(100 * MB)


@pytest.mark.parametrize("seed", range(10))
def test_whoever_sends_to_whom_no_way_is_taken_for_slower_than_it_is(seed: int) -> None:
    """And once all have sent to all, the slowest are known."""
    chance = random.Random(seed)
    rates = {name: chance.choice([50, 100, 200, 400]) * MB for name in "abcdef"}
    cluster = Cluster(rates)
    pairs = [(one, other) for one in rates for other in rates if one != other] * 2
    chance.shuffle(pairs)
    for sender, receiver in pairs:
        cluster.send(sender, receiver)
    for one, other in pairs:
        way = min(cluster.out(one), cluster.into(other))
        assert way >= 0.99 * min(rates[one], rates[other]), f"seed {seed}: {one} to {other}"
    slowest = min(rates.values())
    for name in (one for one, rate in rates.items() if rate == slowest):
        assert (cluster.out(name), cluster.into(name)) == (about(slowest), about(slowest)), f"seed {seed}: {name}"


# --- what becomes slower ---


def test_one_that_has_become_slower_is_found_by_the_second_peer_that_is_slow_with_it() -> None:
    cluster = around_server()
    for sender, receiver in ("ab", "bc", "cd", "da"):
        cluster.send(sender, receiver)
    cluster.rates["b"] = 40 * MB
    for sender in "ac":
        cluster.send(sender, "b")
    assert cluster.into("b") == about(40 * MB)
    assert [cluster.out(name) for name in "ac"] == [about(400 * MB)] * 2


def test_one_that_was_as_fast_as_ever_since_a_transfer_began_is_not_what_slows_it() -> None:
    cluster = around_server()
    cluster.send("a", "b")
    cluster.send("c", "d")
    begin = cluster.now
    cluster.send("c", "b")
    cluster.estimates.observe(Sighting("a", "b", 10 * MB, begin, begin + 0.25))
    cluster.now = begin + 0.25
    assert (cluster.out("a"), cluster.into("b")) == (about(40 * MB), about(400 * MB))


def test_a_transfer_that_should_have_ended_tells_before_it_ends() -> None:
    cluster = around_server()
    for sender, receiver in ("ab", "bc", "cd", "da"):
        cluster.send(sender, receiver)
    now = cluster.now + 0.25
    running = [Sighting(name, "b", 10 * MB, cluster.now, now) for name in "a"]
    state = cluster.estimates.state("ab", now, running)
    assert sorted([state["a"].out.at(now), state["b"].into.at(now)]) == [about(40 * MB), about(400 * MB)]


def test_a_little_more_time_than_that_makes_none_slower() -> None:
    """Others want the processor as well."""
    cluster = around_server()
    cluster.send("a", "b")
    begin, end = cluster.now, cluster.now + 10 / 300
    cluster.estimates.observe(Sighting("a", "b", 10 * MB, begin, end))
    cluster.now = end
    assert (cluster.out("a"), cluster.into("b")) == (about(400 * MB), about(400 * MB))


@pytest.mark.parametrize("known_to_run", [True, False])
def test_beside_others_that_go_on_none_is_slow(known_to_run: bool) -> None:
    """They may have had all of it, whether they are known to go on still or not."""
    cluster = around_server()
    begin, now = cluster.now, cluster.now + 0.3
    going_on = [Sighting(name, "s", 10 * MB, begin, now) for name in "bc"]
    cluster.estimates.observe(Sighting("a", "s", 10 * MB, begin, now))
    state = cluster.estimates.state("abcs", now, *((going_on, ()) if known_to_run else ((), going_on)))
    assert state["s"].into.at(now) == about(100 * MB)
    assert min(state[name].out.at(now) for name in "abc") >= 100 * MB


# --- what says nothing ---


@pytest.mark.parametrize(
    "seen",
    [
        Sighting("a", "a", 10 * MB, 0.0, 1.0),
        Sighting("a", "b", 1000.0, 0.0, 1.0),
        Sighting("a", "b", 10 * MB, 0.0, 0.0005),
    ],
    ids=["on one host", "small", "short"],
)
def test_what_tells_no_rate_is_not_believed(seen: Sighting) -> None:
    estimates = SteadyEstimates(7.0)
    estimates.observe(seen)
    state = estimates.state("ab", 1.0, [seen], [seen])
    assert {state[host].out.at(1.0) for host in "ab"} == {7.0}


def test_the_order_in_which_transfers_are_told_is_of_no_consequence() -> None:
    sightings = [Sighting(name, "s", 10 * MB, at, at + 0.1) for at, name in enumerate("abcd")]
    found = set()
    for seed in range(5):
        random.Random(seed).shuffle(sightings)
        estimates = SteadyEstimates()
        for one in sightings:
            estimates.observe(one)
        state = estimates.state("abcds", 4.0)
        found.add(tuple(state[host].out.at(4.0) for host in "abcds"))
    assert len(found) == 1


def test_where_it_is_said_how_often_rates_change_what_was_seen_is_forgotten_so_soon() -> None:
    after = {}
    for changes_s in (None, 5.0, 50.0):
        learned = learned_rates(changes_s)
        for at, sender in enumerate("abc"):
            learned.observe(Sighting(sender, "s", 10 * MB, at, at + 0.1))
        learned.observe(Sighting("a", "b", 10 * MB, 3.0, 3.025))
        after[changes_s] = learned.state("s", 13.0)["s"].into.at(13.0)
    assert after[None] == about(100 * MB)
    assert after[5.0] > after[50.0] > 100 * MB


def test_of_many_hosts_a_copy_and_what_was_sent_know_the_same() -> None:
    """A standby begins with a copy: that must not lead from one direction through all the others."""
    cluster = Cluster(dict.fromkeys((f"h{number}" for number in range(200)), 100 * MB))
    names = list(cluster.rates)
    for distance in (1, 7, 31):
        for number, name in enumerate(names):
            cluster.send(name, names[(number + distance) % len(names)])
    expected = [cluster.out(name) for name in names]
    for copied in (copy.deepcopy(cluster.estimates), cloudpickle.loads(cloudpickle.dumps(cluster.estimates))):
        state = copied.state(names, cluster.now)
        assert [state[name].out.at(cluster.now) for name in names] == expected
