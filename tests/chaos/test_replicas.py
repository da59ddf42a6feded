"""More than one replica per shard, and a standby that falls silent: losses that follow each other closely."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import psplatform as ps
from psplatform.runtime.hosting import dataset_name

Start = Callable[..., ps.Run]
Log = Callable[..., list[dict[str, Any]]]
Until = Callable[..., None]
Reaches = Callable[[str, int], None]
LIMIT_S = 60.0
BOUND = 20
PROTECTED = {
    "workload": "digits",
    "options": {},
    "evaluate_every": 25,
    "worker_lease_s": 2,
    "server_lease_s": 2,
}


def card_of(cluster: Any, run: ps.Run) -> dict[str, Any]:
    """Return what the coordinator has published of the run."""
    card: dict[str, Any] = cluster.client.get_metadata([dataset_name(run.run)], default={})
    return card


def actors_of(cluster: Any, run: ps.Run, *beginnings: str) -> dict[str, str]:
    """Return the address of each of the run's actors whose name begins like that, by name."""

    def known(dask_scheduler: Any) -> dict[str, str]:
        return {str(task.key): one.address for task in dask_scheduler.tasks.values() for one in task.who_has or ()}

    run_of = f"psplatform-{run.run}-"
    named = {key.removeprefix(run_of): at for key, at in cluster.client.run_on_scheduler(known).items()}
    return {name: at for name, at in named.items() if name.startswith(beginnings)}


def unprotected(log: Log, store: str) -> list[Any]:
    """Return what the last record of protection says is missing."""
    return list((log(store, "protection") or [{"shards": []}])[-1]["shards"])


def ends_well(run: ps.Run, log: Log) -> dict[str, Any]:
    """Stop the run; return its summary, having seen that it had learned and that versions never went back."""
    run.stop("seen enough")
    summary = run.wait(LIMIT_S)
    assert summary["outcome"] == "stopped"
    losses = [one["loss"] for one in log(run.store, "evaluated")]
    assert losses[-1] < losses[0]
    versions = [one["version"] for one in log(run.store, "commit")]
    assert versions == sorted(set(versions))
    return summary


def test_with_two_replicas_a_shard_survives_two_servers_in_a_row(
    new_cluster: Callable[[], Any], start: Start, log: Log, until: Until, reaches: Reaches
) -> None:
    """The second dies as soon as it has been promoted, long before a replica could be made in place of the first."""
    cluster = new_cluster()
    cluster.repair(6)
    replication = ps.Bounded(max_divergence=BOUND, unit="updates", replicas=2)
    run = start(cluster, **PROTECTED, replication=replication)
    reaches(run.store, 20)
    until(lambda: not unprotected(log, run.store), "the run is protected")
    pids, at = cluster.pids(), actors_of(cluster, run, "server-1", "replica-1-")
    os.kill(pids[at["server-1"]], signal.SIGKILL)
    until(lambda: len(log(run.store, "promoted")) == 1, "a replica is promoted")
    (first,) = log(run.store, "promoted")
    os.kill(pids[at[first["copy"]]], signal.SIGKILL)
    until(lambda: [one["shard"] for one in log(run.store, "promoted")].count(1) == 2, "the other one is")
    reaches(run.store, 20)
    second = [one for one in log(run.store, "promoted") if one["shard"] == 1][-1]
    assert {first["copy"], second["copy"]} == {name for name in at if name.startswith("replica")}
    summary = ends_well(run, log)
    assert all(one["updates_lost"] <= BOUND for one in summary["failovers"])
    assert summary["divergence"]["max"] <= BOUND


def test_a_standby_that_falls_silent_is_replaced_and_takes_nothing_over(
    new_cluster: Callable[[], Any], start: Start, log: Log, until: Until, reaches: Reaches
) -> None:
    """It wakes to find its number claimed; when the coordinator is killed afterwards, it is the next one that rises."""
    cluster = new_cluster()
    cluster.repair(6)
    run = start(cluster, **PROTECTED, replication=ps.Bounded())
    reaches(run.store, 20)
    until(lambda: bool(card_of(cluster, run).get("standby")), "there is a standby")
    ((name, silent),), pids = actors_of(cluster, run, "standby-").items(), cluster.pids()
    os.kill(pids[silent], signal.SIGSTOP)
    until(lambda: set(actors_of(cluster, run, "standby-")) - {name} != set(), "another standby is made")
    until(lambda: bool(card_of(cluster, run).get("standby")) and not unprotected(log, run.store), "all is protected")
    os.kill(pids[silent], signal.SIGCONT)
    reaches(run.store, 20)
    assert [one for one in log(run.store, "promoted") if one["role"] == "coordinator"] == []
    coordinator, standbys = card_of(cluster, run)["address"], actors_of(cluster, run, "standby-")
    os.kill(pids[coordinator], signal.SIGKILL)
    until(
        lambda: card_of(cluster, run)["address"] in {at for at in standbys.values() if at != silent}, "it is taken over"
    )
    reaches(run.store, 20)
    (taken,) = [one for one in log(run.store, "promoted") if one["role"] == "coordinator"]
    assert taken["process"] == f"{coordinator} pid {pids[coordinator]}"
    ends_well(run, log)


def test_a_process_that_wakes_is_hired_again(
    new_cluster: Callable[[], Any], start: Start, log: Log, until: Until, reaches: Reaches
) -> None:
    """Every other process has a copy already: while it is stopped, the run goes on with one replica instead of two."""
    cluster = new_cluster()
    cluster.repair(3)
    run = start(cluster, **PROTECTED, shards=1, workers=1, replication=ps.Bounded(replicas=2))
    reaches(run.store, 20)
    pids, busy = cluster.pids(), set(actors_of(cluster, run, "worker-").values())
    stopped = next(at for at in actors_of(cluster, run, "replica-").values() if at not in busy)

    def events(name: str) -> int:
        return sum(one["event"] == name for one in log(run.store, "copy"))

    os.kill(pids[stopped], signal.SIGSTOP)
    until(lambda: events("lost") == 1, "a replica is lost")
    reaches(run.store, 20)
    assert events("in sync") == 2
    os.kill(pids[stopped], signal.SIGCONT)
    until(lambda: events("in sync") == 3, "another one is made, and there is only one process for it")
    ends_well(run, log)
