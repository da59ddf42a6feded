"""What is seen of a cluster from beside, and that nobody hangs whose scheduler was killed or stopped."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

import psplatform as ps
from psplatform.client.clusters.cluster_view import look_at_cluster
from psplatform.errors import ClusterError

Until = Callable[..., None]


def test_processes_and_runs_of_a_cluster_are_seen(
    cluster: Any, start: Callable[..., ps.Run], reaches: Callable[[str, int], None], until: Until
) -> None:
    run = start(cluster)
    reaches(run.store, 5)
    until(
        lambda: all(one.memory_bytes and one.status == "running" for one in look_at_cluster(cluster.client).processes),
        "a report of each",
    )
    view = look_at_cluster(cluster.client)
    assert view.scheduler == cluster.address
    assert view.runs == (run.run,)
    pids = cluster.pids()
    assert {one.address: one.pid for one in view.processes} == pids
    assert [one.address for one in view.processes] == sorted(pids)
    assert {(one.host, one.threads) for one in view.processes} == {("127.0.0.1", 1)}
    assert set(run.roles().values()) <= {one.address for one in view.processes}
    busy = run.roles()["worker-1"]
    until(lambda: rows(cluster)[busy].cpu_percent > 0, "a gradient worker's process is seen to compute")


def rows(cluster: Any) -> dict[str, Any]:
    return {one.address: one for one in look_at_cluster(cluster.client).processes}


def test_a_process_that_was_stopped_is_silent_and_keeps_nobody_waiting(cluster: Any, until: Until) -> None:
    address, pid = min(cluster.pids().items())
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: rows(cluster)[address].silent_s > 3, "its silence is seen")
        assert rows(cluster)[address].pid == pid
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: rows(cluster)[address].silent_s < 3, "it is heard again")


def test_a_scheduler_that_was_stopped_is_named_and_seen_again_when_it_goes_on(
    new_cluster: Callable[[], Any], until: Until
) -> None:
    cluster = new_cluster()
    cluster.repair(1)
    cluster.scheduler.send_signal(signal.SIGSTOP)
    with pytest.raises(ClusterError, match=rf"the scheduler at {cluster.address} did not answer within 5 s") as caught:
        look_at_cluster(cluster.client)
    assert caught.value.peer == cluster.address
    cluster.scheduler.send_signal(signal.SIGCONT)
    until(lambda: answers(cluster), "it answers")
    assert len(look_at_cluster(cluster.client).processes) == 1


def answers(cluster: Any) -> bool:
    try:
        look_at_cluster(cluster.client)
    except ClusterError:
        return False
    return True


def test_a_scheduler_that_was_killed_is_named(new_cluster: Callable[[], Any], until: Until) -> None:
    """At once, and also when Dask has given it up."""
    cluster = new_cluster()
    cluster.repair(1)
    cluster.scheduler.kill()
    cluster.scheduler.wait()
    sentence = rf"the scheduler at {cluster.address} (is gone|did not answer within 5 s)"
    with pytest.raises(ClusterError, match=sentence):
        look_at_cluster(cluster.client)
    cluster.client.close(timeout=2)
    with pytest.raises(
        ClusterError, match=r"the scheduler at \S+/scheduler\.json is gone \(its connection is closed\)"
    ):
        look_at_cluster(cluster.client)
