"""A server dies whose workers compress gradients: the one that is promoted is sent the very same."""

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


@pytest.mark.parametrize(("kind", "source"), [("topk:0.1", "workers"), ("bf16", "server")])
def test_a_killed_server_is_not_to_be_seen_in_what_is_learned(
    cluster: Any,
    start: Callable[..., ps.Run],
    reaches: Callable[[str, int], None],
    watch: Callable[..., Any],
    tmp_path: Path,
    kind: str,
    source: Any,
) -> None:
    """Under chain: what a worker kept back for its next gradient goes on as if nothing had happened."""
    common = {"stop": ps.Stop(updates=60), "transport": "comms", "compression": kind}
    common |= {"server_lease_s": 2, "worker_lease_s": 2}
    undisturbed = start(cluster, store=str(tmp_path / "undisturbed.zarr"), **common)
    undisturbed.wait(LIMIT_S)

    hurt = start(cluster, replication=ps.Chain(source=source), **common)
    reaches(hurt.store, 10)
    seen = watch(cluster, hurt)
    os.kill(cluster.pids()[seen.actors("server-1")["server-1"]], signal.SIGKILL)
    hurt.wait(LIMIT_S)

    (promoted,) = [one for one in seen.log("promoted") if one["role"] == "server"]
    assert (promoted["shard"], promoted["updates_lost"]) == (1, 0)
    expected, found = undisturbed.model().state_dict(), hurt.model().state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
