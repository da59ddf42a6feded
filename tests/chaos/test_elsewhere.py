"""Nobody sees anybody's memory, as where every process is on a host of its own: all that is shared is sent."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

import psplatform as ps

Start = Callable[..., ps.Run]
Watch = Callable[[Any, ps.Run], Any]
Until = Callable[..., None]
Reaches = Callable[[str, int], None]
BOUND = 5
ELSEWHERE = {
    "evaluate_every": 25,
    "optimizer": ps.SGD(lr=0.1, momentum=0.9),
    "transport": "comms",
    "worker_lease_s": 2,
    "server_lease_s": 2,
}


SMALL: dict[str, Any] = {}
LARGE = {"options": {"samples": 200, "dimension": 40_000}, "optimizer": ps.SGD(lr=1e-4, momentum=0.9)}
"""A model of five megabytes: shards of a size that does not travel within messages."""


@pytest.mark.parametrize(
    ("replication", "size"),
    [
        (ps.Chain(), SMALL),
        (ps.Chain(source="workers"), SMALL),
        (ps.Bounded(max_divergence=BOUND, unit="updates"), SMALL),
        (ps.Bounded(max_divergence=BOUND, unit="updates", source="workers"), SMALL),
        (ps.Chain(), LARGE),
        (ps.Bounded(max_divergence=BOUND, unit="updates", source="workers"), {**LARGE, "policy": "bsp"}),
    ],
)
def test_a_shard_survives_two_servers_in_a_row(
    cluster: Any, start: Start, watch: Watch, until: Until, reaches: Reaches, replication: Any, size: Any
) -> None:
    """The second time it is a replica made meanwhile, to which the whole state was sent."""
    bound = BOUND if isinstance(replication, ps.Bounded) else 0
    one = watch(cluster, start(cluster, **{**ELSEWHERE, **size}, replication=replication))
    for count in (1, 2):
        reaches(one.run.store, 20)
        until(one.protected, "the run is protected")
        served = [each["copy"] for each in one.log("promoted") if each["shard"] == 1] or ["server-1"]
        os.kill(cluster.pids()[one.actors()[served[-1]]], signal.SIGKILL)
        until(
            lambda of=count: len([each for each in one.log("promoted") if each["shard"] == 1]) == of, "another serves"
        )
    reaches(one.run.store, 20)
    summary = one.finish()
    assert all(each["updates_lost"] <= bound for each in summary["failovers"])
    assert summary["divergence"]["max"] <= bound
    lost = {each["reason"] for each in one.log("copy") if each["event"] == "lost"}
    assert lost == {"process ended"}
    if not bound:
        assert one.log("lost positions") == []
