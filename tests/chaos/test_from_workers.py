"""A server dies whose replica took its gradients from the workers: the run goes on as if nothing had happened."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import psplatform as ps

LIMIT_S = 180.0
UPDATES = 60


@pytest.mark.parametrize("transport", ["auto", "comms"])
def test_a_killed_server_is_not_to_be_seen_in_the_result(
    cluster: Any,
    start: Callable[..., ps.Run],
    reaches: Callable[[str, int], None],
    watch: Callable[..., Any],
    tmp_path: Path,
    transport: str,
) -> None:
    """Under chain: whether replicas read gradients where they lie, or are sent them, they hold the server's state."""
    common = {
        "stop": ps.Stop(updates=UPDATES),
        "optimizer": ps.Adam(lr=0.01),
        "transport": transport,
        "server_lease_s": 2,
        "worker_lease_s": 2,
    }
    undisturbed = start(cluster, store=str(tmp_path / "undisturbed.zarr"), **common)
    undisturbed.wait(LIMIT_S)
    hurt = start(cluster, replication=ps.Chain(source="workers"), **common)
    reaches(hurt.store, 10)
    seen = watch(cluster, hurt)
    os.kill(cluster.pids()[seen.actors("server-1")["server-1"]], signal.SIGKILL)
    hurt.wait(LIMIT_S)
    (promoted,) = [one for one in seen.log("promoted") if one["role"] == "server"]
    assert (promoted["shard"], promoted["updates_lost"]) == (1, 0)
    expected, found = undisturbed.model().state_dict(), hurt.model().state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    before = [one for one in seen.log("applied") if one["at"] < promoted["at"]][-1]
    gradient_bytes = sum(tensor.numel() * tensor.element_size() for tensor in expected.values())
    assert before["to_replica_bytes"] > 1.5 * before["version"] * gradient_bytes, (
        "a server sends the mean of both, once"
    )
