"""Copies of a shard, and coordinator and standby, are kept apart: in zones, on hosts, in processes."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psplatform.core.supervision.placement import (
    Apart,
    Placement,
    Process,
    apart,
    apart_from_all,
    place,
    process_for_copy,
    process_for_standby,
    seats_of,
)
from psplatform.errors import ConfigurationError


def at(name: str) -> Process:
    """Return a process: ``a1`` is number 1 on host a, ``a1x`` that in zone x."""
    zone = {f"zone-{name[2]}": 1.0} if len(name) > 2 else {}
    return Process(f"tcp://{name[0]}:{name[1]}", name[0], zone)


def cluster(names: str) -> list[Process]:
    return [at(name) for name in names.split()]


def address(name: str) -> str:
    return at(name).address


NAMES = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("1234")), min_size=1, max_size=10, unique=True)
ZONES = st.sampled_from([{}, {"a": "x", "b": "x", "c": "y"}, {"a": "x", "b": "y", "c": "z"}, {"a": "x", "b": "x"}])


@st.composite
def clusters(draw: st.DrawFn) -> list[Process]:
    """Draw processes on up to three hosts, which may be in zones."""
    zones = draw(ZONES)
    return [at(host + number + zones.get(host, "")) for host, number in draw(NAMES)]


@st.composite
def placements(draw: st.DrawFn) -> tuple[list[Process], Placement]:
    processes = draw(clusters())
    workers, shards, replicas = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    try:
        return processes, place(processes, workers=workers, shards=shards, replicas=replicas)
    except ConfigurationError:
        return processes, Placement("", "", (), ())


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("a1", "a1", Apart.NOT),
        ("a1", "a2", Apart.PROCESS),
        ("a1", "b1", Apart.HOST),
        ("a1x", "b1x", Apart.HOST),
        ("a1x", "b1y", Apart.ZONE),
        ("a1x", "b1", Apart.HOST),
    ],
)
def test_how_far_two_processes_are_apart(one: str, other: str, expected: Apart) -> None:
    assert apart(at(one), at(other)) is apart(at(other), at(one)) is expected


@pytest.mark.parametrize(
    ("resources", "zone"),
    [({}, ""), ({"GPU": 1.0}, ""), ({"zone-east": 1.0}, "east"), ({"GPU": 1.0, "zone:a.b": 2.0}, "a.b")],
)
def test_a_worker_says_its_zone_by_the_name_of_a_resource(resources: dict[str, float], zone: str) -> None:
    assert Process("tcp://a:1", "a", resources).zone == zone


@pytest.mark.parametrize(
    ("told", "host"),
    [("tcp://10.0.0.2:41", "10.0.0.2"), ("tls://[fe80::1]:41", "fe80::1"), ("inproc://10.0.0.2/7/1", "10.0.0.2")],
)
def test_the_host_of_a_process_that_the_scheduler_no_longer_lists_is_in_its_address(told: str, host: str) -> None:
    assert Process.at(told).host == host


# --- at the start ---


@given(placements())
def test_copies_of_a_shard_are_as_far_apart_at_the_start_as_the_cluster_allows(
    drawn: tuple[list[Process], Placement],
) -> None:
    processes, placement = drawn
    for server, replicas in zip(placement.servers, placement.replicas, strict=True):
        (one, *others) = seats_of([server, *replicas], processes)
        assert len({server, *replicas}) == 1 + len(replicas)
        best = max(apart(one, other) for other in processes)
        assert apart(one, others[0]) is best, "the first replica is as far from its server as any process is"


def test_workers_leave_idle_processes_on_two_hosts_to_a_server_and_its_replica() -> None:
    placement = place(cluster("a1 a2 b1 b2"), workers=2, shards=1, replicas=1)
    ((replica,),) = placement.replicas
    assert apart(*seats_of([placement.servers[0], replica], [])) is Apart.HOST
    assert {placement.servers[0], replica}.isdisjoint(placement.workers)


def test_on_one_host_processes_are_taken_in_their_order() -> None:
    placement = place(cluster("a1 a2 a3 a4"), workers=2, shards=1, replicas=1)
    assert placement.workers == (address("a1"), address("a2"))


# --- another copy ---


@given(clusters(), st.data())
def test_another_copy_goes_as_far_from_the_shards_others_as_any_process_is(
    processes: list[Process], data: st.DataObject
) -> None:
    some = st.lists(st.sampled_from([one.address for one in processes]), max_size=3)
    copies = [(0, one) for one in data.draw(some)] + [(1, one) for one in data.draw(some)]
    busy, cold, but = (set(data.draw(some)) for _ in range(3))
    found = process_for_copy(processes, 0, copies, busy, cold, but)
    able = [one for one in processes if (0, one.address) not in copies and one.address not in but]
    if found is None:
        assert able == []
        return
    others = seats_of([held for shard, held in copies if shard == 0], processes)
    (chosen,) = seats_of([found], able)
    assert chosen in able
    best = max(apart_from_all(one, others) for one in able)
    assert apart_from_all(chosen, others) is best
    equal = [one for one in able if apart_from_all(one, others) is best]
    assert chosen.address not in cold or all(one.address in cold for one in equal), "warm before cold"
    alike = [one for one in equal if (one.address in cold) == (chosen.address in cold)]
    assert chosen.address not in busy or all(one.address in busy for one in alike), "idle before busy"


def test_a_host_of_its_own_comes_before_warmth() -> None:
    found = process_for_copy(cluster("a1 a2 b1"), 0, [(0, address("a1"))], set(), cold={address("b1")})
    assert found == address("b1")


def test_warmth_comes_before_an_idle_process() -> None:
    """Whoever imports meanwhile leaves the shard without a replica for seconds."""
    processes = cluster("a1 b1 b2")
    found = process_for_copy(processes, 0, [(0, address("a1"))], busy={address("b1")}, cold={address("b2")})
    assert found == address("b1")


# --- a standby ---


@given(clusters(), st.data())
def test_a_standby_goes_as_far_from_its_coordinator_as_any_process_is(
    processes: list[Process], data: st.DataObject
) -> None:
    some = st.lists(st.sampled_from([one.address for one in processes]), max_size=3)
    lead = data.draw(st.sampled_from(processes))
    servers, replicas, busy, cold, but = (set(data.draw(some)) for _ in range(5))
    found = process_for_standby(
        processes, lead=lead.address, servers=servers, replicas=replicas, busy=busy, cold=cold, but=but
    )
    able = [one for one in processes if one != lead and one.address not in but]
    if found is None:
        assert able == []
        return
    (chosen,) = seats_of([found], able)
    assert chosen in able
    assert apart(chosen, lead) is max(apart(one, lead) for one in able)


def test_several_standbys_are_apart_from_each_other() -> None:
    found = process_for_standby(cluster("a1 b1 b2 c1"), lead=address("a1"), standbys=[address("b1")])
    assert found == address("c1")


def test_a_standby_is_beside_a_replica_and_rather_not_beside_a_server() -> None:
    """Where it takes over, it is in the process of a server; if that process is lost, as little as possible is."""
    processes = cluster("a1 b1 b2 b3")
    places = {"servers": [address("a1"), address("b1")], "lead": address("a1")}
    replicas = [address("b1"), address("b2")]
    assert process_for_standby(processes, replicas=replicas, **places) == address("b2")
    assert process_for_standby(processes, replicas=replicas[:1], **places) == address("b1")
    assert process_for_standby(processes, **places) in {address("b1"), address("b2"), address("b3")}


def test_a_host_of_its_own_comes_before_a_replica_beside_it() -> None:
    """After a takeover the replicas may all be on the host of the new coordinator."""
    found = process_for_standby(cluster("a1 a2 b1"), lead=address("a1"), replicas=[address("a2")])
    assert found == address("b1")


@given(clusters())
def test_wherever_there_are_two_hosts_every_pair_is_on_two(processes: list[Process]) -> None:
    """A coordinator beside any copy has a standby elsewhere, whoever was lost before."""
    for one, _ in combinations(processes, 2):
        found = process_for_standby(processes, lead=one.address)
        (other,) = seats_of([found or ""], processes)
        assert (apart(one, other) >= Apart.HOST) == (len({each.host for each in processes}) > 1)
