"""More than one replica per shard, and a standby that falls silent: losses that follow each other closely."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import psplatform as ps

Start = Callable[..., ps.Run]
Watch = Callable[[Any, ps.Run], Any]
Until = Callable[..., None]
Reaches = Callable[[str, int], None]
BOUND = 20
PROTECTED = {
    "workload": "digits",
    "options": {},
    "evaluate_every": 25,
    "worker_lease_s": 2,
    "server_lease_s": 2,
}


def test_with_two_replicas_a_shard_survives_two_servers_in_a_row(
    new_cluster: Callable[[], Any], start: Start, watch: Watch, until: Until, reaches: Reaches
) -> None:
    """The second dies as soon as it serves: the other replica is level with it then, and in sync."""
    cluster = new_cluster()
    cluster.repair(6)
    replication = ps.Bounded(max_divergence=BOUND, unit="updates", replicas=2)
    one = watch(cluster, start(cluster, **PROTECTED, replication=replication))
    reaches(one.run.store, 20)
    until(one.protected, "the run is protected")
    pids, at = cluster.pids(), one.actors("server-1", "replica-1-")
    os.kill(pids[at["server-1"]], signal.SIGKILL)
    until(lambda: len(one.log("promoted")) == 1, "a replica is promoted")
    (first,) = one.log("promoted")
    (other,) = {name for name in at if name.startswith("replica")} - {first["copy"]}
    os.kill(pids[at[first["copy"]]], signal.SIGKILL)
    until(lambda: [each["shard"] for each in one.log("promoted")].count(1) == 2, "the other one is")
    reaches(one.run.store, 20)
    second = [each for each in one.log("promoted") if each["shard"] == 1][-1]
    assert second["copy"] == other
    summary = one.finish()
    assert all(each["updates_lost"] <= BOUND for each in summary["failovers"])
    assert summary["divergence"]["max"] <= BOUND


def test_a_standby_that_falls_silent_is_replaced_and_takes_nothing_over(
    new_cluster: Callable[[], Any], start: Start, watch: Watch, until: Until, reaches: Reaches
) -> None:
    """It wakes to find its number claimed; when the coordinator is killed afterwards, it is the next one that rises."""
    cluster = new_cluster()
    cluster.repair(6)
    one = watch(cluster, start(cluster, **PROTECTED, replication=ps.Bounded()))
    reaches(one.run.store, 20)
    until(lambda: bool(one.card().get("standby")), "there is a standby")
    ((name, silent),), pids = one.actors("standby-").items(), cluster.pids()
    beside = {copy for copy, at in one.actors("replica-").items() if at == silent}

    def lost() -> set[str]:
        return {each["copy"] for each in one.log("copy") if each["event"] == "lost"}

    os.kill(pids[silent], signal.SIGSTOP)
    until(lambda: set(one.actors("standby-")) - {name} != set(), "another standby is made")
    until(lambda: beside <= lost(), "the replicas beside it are missed")  # perhaps after the new standby is made
    until(one.protected, "all is protected")
    os.kill(pids[silent], signal.SIGCONT)
    reaches(one.run.store, 20)
    assert [each for each in one.log("promoted") if each["role"] == "coordinator"] == []
    coordinator, standbys = one.card()["address"], one.actors("standby-")
    os.kill(pids[coordinator], signal.SIGKILL)
    until(lambda: one.card()["address"] in {at for at in standbys.values() if at != silent}, "it is taken over")
    reaches(one.run.store, 20)
    (taken,) = [each for each in one.log("promoted") if each["role"] == "coordinator"]
    assert taken["process"] == f"{coordinator} pid {pids[coordinator]}"
    one.finish()


def test_a_process_that_wakes_is_hired_again(
    new_cluster: Callable[[], Any], start: Start, watch: Watch, until: Until, reaches: Reaches
) -> None:
    """Every other process has a copy already: while it is stopped, the run goes on with one replica instead of two."""
    cluster = new_cluster()
    cluster.repair(3)
    one = watch(cluster, start(cluster, **PROTECTED, shards=1, workers=1, replication=ps.Bounded(replicas=2)))
    reaches(one.run.store, 20)
    pids, busy = cluster.pids(), set(one.actors("worker-").values())
    stopped = next(at for at in one.actors("replica-").values() if at not in busy)

    def events(name: str) -> int:
        return sum(each["event"] == name for each in one.log("copy"))

    os.kill(pids[stopped], signal.SIGSTOP)
    until(lambda: events("lost") == 1, "a replica is lost")
    reaches(one.run.store, 20)
    assert events("in sync") == 2
    os.kill(pids[stopped], signal.SIGCONT)
    until(lambda: events("in sync") == 3, "another one is made, and there is only one process for it")
    one.finish()
