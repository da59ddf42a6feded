"""What runs leave on a scheduler and in its Dask workers that go on without them: nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psplatform as ps

Start = Callable[..., ps.Run]
Watch = Callable[[Any, ps.Run], Any]
Until = Callable[..., None]
Reaches = Callable[[str, int], None]
LIMIT_S = 180.0
PROTECTED = {
    "workload": "digits",
    "options": {},
    "shards": 1,
    "worker_lease_s": 2,
    "server_lease_s": 2,
    "replication": ps.Bounded(),
}


def left_on(cluster: Any) -> list[str]:
    """Return the names of runs that the scheduler and the Dask workers know."""

    # Functions of their own, which travel by value: the processes of the cluster cannot import a test.
    def on_scheduler(dask_scheduler: Any) -> list[str]:
        semaphores, publish = (dask_scheduler.extensions[name] for name in ("semaphores", "publish"))
        known = [semaphores.max_leases, semaphores.leases, semaphores.lease_timeouts, semaphores.events]
        known += [*semaphores.metrics.values(), publish.datasets, dask_scheduler.task_metadata]
        known += [dask_scheduler.tasks, dask_scheduler.task_groups, dask_scheduler.clients, dask_scheduler.plugins]
        return sorted(str(name) for place in known for name in place if "psplatform-" in str(name))

    def in_worker(dask_worker: Any) -> list[str]:
        known = [dask_worker.plugins, dask_worker.state.actors, dask_worker.state.tasks, dask_worker.data]
        return sorted(str(name) for place in known for name in place if "psplatform-" in str(name))

    in_workers: dict[str, list[str]] = cluster.client.run(in_worker)
    return [*cluster.client.run_on_scheduler(on_scheduler), *(name for one in in_workers.values() for name in one)]


def test_runs_whose_coordinators_were_killed_leave_nothing(
    cluster: Any, start: Start, watch: Watch, until: Until, reaches: Reaches, segments: Callable[[str], list[Path]]
) -> None:
    """Each has claimed a term or two: neither card, nor claim, nor name, nor actor, nor plugin, nor memory stays."""
    assert left_on(cluster) == []
    for number in range(2):
        cluster.repair()
        one = watch(cluster, start(cluster, **PROTECTED, store=f"{cluster._folder}/run-{number}.zarr"))
        until(one.protected, "the run is protected")
        assert any("-term-1-2" in name for name in left_on(cluster)), "what is looked for would be seen"
        os.kill(cluster.pids()[one.card()["address"]], signal.SIGKILL)
        until(lambda one=one: one.card().get("term", 1) > 1, "the standby has taken over")
        reaches(one.run.store, 10)
        one.run.stop("seen enough")
        assert one.run.wait(LIMIT_S)["outcome"] == "stopped"
        one.run.close()
        until(lambda one=one: segments(one.run.run) == [], "no memory is left")
    until(lambda: left_on(cluster) == [], "nothing is left")


def test_a_coordinator_that_wakes_up_after_the_end_of_its_run_departs(
    new_cluster: Callable[[], Any], start: Start, watch: Watch, until: Until, reaches: Reaches
) -> None:
    """Nothing tells it that the run is over but that it can claim nothing; nobody finds the run there again."""
    cluster = new_cluster()
    cluster.repair()
    one = watch(cluster, start(cluster, **PROTECTED))
    until(one.protected, "the run is protected")
    coordinator = one.card()["address"]
    pid = cluster.pids()[coordinator]
    os.kill(pid, signal.SIGSTOP)
    until(lambda: one.card().get("term", 1) > 1, "the standby has taken over")
    reaches(one.run.store, 10)
    one.run.stop("seen enough")
    assert one.run.wait(LIMIT_S)["outcome"] == "stopped"
    one.run.close()
    until(lambda: one.card() == {}, "the run is withdrawn")
    os.kill(pid, signal.SIGCONT)
    until(lambda: pid in cluster.pids().values(), "it answers")
    until(lambda: left_on(cluster) == [], "it has departed, and nothing is left")
    (ending,) = one.log("finished")
    assert ending["detail"] == "seen enough", "it has written nothing either"
