"""A server that shall not go on alone: what it shows without a replica in sync stays within the bound."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import psplatform as ps

LIMIT_S = 180.0
BOUND = 4


def test_a_promoted_server_that_is_told_to_pause_waits_for_a_replica(
    new_cluster: Callable[[], Any],
    start: Callable[..., ps.Run],
    log: Callable[..., list[dict[str, Any]]],
    until: Callable[..., None],
    reaches: Callable[[str, int], None],
) -> None:
    """The one process that is left has no place for it; with another, training goes on."""
    cluster = new_cluster()
    cluster.repair(2)
    pausing = ps.Bounded(max_divergence=BOUND, unit="updates", on_replica_loss="pause")
    leases = {"worker_lease_s": 2, "server_lease_s": 2}
    run = start(cluster, policy="bsp", workers=1, shards=1, replication=pausing, **leases)
    reaches(run.store, 10)
    until(lambda: "standby" in run.roles(), "the coordinator has a standby")
    os.kill(run.process_of("server-0"), signal.SIGKILL)
    until(lambda: [one for one in log(run.store, "promoted") if one["role"] == "server"], "the replica is promoted")
    (risen,) = [one for one in log(run.store, "promoted") if one["role"] == "server"]

    def after(kind: str, field: str) -> list[int]:
        return [one[field] for one in log(run.store, kind) if one["at"] > risen["at"]]

    until(lambda: len(after("applied", "version")) >= BOUND, "it has shown what the bound allows")
    until(lambda: after("commit", "version")[-1:] > after("applied", "version")[-1:], "the next version is decided")
    cluster.repair(2)
    reaches(run.store, 20)
    run.stop("seen enough")
    assert run.wait(LIMIT_S)["outcome"] == "stopped"
    (joined,) = [one["at"] for one in log(run.store, "copy") if one["event"] == "in sync" and one["at"] > risen["at"]]
    decided = max(one["position"] for one in log(run.store, "commit") if one["at"] <= risen["at"])
    assert risen["position"] <= decided + 1, "a coordinator lost with the server can have decided one more, not logged"
    alone = [one["position"] for one in log(run.store, "applied") if risen["at"] < one["at"] < joined]
    lost = {at for one in log(run.store, "lost positions") for at in range(one["first"], one["last"] + 1)}
    further = set(range(risen["position"] + 1, max(alone) + 1)) - lost
    assert len(further) <= BOUND, "and no more"
