"""As many standbys as replicas: a run that is promised to survive two losses survives them at once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

import psplatform as ps

PATIENT = {
    "workload": "digits",
    "options": {},
    "stragglers": "constant:seconds=0.01",
    "evaluate_every": 25,
    "replication": ps.Bounded(replicas=2),
    "worker_lease_s": 2,
    "server_lease_s": 6,
}


LIMIT_S = 180.0
Begin = Callable[[int], tuple[Any, ps.Run, Any]]


def standbys_of(run: ps.Run) -> dict[str, str]:
    run.status()  # which finds the coordinator that has taken over, if one has
    return {name: address for name, address in run.roles().items() if name.startswith("standby")}


@pytest.fixture
def begin(
    new_cluster: Callable[[], Any],
    start: Callable[..., ps.Run],
    watch: Callable[..., Any],
    until: Callable[..., None],
    reaches: Callable[[str, int], None],
) -> Begin:
    """Begin a run on a cluster of so many processes; return when it has two standbys and is protected."""

    def begun(processes: int) -> tuple[Any, ps.Run, Any]:
        cluster = new_cluster()
        cluster.repair(processes)
        run = start(cluster, **PATIENT)
        seen = watch(cluster, run)
        reaches(run.store, 10)
        until(lambda: seen.protected() and len(standbys_of(run)) == 2, "two standbys")
        return cluster, run, seen

    return begun


def test_a_run_survives_the_loss_of_its_coordinator_and_of_a_standby_at_once(
    begin: Begin, until: Callable[..., None], reaches: Callable[[str, int], None]
) -> None:
    """The first standby would take over; it dies with the coordinator, and the second does."""
    cluster, run, seen = begin(6)
    pids, roles = cluster.pids(), run.roles()
    assert len({roles["coordinator"], *standbys_of(run).values()}) == 3, "each in a process of its own"
    # Stopped first: between two signals this program may have to wait for a core, and the standby begins to take over.
    os.kill(pids[roles["standby"]], signal.SIGSTOP)
    for role in ("coordinator", "standby"):
        os.kill(pids[roles[role]], signal.SIGKILL)
    until(lambda: any(one["role"] == "coordinator" for one in seen.log("promoted")), "the second has taken over")
    reaches(run.store, 10)
    cluster.repair(6)
    until(lambda: seen.protected() and len(standbys_of(run)) == 2, "two standbys again")
    seen.finish()
    assert [one["outcome"] for one in seen.log("finished")] == ["stopped"]
    assert [one["epoch"] for one in seen.log("promoted") if one["role"] == "coordinator"] == [3]


def test_a_run_survives_the_loss_of_its_coordinator_and_of_the_one_that_took_over(
    begin: Begin, until: Callable[..., None], reaches: Callable[[str, int], None]
) -> None:
    """The second dies as soon as its card says that it has a standby of its own, whatever else is missing by then."""
    cluster, run, seen = begin(7)
    for _ in range(2):
        term, address, pids = seen.card()["term"], seen.card()["address"], cluster.pids()
        os.kill(pids[address], signal.SIGKILL)
        until(lambda before=term: seen.card().get("term", 0) > before, "a standby has taken over")
        until(lambda: seen.card().get("standby"), "it has a standby of its own")
    reaches(run.store, 10)
    cluster.repair(7)
    until(lambda: seen.protected() and len(standbys_of(run)) == 2, "two standbys again")
    seen.finish()
    assert [one["outcome"] for one in seen.log("finished")] == ["stopped"]
    terms = [one["epoch"] for one in seen.log("promoted") if one["role"] == "coordinator"]
    assert len(terms) == 2
    assert terms[0] < terms[1]


@pytest.mark.usefixtures("told_of_threads")
def test_a_worker_in_the_process_of_a_lost_coordinator_and_server_is_lost_at_once(
    new_cluster: Callable[[], Any],
    start: Callable[..., ps.Run],
    watch: Callable[..., Any],
    until: Callable[..., None],
    reaches: Callable[[str, int], None],
) -> None:
    """Until the cluster misses the process, a synchronous run would wait for its worker: half a second, at worst."""
    cluster = new_cluster()
    cluster.repair(3)
    run = start(cluster, **{**PATIENT, "replication": ps.Chain()}, workers=3)
    seen = watch(cluster, run)
    reaches(run.store, 10)
    until(seen.protected, "a loss is survived")
    lead = run.roles()["coordinator"]
    assert any(address == lead for name, address in run.roles().items() if name.startswith("worker"))
    os.kill(cluster.pids()[lead], signal.SIGKILL)
    until(lambda: seen.log("resumed"), "the run goes on")
    lost = [one["reason"] for one in seen.log("lost") if one["process"].startswith(lead)]
    assert lost == ["process ended"]
    cluster.repair(3)
    seen.finish()


def copies_of(run: ps.Run, shard: int) -> list[str]:
    """Return the processes of the copy that serves a shard, and of those that would be promoted, in that order."""
    one, roles = run.standing()["shards"][shard], run.roles()
    return [roles[name] for name in (one["server"], *one["in_sync"])]


def test_a_coordinator_that_is_lost_while_it_ends_its_run_leaves_that_to_a_standby(begin: Begin) -> None:
    """The standbys have seen the end; the store, the workers and who waits have not."""

    def die_instead_of_ending() -> None:
        from psplatform.runtime.actors.coordinator import tenure  # in a Dask worker's process

        conclude = tenure.conclude

        async def dying(host: Any, failure: Any) -> Any:
            if host.term == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return await conclude(host, failure)

        tenure.conclude = dying

    cluster, run, seen = begin(6)
    cluster.client.run(die_instead_of_ending)
    first = run.roles()["coordinator"]
    run.stop("enough")
    assert run.wait(LIMIT_S)["outcome"] == "stopped"
    assert first not in cluster.pids()
    assert [one["outcome"] for one in seen.log("finished")] == ["stopped"]


@pytest.mark.parametrize("gap_s", [0.0, 0.3], ids=["at once", "one after the other"])
def test_a_run_survives_the_loss_of_a_server_and_of_who_was_promoted_in_its_place(
    begin: Begin, until: Callable[..., None], reaches: Callable[[str, int], None], gap_s: float
) -> None:
    """The third copy takes over, whether the second serves by then or not, and no more than the bound is lost."""
    cluster, run, seen = begin(7)
    pids, copies = cluster.pids(), copies_of(run, 1)
    assert len(set(copies)) == 3, "each in a process of its own"
    assert copies[0] != run.roles()["coordinator"], "the first loss is one of a server"
    for address in copies[:2]:
        os.kill(pids[address], signal.SIGKILL)
        time.sleep(gap_s)
    reaches(run.store, 10)
    cluster.repair(7)
    until(lambda: seen.protected() and len(set(copies_of(run, 1))) == 3, "protected twice again")
    seen.finish()
    assert [one["outcome"] for one in seen.log("finished")] == ["stopped"]
    promoted = [one for one in seen.log("promoted") if one["role"] == "server" and one["shard"] == 1]
    assert promoted
    assert all(one["updates_lost"] <= one["bound"] for one in promoted)
