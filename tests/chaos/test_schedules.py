"""Schedules of faults as data: in memory and with real processes, what is lost is replaced as often.

Faults are due by the run's own clock, and with real processes not before the run is protected again: how long a new
replica takes there is the machine's business.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import psplatform as ps
from psplatform.simulation.faults.execution import run_trial
from psplatform.simulation.faults.schedules.schedule import Fault, Selector
from psplatform.simulation.faults.schedules.trial import Trial

SCHEDULES = json.loads((Path(__file__).parent / "schedules.json").read_text())
SIGNALS = {"kill": signal.SIGKILL, "retire": signal.SIGTERM, "pause": signal.SIGSTOP}


class Injection:
    """Carries out a schedule on the processes of a run."""

    def __init__(self, seen: Any, until: Callable[..., None]) -> None:
        self._seen, self._until = seen, until

    def reach(self, second: float) -> None:
        """Wait until the run's clock shows it."""
        self._until(lambda: self._seen.log("commit")[-1]["at"] >= second, f"the run's clock shows {second:g} s")

    def do(self, fault: Fault) -> None:
        """Do one fault to whoever has its role by then."""
        self.reach(fault.at or 0.0)
        self._until(self._seen.protected, "the run is protected")
        self._seen.run.status()  # finds a coordinator that took over
        pid = self._seen.run.process_of(self._name(Selector.parse(fault.who)))
        os.kill(pid, SIGNALS[fault.kind])
        if fault.kind == "pause":
            self.reach(fault.until)
            os.kill(pid, signal.SIGCONT)
        else:
            self._seen.cluster.wait_for_end(pid)

    def _name(self, role: Selector) -> str:
        if role.role == "worker":
            return sorted(name for name in self._seen.run.roles() if name.startswith("worker"))[role.number]
        shard = self._seen.run.standing()["shards"][role.number]
        return str(shard["server"] if role.role == "server" else shard["in_sync"][0])


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule["name"])
def test_a_schedule_has_the_same_outcome_in_memory_and_with_real_processes(
    schedule: dict[str, Any], cluster: Any, start: Callable[..., ps.Run], watch: Any, until: Any, reaches: Any
) -> None:
    trial = Trial.from_plain(schedule["trial"])
    verdict = run_trial(trial)
    assert (verdict.invariant, verdict.outcome) == ("", "updates"), verdict.found
    assert trial.copying is not None
    bound = ps.Bounded(max_divergence=trial.copying.bound, unit=trial.copying.unit)
    run = start(
        cluster,
        workload=trial.workload,
        options={},
        policy=trial.policy,
        workers=trial.workers,
        shards=trial.shards,
        replication=bound,
        evaluate_every=25,
        worker_lease_s=2,
        server_lease_s=6,
    )
    seen = watch(cluster, run)
    until(lambda: seen.log("commit"), "training has begun")
    injection = Injection(seen, until)
    for fault in trial.faults:
        injection.do(fault)
        reaches(run.store, 10)
        cluster.repair(len(cluster.workers))
    until(seen.protected, "the run is protected in the end")
    summary = seen.finish()
    risen = [one["role"] for one in seen.log("promoted")]
    assert risen.count("server") == verdict.counts["promotions"]
    assert risen.count("coordinator") == verdict.counts["takeovers"]
    assert all(one["updates_lost"] <= trial.copying.bound for one in summary["failovers"])
