"""What has become slower, told by what interfaces carry while transfers go on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from psplatform.core.protocol.messages import Carried
from psplatform.core.transfers import Grant, Offer, PullRequest
from psplatform.network.counters import Count, Counters, Sample
from psplatform.network.estimates import Estimates
from psplatform.network.planner import FabricPlanner
from psplatform.network.sightings import Sighting
from psplatform.network.steady import SteadyEstimates

MB = 1e6
SERVER, WORKER = 100 * MB, 400 * MB
SAMPLE_S, SAID = 0.125, 4
HEADERS = 0.95


def steady() -> SteadyEstimates:
    return SteadyEstimates(1000 * MB)


def changing() -> Estimates:
    return Estimates(1000 * MB, 1e6)


class Cluster:
    """Hosts that say twice a second what they carry, and what is known of them: the server `s` is the slow one."""

    def __init__(self, estimates: SteadyEstimates | Estimates, hosts: str = "abcd", *, worker: float = WORKER) -> None:
        self.estimates, self.hosts, self.now = estimates, [*hosts, "s"], 0.0
        self.uncounted: set[str] = set()
        self.knowing: set[str] = set()
        for host in hosts:  # each reaches the server, and the next one
            self.transfer(host, "s", SERVER)
            self.transfer("s", host, SERVER)
            self.transfer(host, hosts[hosts.index(host) - 1], worker)
            if isinstance(estimates, Estimates):
                estimates.report(host, worker, worker, self.now)
                estimates.report("s", SERVER, SERVER, self.now)

    def transfer(self, sender: str, receiver: str, rate: float) -> None:
        """Let a transfer go on alone for half a second, and end."""
        self.carry({(sender, receiver): rate})
        self.estimates.observe(Sighting(sender, receiver, rate * 0.5, self.now - 0.5, self.now))

    def carry(
        self,
        flows: dict[tuple[str, str], float | Sequence[float]],
        seconds: float = 0.5,
        known: Sequence[tuple[str, str]] | None = None,
        full: str = "",
    ) -> None:
        """Let so many bytes per second go between hosts, in each sample so many if several are given; all say so.

        All of these flows are `known` to be under way, or those that are given.  Of the hosts that are `knowing`, more
        waits to go out of those that are `full`.
        """
        ways = list(flows if known is None else known)
        for _ in range(round(seconds / (SAID * SAMPLE_S))):
            self.now += SAID * SAMPLE_S
            self.estimates.state(self.hosts, self.now)
            for host in self.hosts:
                waiting = 1000 * (host in full) if host in self.knowing else None
                samples = [self._sample(flows, host, number)._replace(waiting=waiting) for number in range(SAID)]
                if host not in self.uncounted:
                    self.estimates.count(Count(f"at {host}", host, tuple(samples)), self.now, ways)

    @staticmethod
    def _sample(flows: dict[tuple[str, str], float | Sequence[float]], host: str, number: int) -> Sample:
        def carried(place: int) -> float:
            rates = [rate for way, rate in flows.items() if way[place] == host]
            return sum(one if isinstance(one, int | float) else one[number] for one in rates) * SAMPLE_S / HEADERS

        return Sample(SAMPLE_S, carried(0), carried(1))

    def rates(self, host: str) -> tuple[float, float]:
        """Return what is believed of a host, outward and inward, in millions of bytes per second."""
        state = self.estimates.state([host], self.now)[host]
        return round(state.out.at(self.now) / MB), round(state.into.at(self.now) / MB)


@pytest.fixture(params=[steady, changing])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    return Cluster(request.param())


def believed(cluster: Cluster) -> dict[str, tuple[float, float]]:
    return {host: cluster.rates(host) for host in cluster.hosts}


def test_a_sender_that_gets_much_less_than_its_share_of_a_busy_server_is_slow() -> None:
    cluster = Cluster(steady(), worker=SERVER)
    others = believed(cluster)
    cluster.carry({("a", "s"): 4 * MB, ("b", "s"): 95 * MB}, seconds=0.5)
    assert believed(cluster) == others, "half a second tells nothing yet"
    cluster.carry({("a", "s"): 4 * MB, ("b", "s"): 95 * MB}, seconds=1.0)
    assert believed(cluster) == others | {"a": (4, others["a"][1])}


def test_a_sender_is_slow_if_the_server_could_take_more(cluster: Cluster) -> None:
    before = believed(cluster)
    cluster.carry({("a", "s"): 30 * MB}, seconds=1.5)
    out, _ = cluster.rates("a")
    assert out == pytest.approx(30, abs=2)
    assert cluster.rates("s")[1] == pytest.approx(before["s"][1], rel=0.1)


def test_a_receiver_is_slow_while_its_sender_sends_to_others_as_well(cluster: Cluster) -> None:
    before = believed(cluster)
    cluster.carry({("b", "a"): 50 * MB, ("b", "s"): 95 * MB, ("d", "a"): 20 * MB}, seconds=1.5)
    assert cluster.rates("a")[1] == pytest.approx(70, abs=5)
    assert cluster.rates("b")[0] == pytest.approx(before["b"][0], rel=0.1)


def test_a_sender_that_is_slow_with_several_is_slow(cluster: Cluster) -> None:
    cluster.carry({("a", "b"): 20 * MB, ("a", "c"): 20 * MB}, seconds=1.5)
    assert cluster.rates("a")[0] == pytest.approx(40, abs=3)


def test_equal_shares_blame_nobody(cluster: Cluster) -> None:
    before = believed(cluster)
    cluster.carry({(one, "s"): 25 * MB for one in "abcd"}, seconds=3.0)
    cluster.carry({("s", one): 25 * MB for one in "abcd"}, seconds=3.0)
    cluster.carry({("a", one): 130 * MB for one in "bcd"}, seconds=3.0)
    for host, rates in believed(cluster).items():
        assert rates == pytest.approx(before[host], rel=0.1)


@pytest.mark.parametrize(
    "carried",
    [0.0, [0.0, 0.0, 30 * MB, 30 * MB], [30 * MB, 0.0, 30 * MB, 30 * MB], [10 * MB, 30 * MB, 20 * MB, 40 * MB]],
    ids=["nothing", "half of the time", "with a pause", "unevenly"],
)
def test_what_is_packed_or_copied_meanwhile_blames_nobody(cluster: Cluster, carried: float | Sequence[float]) -> None:
    before = believed(cluster)
    cluster.carry({("a", "s"): carried, ("b", "c"): carried}, seconds=3.0)
    for host, rates in believed(cluster).items():
        assert rates == pytest.approx(before[host], rel=0.1)


def test_what_only_confirms_the_packets_of_the_other_direction_blames_nobody(cluster: Cluster) -> None:
    before = believed(cluster)
    cluster.carry({("b", "a"): 390 * MB, ("a", "b"): 8 * MB}, seconds=3.0)
    assert cluster.rates("a")[0] == pytest.approx(before["a"][0], rel=0.1)


def test_messages_blame_nobody(cluster: Cluster) -> None:
    before = believed(cluster)
    cluster.carry({("b", "a"): 2 * MB}, seconds=3.0)
    assert cluster.rates("a")[1] == pytest.approx(before["a"][1], rel=0.1)


def test_what_is_confirmed_late_because_the_other_direction_is_busy_blames_nobody(cluster: Cluster) -> None:
    """The server sends all it can to others, and what it receives waits for what it confirms."""
    before = believed(cluster)
    little = [30 * MB, 26 * MB, 33 * MB, 28 * MB]
    cluster.carry({("s", "b"): 50 * MB, ("s", "c"): 50 * MB, ("a", "s"): little}, seconds=3.0)
    for host, rates in believed(cluster).items():
        assert rates == pytest.approx(before[host], rel=0.1)


def test_what_is_the_same_all_the_time_is_limited_by_an_interface_though_the_other_direction_is_busy(
    cluster: Cluster,
) -> None:
    cluster.carry({("s", "b"): 50 * MB, ("s", "c"): 50 * MB, ("a", "s"): 30 * MB}, seconds=3.0)
    assert cluster.rates("a")[0] == pytest.approx(30, abs=2)


def test_little_that_is_the_same_for_a_moment_only_may_wait_for_its_confirmations(cluster: Cluster) -> None:
    before = believed(cluster)
    others = {("s", "b"): 50 * MB, ("s", "c"): 50 * MB}
    for little in ([20 * MB] * 4, [20 * MB, 20 * MB, 16 * MB, 22 * MB]):
        cluster.carry({**others, ("a", "s"): little})
    cluster.carry(others, seconds=1.5)
    for host, rates in believed(cluster).items():
        assert rates == pytest.approx(before[host], rel=0.1)


def test_a_server_that_has_become_slower_is_found_though_others_are_blamed_first(cluster: Cluster) -> None:
    for one in "abcd":
        cluster.carry({(one, "s"): 40 * MB}, seconds=1.5)
        cluster.carry({}, seconds=1.5)
        cluster.transfer(one, "abcd"["abcd".index(one) - 1], WORKER)
    assert cluster.rates("s")[1] == pytest.approx(40, rel=0.1)
    assert all(cluster.rates(one)[0] > 200 for one in "abcd")


def test_what_carries_more_than_was_known_is_known_to(cluster: Cluster) -> None:
    cluster.carry({("a", "b"): 50 * MB, ("a", "c"): 50 * MB}, seconds=1.5)
    assert cluster.rates("a")[0] == pytest.approx(100, rel=0.05)
    cluster.carry({("a", "b"): 150 * MB, ("a", "c"): 150 * MB}, seconds=1.5)
    assert cluster.rates("a")[0] == pytest.approx(300, rel=0.05)


def test_one_that_carries_all_that_a_busy_server_takes_is_hoped_to_carry_more() -> None:
    cluster = Cluster(steady())
    cluster.carry({("a", "b"): 10 * MB, ("a", "c"): 10 * MB}, seconds=2.0)
    assert cluster.rates("a")[0] == 20
    cluster.carry({("a", "s"): 95 * MB}, seconds=2.0)
    assert cluster.rates("a")[0] == 800, "twice as much as most, as what is unknown"
    assert cluster.rates("s")[1] == 100


def test_what_began_before_a_direction_has_become_slower_does_not_prove_more() -> None:
    cluster = Cluster(steady())
    begun = cluster.now
    cluster.carry({("a", "b"): 380 * MB}, seconds=0.5)
    cluster.carry({("a", "b"): 30 * MB}, seconds=1.5)
    assert cluster.rates("a")[0] == 30
    cluster.estimates.observe(Sighting("a", "b", 235 * MB, begun, cluster.now))
    assert cluster.rates("a")[0] == 30


def test_counters_that_do_not_contain_what_goes_through_tell_nothing(cluster: Cluster) -> None:
    """Processes of one machine under several addresses: what they send to each other passes no interface."""
    cluster.estimates = (
        type(cluster.estimates)(1000 * MB, 1e6) if isinstance(cluster.estimates, Estimates) else steady()
    )
    cluster.carry({})
    for one in "abcd":
        cluster.estimates.observe(Sighting(one, "s", SERVER, cluster.now - 1.0, cluster.now))
    cluster.carry({})
    before = believed(cluster)
    cluster.carry({(one, "s"): 5 * MB for one in "ab"}, seconds=3.0)
    assert believed(cluster) == before


def test_what_goes_where_nobody_knows_of_blames_nobody(cluster: Cluster) -> None:
    """Of a transfer to `c` nothing is known, and the one to `b` has not begun."""
    before = believed(cluster)
    cluster.carry({("a", "c"): 30 * MB, ("a", "b"): 0.0}, seconds=2.0, known=[("a", "b")])
    for host, rates in believed(cluster).items():
        assert rates == pytest.approx(before[host], rel=0.1)


def test_what_goes_out_while_more_waits_is_what_a_host_can_send(cluster: Cluster) -> None:
    """However much the server has to do, and although it carries no more."""
    cluster.knowing = {"a"}
    cluster.carry({("a", "s"): 30 * MB, ("b", "s"): 30 * MB}, seconds=1.0, full="a")
    assert cluster.rates("a")[0] == pytest.approx(30, abs=1)
    assert cluster.rates("s")[1] == pytest.approx(100, abs=1)
    assert cluster.rates("b")[0] > 100
    cluster.carry({("a", "b"): WORKER}, seconds=1.0, full="a")
    assert cluster.rates("a")[0] == pytest.approx(400, abs=4)


def test_what_went_out_before_more_has_waited_does_not_tell_against_that(cluster: Cluster) -> None:
    """It is looked at later; neither the sender nor the receiver is what it was."""
    cluster.knowing = {"a"}
    cluster.carry({("a", "b"): WORKER}, seconds=1.5)
    for _ in range(4):
        cluster.carry({("a", "b"): 30 * MB}, full="a")
        assert cluster.rates("a")[0] == pytest.approx(30, abs=1)
    receiver = cluster.rates("s")[1]
    cluster.carry({("a", "s"): 30 * MB}, seconds=1.5, full="a")
    for _ in range(4):
        cluster.carry({("a", "s"): 95 * MB}, full="a")
        assert cluster.rates("s")[1] == receiver
    assert cluster.rates("a")[0] == pytest.approx(95, abs=1)


def test_what_is_said_late_is_left_out() -> None:
    """Later samples were judged by then, and what they tell is newer."""
    counters = Counters()
    assert counters.take(Count("at a", "a", (Sample(SAMPLE_S, 1.0, 0.0),) * SAID), 1.0)
    assert counters.take(Count("at b", "b", (Sample(SAMPLE_S, 1.0, 0.0),) * SAID), 1.0)
    ends = [0.625, 0.75, 0.875, 1.0]
    assert counters.take_unjudged(0.8) == [(at, host) for at in ends[:2] for host in "ab"]
    assert counters.take(Count("at b", "b", (Sample(SAMPLE_S, 1.0, 0.0),) * SAID), 1.5)
    assert counters.take_unjudged(1.3) == [
        (0.875, "a"),
        (0.875, "b"),
        (1.0, "a"),
        (1.0, "b"),
        (1.125, "b"),
        (1.25, "b"),
    ]
    assert counters.take(Count("at a", "a", (Sample(SAMPLE_S, 1.0, 0.0),) * SAID), 2.4)
    assert counters.take_unjudged(3.0) == [(1.375, "a"), (1.375, "b"), (1.5, "a"), (1.5, "b")], "none from before 1.3"


def test_what_waits_for_a_moment_or_goes_out_packet_by_packet_tells_nothing(cluster: Cluster) -> None:
    """Of a few packets in a sample nobody can say what rate that is."""
    before = cluster.rates("a")[0]
    cluster.knowing = {"a"}
    cluster.carry({("a", "s"): [0.0, 0.2 * MB, 0.0, 0.0]}, seconds=2.0, full="a")
    cluster.carry({("a", "s"): 30 * MB})
    cluster.carry({})
    assert cluster.rates("a")[0] == pytest.approx(before, rel=0.01)


def test_what_was_full_a_while_ago_is_not_so_now(cluster: Cluster) -> None:
    """A host that was asleep since says two samples of nothing first."""
    cluster.knowing = {"a"}
    cluster.carry({("a", "s"): 30 * MB}, seconds=1.0, full="a")
    cluster.carry({("a", "b"): WORKER}, seconds=1.0, full="a")
    counters = cluster.estimates._counters
    until = cluster.now
    assert counters.full_rate("a", until) == pytest.approx(WORKER, rel=0.01)
    cluster.now += 2.0
    cluster.estimates.count(Count("at a", "a", (Sample(SAMPLE_S, 0.0, 0.0, 0),) * 2), cluster.now)
    assert counters.full_rate("a", cluster.now) is None
    assert not counters.is_free("a", cluster.now + 100.0)


def test_what_comes_in_while_nothing_waits_where_it_comes_from_is_what_a_host_can_receive(cluster: Cluster) -> None:
    """Even as little as its share of a busy sender would be."""
    cluster.knowing = {"s"}
    cluster.carry({("s", "a"): 50 * MB, ("s", "b"): 50 * MB}, seconds=1.5, full="s")
    assert cluster.rates("a")[1] > 100, "that is its share"
    cluster.carry({("s", "a"): 50 * MB}, seconds=2.0)
    assert cluster.rates("a")[1] == pytest.approx(50, abs=1)
    assert cluster.rates("s")[0] == pytest.approx(100, abs=1)


@pytest.mark.parametrize("first", range(SAID))
def test_a_short_transfer_is_judged_wherever_in_a_message_its_samples_lie(cluster: Cluster, first: int) -> None:
    """Seven samples are hardly more than it takes; which of a host's messages they come with is chance."""
    samples = [0.0] * first + [30 * MB] * 7
    samples += [0.0] * (-len(samples) % SAID)
    for number in range(0, len(samples), SAID):
        cluster.carry({("a", "s"): samples[number : number + SAID]})
    cluster.carry({}, seconds=1.5)
    assert cluster.rates("a")[0] == pytest.approx(30, abs=2)


