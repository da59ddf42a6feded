"""Which role goes into which process."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from psplatform.core.supervision.placement import Placement, Process, place
from psplatform.errors import ConfigurationError


def process(number: int, host: str = "a", **resources: float) -> Process:
    return Process(f"tcp://{host}:{number}", host, resources)


def cluster(*hosts: str) -> list[Process]:
    return [process(number, host) for number, host in enumerate(hosts)]


@st.composite
def clusters(draw: st.DrawFn) -> list[Process]:
    """Draw up to twelve processes on up to four hosts, some with a GPU, some with much memory."""
    kinds = st.tuples(st.sampled_from("abcd"), st.booleans(), st.booleans())
    processes = []
    for number, (host, has_gpu, has_memory) in enumerate(draw(st.lists(kinds, min_size=1, max_size=12))):
        resources = {"GPU": 1.0} if has_gpu else {}
        processes.append(process(number, host, **resources, **({"MEMORY": 64.0} if has_memory else {})))
    return processes


DEMANDS = st.sampled_from([None, {"GPU": 1.0}, {"MEMORY": 32.0}])


@st.composite
def placements(draw: st.DrawFn) -> tuple[list[Process], dict[str, Any], Placement]:
    processes = draw(clusters())
    demand = {
        "workers": draw(st.one_of(st.none(), st.integers(1, len(processes)))),
        "shards": draw(st.integers(1, 8)),
        "for_worker": draw(DEMANDS),
        "for_server": draw(DEMANDS),
    }
    try:
        return processes, demand, place(processes, **demand)
    except ConfigurationError:
        assume(False)
        raise


@given(placements())
def test_every_worker_has_a_process_of_its_own(drawn: tuple[list[Process], dict[str, Any], Placement]) -> None:
    _, demand, placement = drawn
    assert len(set(placement.workers)) == len(placement.workers)
    assert demand["workers"] in (None, len(placement.workers))
    assert len(placement.servers) == demand["shards"]


@given(placements())
def test_every_role_has_the_resources_it_needs(drawn: tuple[list[Process], dict[str, Any], Placement]) -> None:
    processes, demand, placement = drawn
    by_address = {one.address: one for one in processes}
    assert all(by_address[address].offers(demand["for_worker"] or {}) for address in placement.workers)
    assert all(by_address[address].offers(demand["for_server"] or {}) for address in placement.servers)
    assert {placement.coordinator, placement.evaluator} <= set(by_address)


@given(placements())
def test_servers_share_with_workers_only_where_they_must(
    drawn: tuple[list[Process], dict[str, Any], Placement],
) -> None:
    """As long as a process that may serve has no worker, no server goes to one that has."""
    processes, demand, placement = drawn
    free = [
        one.address
        for one in processes
        if one.offers(demand["for_server"] or {}) and one.address not in placement.workers
    ]
    assert not free or set(placement.servers) <= set(free)


@given(placements())
def test_servers_are_spread_evenly(drawn: tuple[list[Process], dict[str, Any], Placement]) -> None:
    """No process has two servers more than another that could have taken one of them."""
    processes, demand, placement = drawn
    load = Counter(placement.servers)
    shared = set(placement.servers) <= set(placement.workers)
    able = [
        one.address
        for one in processes
        if one.offers(demand["for_server"] or {}) and (shared or one.address not in placement.workers)
    ]
    assert max(load[address] for address in able) - min(load[address] for address in able) <= 1


@given(clusters(), st.integers(1, 8))
def test_the_same_cluster_gives_the_same_placement(processes: list[Process], shards: int) -> None:
    """Nothing but the processes decides: no clock, no chance."""
    assert place(processes, workers=1, shards=shards) == place(list(processes), workers=1, shards=shards)


def test_servers_go_to_idle_processes() -> None:
    placement = place(cluster("a", "a", "a", "a"), workers=2, shards=2)
    assert set(placement.workers).isdisjoint(placement.servers)
    assert placement.evaluator in placement.servers  # all processes are taken: it shares the first server's
    assert placement.evaluator == placement.coordinator == placement.servers[0]


def test_an_idle_process_evaluates() -> None:
    """Then measuring a version takes nothing from training."""
    placement = place(cluster("a", "a", "a", "a", "a"), workers=2, shards=2)
    assert placement.evaluator not in {*placement.workers, *placement.servers}


def test_servers_share_where_there_is_no_idle_process() -> None:
    """Two processes are enough for two workers and two servers."""
    processes = cluster("a", "a")
    placement = place(processes, workers=2, shards=2)
    assert sorted(placement.workers) == sorted(placement.servers) == [one.address for one in processes]


def test_servers_are_spread_over_hosts() -> None:
    """One host that dies takes as few shards with it as possible."""
    processes = [*cluster("a"), process(1, "b"), process(2, "b"), process(3, "b"), process(4, "c"), process(5, "d")]
    placement = place(processes, workers=1, shards=3)
    assert Counter(address.split(":")[1].strip("/") for address in placement.servers) == {"b": 1, "c": 1, "d": 1}


def test_without_a_number_every_process_that_no_server_needs_gets_a_worker() -> None:
    placement = place(cluster("a", "a", "a", "a", "a"), workers=None, shards=2)
    assert len(placement.workers) == 3


def test_without_a_number_even_a_single_process_gets_a_worker() -> None:
    assert len(place(cluster("a"), workers=None, shards=4).workers) == 1


def test_without_a_number_servers_with_processes_of_their_own_take_none_from_workers() -> None:
    """Where only some processes may serve and others only compute, all of the latter compute."""
    processes = [process(number, GPU=1) for number in range(3)] + [process(number, MEMORY=1) for number in (3, 4)]
    placement = place(processes, workers=None, shards=2, for_worker={"GPU": 1}, for_server={"MEMORY": 1})
    assert len(placement.workers) == 3


def test_workers_leave_the_processes_that_can_serve_to_servers() -> None:
    processes = [process(0, MEMORY=1), process(1), process(2)]
    placement = place(processes, workers=2, shards=1, for_server={"MEMORY": 1})
    assert placement.servers == (processes[0].address,)
    assert processes[0].address not in placement.workers


def test_too_few_processes_are_refused_with_the_number_that_is_missing() -> None:
    with pytest.raises(ConfigurationError, match=r"needs 5 Dask workers .* has 2; start 3 more") as caught:
        place(cluster("a", "a"), workers=5, shards=1)
    assert caught.value.field == "workers"


def test_too_few_processes_with_the_resources_are_refused_with_their_number() -> None:
    processes = [process(0, GPU=1), process(1)]
    with pytest.raises(ConfigurationError, match=r"needs 2 .*GPU.* only 1 of 2 have them; start 1 more"):
        place(processes, workers=2, shards=1, for_worker={"GPU": 1})


def test_a_server_without_a_place_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"a server needs the resources .*MEMORY.* no Dask worker") as caught:
        place(cluster("a", "a"), workers=1, shards=1, for_server={"MEMORY": 1})
    assert caught.value.field == "resources"
