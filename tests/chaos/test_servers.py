"""Servers, the coordinator and whole clusters that die, and nothing is protected: runs end with a word."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import psplatform as ps
from psplatform.client.runs.recovery import recover
from psplatform.core.supervision.placement import Placement, place
from psplatform.errors import ClusterError
from psplatform.replication.checkpoints.retention import checkpoints_of
from psplatform.replication.stores.store import describe_run
from psplatform.runtime.cluster import cluster_of

Start = Callable[..., ps.Run]
Log = Callable[..., list[dict[str, Any]]]
Until = Callable[..., None]
Reaches = Callable[[str, int], None]
Segments = Callable[[str], list[Path]]
LIMIT_S = 180.0


def placement_on(cluster: Any) -> Placement:
    """Return where the roles of a run of two workers and two shards go."""
    return place(cluster.client.sync(cluster_of, cluster.client)[0], workers=2, shards=2)


def test_a_killed_server_ends_the_run(
    cluster: Any, start: Start, log: Log, reaches: Reaches, until: Until, segments: Segments
) -> None:
    """With the shard and the address; nobody waits for it, and nothing of the run stays behind."""
    address = placement_on(cluster).servers[1]
    pid = cluster.pids()[address]
    run = start(cluster)
    reaches(run.store, 10)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ClusterError, match=f"the server of shard 1 at {address} is lost") as caught:
        run.wait(LIMIT_S)
    assert caught.value.peer == address
    assert describe_run(run.store)["outcome"] == "failed"
    assert log(run.store, "finished")[0]["outcome"] == "failed"
    until(lambda: segments(run.run) == [], "the segments of the run, the killed server's included, are gone")


def test_a_killed_coordinator_ends_the_run(
    cluster: Any, start: Start, reaches: Reaches, until: Until, segments: Segments
) -> None:
    """Whoever waits for the run is told how far its log goes; the others notice and let go of everything."""
    address = placement_on(cluster).coordinator
    pid = cluster.pids()[address]
    run = start(cluster, worker_lease_s=2, server_lease_s=2)
    reaches(run.store, 10)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(
        ClusterError, match=f"the coordinator of run {run.run} is gone; its log ends at version .*psplatform recover"
    ):
        run.wait(LIMIT_S)
    assert run.metrics()["updates"] >= 10
    until(
        # Beside the coordinator, the killed process held the first shard.
        lambda: all("shard0" in path.name for path in segments(run.run)),
        "the living have removed their segments, and only the killed server's is left",
    )


def test_a_run_whose_coordinator_was_killed_is_recovered_at_once(cluster: Any, start: Start, until: Until) -> None:
    """Also while its workers are still waiting for a coordinator: nobody is there who could be the next one."""
    pid = cluster.pids()[placement_on(cluster).coordinator]
    run = start(cluster, checkpoints=ps.Checkpoints(every_updates=5))
    until(lambda: bool(checkpoints_of(run.store)), "there is a checkpoint")
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ClusterError, match="is gone"):
        run.wait(LIMIT_S)
    version = checkpoints_of(run.store)[-1].version
    with recover(run.store, cluster.client, stop=ps.Stop(updates=version + 10)) as again:
        summary = again.wait(LIMIT_S)
    assert (summary["outcome"], summary["updates"]) == ("updates", version + 10)


def test_after_everything_was_killed_the_store_is_readable_and_the_next_run_cleans_up(
    new_cluster: Callable[[], Any],
    job: Callable[..., ps.Job],
    reaches: Reaches,
    until: Until,
    segments: Segments,
    psplatform: Callable[..., subprocess.Popen[str]],
    tmp_path: Path,
) -> None:
    """Nobody was left to remove what lay in shared memory; the log is there to its last flush."""
    dead = new_cluster()
    dead.repair(2)
    run = ps.train(job(), dead.client)
    reaches(run.store, 10)
    # Those that are killed cannot remove it, but any other process of this machine may sweep it from then on.
    assert segments(run.run)
    dead.end()
    showing = psplatform("runs", run.store, "--json")
    output, errors = showing.communicate(timeout=LIMIT_S)
    assert showing.returncode == 0, errors
    summary = json.loads(output.splitlines()[-1])
    assert (summary["run"], summary["outcome"]) == (run.run, None)
    assert summary["updates"] >= 10
    living = new_cluster()
    living.repair(2)
    after = ps.train(job(store=str(tmp_path / "next.zarr"), stop=ps.Stop(updates=5)), living.client)
    after.wait(LIMIT_S)
    assert segments(run.run) == []
    until(lambda: segments(after.run) == [], "the next run has left nothing either")