def test_confirmations_are_not_late_if_nothing_waits_to_go_out_where_they_come_from(cluster: Cluster) -> None:
    """The server sends about what it can, but its interface lets that pass: what it receives is slow elsewhere."""
    before, little = cluster.rates("s"), [30 * MB, 26 * MB, 33 * MB, 28 * MB]
    cluster.knowing = {"s"}
    cluster.carry({("s", "b"): 50 * MB, ("s", "c"): 50 * MB}, seconds=1.0, full="s")
    flows = {("s", "b"): 40 * MB, ("s", "c"): 40 * MB, ("a", "s"): little}
    cluster.carry(flows, seconds=3.0, full="s")
    assert cluster.rates("a")[0] > 100, "its confirmations wait"
    cluster.carry(flows, seconds=3.0)
    assert cluster.rates("a")[0] == pytest.approx(29, abs=2)
    assert cluster.rates("s")[1] == pytest.approx(before[1], rel=0.1)


def test_a_host_of_which_nothing_was_ever_seen_to_wait_does_not_tell_that_nothing_does(cluster: Cluster) -> None:
    """It may be slowed down somewhere else, where it does not look."""
    cluster.knowing = {"b"}
    cluster.carry({("b", "a"): 50 * MB, ("b", "c"): 50 * MB}, seconds=3.0)
    assert cluster.rates("b")[0] < 200
    assert min(cluster.rates("a")[1], cluster.rates("c")[1]) > 100


