"""As many standbys as replicas: a run that is promised to survive two losses survives those of its coordinators."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import psplatform as ps

PATIENT = {
    "workload": "digits",
    "options": {},
    "stragglers": "constant:seconds=0.01",
    "evaluate_every": 25,
    "replication": ps.Bounded(replicas=2),
    "worker_lease_s": 2,
    "server_lease_s": 6,
}


def standbys_of(run: ps.Run) -> dict[str, str]:
    run.status()  # which finds the coordinator that has taken over, if one has
    return {name: address for name, address in run.roles().items() if name.startswith("standby")}


def test_a_run_survives_the_loss_of_its_coordinator_and_of_a_standby_at_once(
    new_cluster: Callable[[], Any],
    start: Callable[..., ps.Run],
    watch: Callable[..., Any],
    until: Callable[..., None],
    reaches: Callable[[str, int], None],
) -> None:
    """The first standby would take over; it dies with the coordinator, and the second does."""
    cluster = new_cluster()
    cluster.repair(6)
    run = start(cluster, **PATIENT)
    seen = watch(cluster, run)
    reaches(run.store, 10)
    until(lambda: seen.protected() and len(standbys_of(run)) == 2, "two standbys")
    pids, roles = cluster.pids(), run.roles()
    assert len({roles["coordinator"], *standbys_of(run).values()}) == 3, "each in a process of its own"
    for role in ("coordinator", "standby"):
        os.kill(pids[roles[role]], signal.SIGKILL)
    until(lambda: any(one["role"] == "coordinator" for one in seen.log("promoted")), "the second has taken over")
    reaches(run.store, 10)
    cluster.repair(6)
    until(lambda: seen.protected() and len(standbys_of(run)) == 2, "two standbys again")
    seen.finish()
    assert [one["outcome"] for one in seen.log("finished")] == ["stopped"]
    assert [one["epoch"] for one in seen.log("promoted") if one["role"] == "coordinator"] == [3]
