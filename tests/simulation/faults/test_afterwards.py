"""What holds once a run is over is looked at, and what does not hold is noticed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from psplatform.errors import InvariantViolation
from psplatform.simulation.faults.checks.afterwards import (
    check_after_the_end,
    check_archived,
    check_forgotten,
    check_whole_decisions,
)
from psplatform.simulation.faults.execution import Execution, run_trial
from psplatform.simulation.faults.schedules.drawing import draw
from psplatform.simulation.faults.schedules.schedule import BREAK, Fault
from psplatform.simulation.faults.schedules.trial import Copying
from psplatform.simulation.faults.storage import Storage
from psplatform.simulation.threads import one_thread

TRIAL = replace(
    draw(3), policy="asp", parameters={}, workers=2, shards=1, late=(), hosts=0, shared=False, copying=Copying(1, 2.0)
)


@pytest.fixture
def run() -> Iterator[Any]:
    """Return a run after its end, a worker of which was lost on the way."""
    with one_thread():
        lost = Fault("kill", "worker 0", at=2.0)
        execution = Execution(replace(TRIAL, updates=30, faults=(lost,), fabric=False, cut_every=2))
        assert not execution.to_its_end().invariant
        yield execution


def broken(name: str, found: str) -> Any:
    return pytest.raises(InvariantViolation, match=f"{name} is violated: .*{found}")


def test_a_coordinator_that_has_ended_the_run_hears_nothing_more(run: Any) -> None:
    check_after_the_end(run.run)
    run.run.leads[-1].node.over = False
    with broken("S10", "goes on about .*StopRequested"):
        check_after_the_end(run.run)


def test_servers_keep_nothing_of_a_member_that_was_dismissed(run: Any) -> None:
    server = run.run.copies[run.run.coordinator.state.shards[0].server]
    assert run.observation.dismissed
    check_forgotten(run.run, run.observation.dismissed)
    server.state._held |= run.observation.dismissed
    server.state._dismissed.clear()
    with broken("S15", "who were dismissed"):
        check_forgotten(run.run, run.observation.dismissed)
    server.state.dismiss(next(iter(run.observation.dismissed)), 10**6, 1)
    check_forgotten(run.run, list(run.observation.dismissed)[:1])


def test_a_copy_that_lives_tries_to_write_every_part_that_it_was_to_write(run: Any) -> None:
    assert run.observation.archiving
    check_archived(run.run, run.observation.archiving - run.reference.archived)
    name = run.run.coordinator.state.shards[0].server
    with broken("S7", f"{name} was to write its part of checkpoint 7"):
        check_archived(run.run, {(name, 7)})
    run.run.copies[name].close()
    check_archived(run.run, {(name, 7)})


def test_a_run_ends_when_a_decision_was_executed_by_half() -> None:
    def ended(outcome: str, *leads: str) -> Any:
        return SimpleNamespace(leads=leads, finish=SimpleNamespace(outcome=outcome))

    check_whole_decisions(ended("updates", "first"), Storage())
    storage = Storage(broke=True)
    check_whole_decisions(ended("failed", "first"), storage)
    check_whole_decisions(ended("updates", "first", "second"), storage)
    with broken("S10", "executed by half, and the run ends by updates"):
        check_whole_decisions(ended("updates", "first"), storage)


def test_a_storage_that_raises_what_nobody_expects_ends_the_run() -> None:
    breaks = Fault("storage", at=0.0, what="manifest", how=BREAK)
    with one_thread():
        verdict = run_trial(replace(TRIAL, updates=30, faults=(breaks,), cut_every=2))
    assert (verdict.invariant, verdict.outcome) == ("", "failed")
    assert "what speaks to the storage breaks" in verdict.detail