def test_a_slow_transfer_is_not_its_senders_fault_before_which_nothing_waits(cluster: Cluster) -> None:
    """Not even when it ends, or should have ended."""
    cluster.knowing = {"b"}
    cluster.carry({("b", "a"): WORKER}, full="b")
    before = cluster.rates("b")[0]
    for _ in range(3):
        begin = cluster.now
        cluster.carry({("b", "a"): 40 * MB}, seconds=2.0)
        cluster.estimates.observe(Sighting("b", "a", 80 * MB, begin, cluster.now))
    assert cluster.rates("b")[0] == pytest.approx(before, rel=0.1)
    assert cluster.rates("a")[1] == pytest.approx(40, abs=1)


def test_a_host_without_counters_is_known_by_what_ended(cluster: Cluster) -> None:
    cluster.uncounted = set("abcds")
    before = believed(cluster)
    cluster.carry({("a", "s"): 30 * MB}, seconds=3.0)
    for host, rates in believed(cluster).items():
        assert rates == pytest.approx(before[host], rel=0.1)


def test_one_process_counts_for_each_host() -> None:
    """What a second one there says of the same time is not counted twice, unless the first has fallen silent."""
    cluster = Cluster(steady())
    cluster.carry({})
    count = Count("another", "a", tuple(Sample(SAMPLE_S, 30 * MB * SAMPLE_S, 0.0) for _ in range(8)))
    before = cluster.rates("a")
    cluster.estimates.count(count, cluster.now + 0.1, [("a", "s")])
    assert cluster.rates("a") == before


