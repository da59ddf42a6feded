"""Planned transfers between hosts, and servers that are killed meanwhile: four addresses are four hosts to Dask."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import psplatform as ps

HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5")
PLANNED: dict[str, Any] = {
    "options": {"samples": 2000, "dimension": 512},
    "optimizer": ps.SGD(lr=0.01),  # small enough for stale gradients of a model of this width
    "policy": "delay-bounded",
    "policy_options": {"max_delay": 4},
    "evaluate_every": 25,
    "transport": "comms",
    "network": ps.Network(ps.Fabric(tick_s=0.05)),
    "replication": ps.Bounded(),
    "checkpoints": ps.Checkpoints.never(),
}


def test_planned_transfers_go_to_whoever_serves_and_under_whoever_leads(
    new_cluster: Callable[[], Any],
    start: Callable[..., ps.Run],
    watch: Callable[..., Any],
    until: Callable[..., None],
    reaches: Callable[[str, int], None],
) -> None:
    """First a server is killed, then the coordinator with the other one: offers are answered again each time."""
    cluster = new_cluster()
    for host in HOSTS:
        cluster.start_worker(host)
    until(lambda: len(cluster.pids()) == len(HOSTS), "a Dask worker is there on each host")
    one = watch(cluster, start(cluster, **PLANNED))
    reaches(one.run.store, 20)
    until(one.protected, "the run is protected")
    os.kill(cluster.pids()[one.actors("server-1")["server-1"]], signal.SIGKILL)
    until(lambda: [each["shard"] for each in one.log("promoted")] == [1], "a replica is promoted")
    reaches(one.run.store, 20)
    until(one.protected, "the run is protected again")
    os.kill(cluster.pids()[one.card()["address"]], signal.SIGKILL)
    until(lambda: "coordinator" in [each["role"] for each in one.log("promoted")], "a standby takes over")
    reaches(one.run.store, 20)
    assert {"wait_s", "push_s"} <= one.log("gradient")[-1].keys()
    summary = one.finish()
    assert max(max(each["staleness"]) for each in one.log("commit")) < 4
    assert summary["network"]["delay"]["max"] < 4
