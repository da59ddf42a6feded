"""Processes that end in good order: what lives in them is handed over, and nothing is lost with them."""

from __future__ import annotations

from typing import Any

import pytest

from psplatform.simulation.faults.execution import Execution
from psplatform.simulation.faults.schedules.schedule import Fault
from psplatform.simulation.faults.schedules.trial import Copying, Trial
from psplatform.simulation.threads import one_thread

LOOSE = Copying(bound=8.0)


def run(*faults: Fault, **fields: Any) -> Execution:
    usual: dict[str, Any] = {"workers": 2, "shards": 2, "updates": 8, "copying": LOOSE, "spares": 2, "standby": True}
    execution = Execution(Trial(5, faults=faults, **{**usual, **fields}))
    with one_thread():
        verdict = execution.to_its_end()
    assert not verdict.invariant, verdict.found
    assert verdict.outcome == "updates"
    return execution


def retire(who: str, at: float = 4.0, seconds: float = 3.0) -> Fault:
    return Fault("retire", who, at=at, seconds=seconds)


def ended(execution: Execution) -> set[str]:
    return execution.run.processes.dead


def lost(execution: Execution) -> list[dict[str, Any]]:
    return [one for one in execution.run.records if one["kind"] == "lost positions"]


def test_a_server_hands_over_to_its_replica_and_ends_at_once() -> None:
    execution = run(retire("server 0", seconds=1000.0))
    assert ended(execution) == {"server-0"}
    assert execution.observation.handed_over == {(0, 2)}
    assert lost(execution) == []


def test_one_that_is_killed_loses_what_its_replica_lacks() -> None:
    """What the hand-over is for."""
    assert lost(run(Fault("kill", "server 0", at=4.0)))


def test_a_replica_ends_at_once_and_another_takes_its_place() -> None:
    execution = run(retire("replica 1", seconds=1000.0))
    assert ended(execution) == {"replica-1-0"}
    (one,) = [each for each in execution.run.coordinator.state.shards if each.shard == 1]
    assert len(one.in_sync) == 1


def test_a_server_without_a_replica_that_could_take_over_ends_when_its_time_is_over() -> None:
    execution = Execution(Trial(5, workers=1, updates=8, copying=None, faults=(retire("server 0"),)))
    with one_thread():
        verdict = execution.to_its_end()
    assert (verdict.invariant, verdict.outcome) == ("", "failed")
    assert ended(execution) == {"server-0"}


@pytest.mark.parametrize("shared", [False, True])
def test_a_coordinator_hands_over_to_its_standby_with_the_server_beside_it(*, shared: bool) -> None:
    execution = run(retire("coordinator", seconds=1000.0), shared=shared)
    assert len(execution.run.leads) == 2
    assert execution.run.leads[0].lead.replaced
    assert ended(execution) == {execution.run.processes.of("coordinator-1")}
    assert execution.observation.handed_over == ({(0, 2)} if shared else set())
    assert lost(execution) == []


def test_a_worker_takes_its_leave() -> None:
    execution = run(retire("worker 1"))
    (gone,) = [one for one in execution.run.records if one["kind"] == "lost"]
    assert gone["reason"] == "its process ends"


def test_whoever_takes_over_meanwhile_is_told_as_well() -> None:
    delay = Fault("delay", "server 0", at=3.5, seconds=2.0, factor=0.3)
    execution = run(delay, retire("server 0", at=4.0, seconds=1000.0), Fault("kill", "coordinator", at=4.1))
    assert len(execution.run.leads) == 2
    assert execution.observation.handed_over == {(0, 2)}


def test_a_claim_that_is_not_heard_is_made_again_until_it_is() -> None:
    held = Fault("claim", "standby", at=3.9, seconds=2.0, way="out")
    execution = run(Fault("kill", "coordinator", at=4.0), held)
    (taken,) = [one for one in execution.run.records if one["kind"] == "promoted" and one["role"] == "coordinator"]
    assert taken["at"] >= held.until


def test_a_claim_whose_answer_is_late_is_granted_all_the_same() -> None:
    held = Fault("claim", "standby", at=3.9, seconds=2.0, way="in")
    execution = run(Fault("kill", "coordinator", at=4.0), held)
    assert len(execution.run.leads) == 2