class Planned:
    """A planner of transfers to one server, and hosts that say what they carry of what it has granted."""

    def __init__(self) -> None:
        self.planner = FabricPlanner([("s", SERVER)], (), steady(), 0.1)
        self.now, self.key = 0.0, 0

    def send(self, host: str, rate: float) -> tuple[float, float]:
        """Send a gradient; return what was believed of the host out and in before it had arrived, in millions."""
        self.key += 1
        assert isinstance(self.planner.grant_at_once(Offer(self.key, host), self.now), Grant)
        begin, believed = self.now, (0.0, 0.0)
        while self.now < begin + SERVER / rate:
            self.now += SAID * SAMPLE_S
            nothing, much = (0,) * SAID, (round(rate * SAMPLE_S / HEADERS),) * SAID
            self.planner.count(Carried("coordinator", "s", (SAMPLE_S,) * SAID, nothing, much), self.now)
            for one in "abc":
                carried = Carried(f"w{one}", one, (SAMPLE_S,) * SAID, much if one == host else nothing, nothing)
                found = self.planner.count(carried, self.now)
                believed = found if one == host else believed
        self.planner.arrive(self.key, host, begin, self.now)
        return round(believed[0] / MB), round(believed[1] / MB)


def test_a_planner_goes_by_what_is_counted_before_a_transfer_has_ended() -> None:
    one = Planned()
    for host in "abcabc":
        one.send(host, SERVER)
    assert one.send("a", 20 * MB)[0] == 20
    expected = one.planner.grant_at_once(Offer(99, "a"), one.now)
    assert isinstance(expected, Grant)
    assert expected.end - one.now == pytest.approx(5.0, rel=0.05)


def test_a_worker_may_be_sent_by_the_servers_what_a_relay_was_to_hand_on() -> None:
    """It asks them if the relay does not answer: that they are busy explains how little it gets."""
    counted: list[set[tuple[str, str]]] = []

    class Known(Estimates):
        def count(self, count: Count, now: float, ways: Iterable[tuple[str, str]] = ()) -> None:
            counted.append(set(ways))

    estimates = Known(SERVER, 1e6)
    for host, rate in (("s", SERVER), ("a", 10 * SERVER), ("b", 10 * SERVER), ("c", 10 * SERVER)):
        estimates.report(host, rate, rate, 0.0)
    planner = FabricPlanner([("s", SERVER)], (), estimates, 0.1, ("a",))
    planner.plan_pulls([PullRequest(key, host) for key, host in enumerate("abc", 1)], 0.0)
    planner.count(Carried("w", "b", (), (), ()), 0.5)
    assert counted == [{("s", "a"), ("a", "b"), ("a", "c"), ("s", "b"), ("s", "c")}]
