"""What a role is asked or told beside a run finds what is wrong with it, and leaves the run as it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from psplatform.core.coordination import Coordinator
from psplatform.core.plan import Plan, Stop
from psplatform.core.protocol import messages as msg
from psplatform.core.shards.replica import Replica, ShardCopy
from psplatform.core.workers.session import WorkerSession
from psplatform.errors import InvariantViolation
from psplatform.jobs.schedules import Constant
from psplatform.policies.registry import make_policy
from psplatform.replication.accounts import Account
from psplatform.simulation.faults import execution
from psplatform.simulation.faults.checks.probing import check_answers_successors, old_ones, told_too_early
from psplatform.simulation.faults.checks.staleness import Staleness
from psplatform.simulation.faults.execution import run_trial
from psplatform.simulation.faults.schedules.drawing import draw
from psplatform.simulation.threads import one_thread


def session() -> WorkerSession:
    made = WorkerSession("worker", "here", 1, make_policy("asp", {}).traits)
    made.handle(msg.Welcome(2, 0, 1), 0.0)
    return made


def taking_over() -> Coordinator:
    """Return a coordinator of term 2 that takes over while a copy is being promoted."""
    plan = Plan("r", 1, 1, samples=8, batch_size=2, stop=Stop(updates=9), schedule=Constant())
    made = Coordinator(plan, make_policy("asp", {}))
    made.state.term = 2
    made.state.shards[0].epoch, made.state.shards[0].promoting = 2, True
    made.takeover.awaited_shards = {0}
    return made


def beside(name: str, role: Any) -> Staleness:
    leads = [SimpleNamespace(name=name, lead=SimpleNamespace(coordinator=role))]
    workers, processes = SimpleNamespace(nodes={}), SimpleNamespace(clock=lambda _: 0.0)
    run: Any = SimpleNamespace(
        copies={}, workers=workers, standbys=SimpleNamespace(all=[]), leads=leads, processes=processes
    )
    run.agenda = SimpleNamespace(now=1.0)
    return Staleness(run, probed=1.0)


def test_with_every_message_probed_a_clean_run_is_what_it_is_without(monkeypatch: pytest.MonkeyPatch) -> None:
    trial, runs = draw(0, scenario="a unit is lost"), []
    with one_thread():
        for share in (0.0, 1.0):
            monkeypatch.setattr(execution, "PROBED", share)
            runs.append(run_trial(trial))
    assert [one.found for one in runs] == ["", ""]
    assert runs[0].summary() == runs[1].summary()


def test_a_worker_that_tells_a_new_coordinator_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    welcomed = session()
    check_answers_successors("worker", welcomed, 1.0)
    monkeypatch.setattr(WorkerSession, "handle", lambda *_: [])
    with pytest.raises(InvariantViolation, match="S10 is violated: worker tells a new coordinator nothing"):
        check_answers_successors("worker", welcomed, 1.0)


def test_a_coordinator_that_counts_a_copy_before_it_obeys_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    lead = taking_over()
    said = msg.ServerState(0, "another copy", 2, 1, False, 0, ())
    scene = beside("coordinator-2", lead)
    scene.hand_over("coordinator-2", said, lambda: None)
    assert lead.takeover.awaited_shards == {0}
    monkeypatch.setattr(Coordinator, "handle", lambda self, *_: self.takeover.awaited_shards.clear())
    with pytest.raises(InvariantViolation, match="S14 is violated: coordinator-2 has changed awaited"):
        scene.hand_over("coordinator-2", msg.ServerState(0, "another copy", 2, 1, False, 0, ()), lambda: None)


def test_nothing_is_too_early_for_who_takes_nothing_over() -> None:
    lead = taking_over()
    assert {type(one) for one in told_too_early(lead)} == {msg.ServerState, msg.Promoted}
    lead.takeover.awaited_shards.clear()
    assert not list(told_too_early(lead))


def test_a_copy_that_is_to_serve_is_told_once_more_of_a_successor_that_was_lost() -> None:
    part = Replica(0, "copy", epoch=2, term=2)
    copy = ShardCopy(part, Account)
    order = msg.Promote(2, 3, successors=("other",))
    part.promotion = order
    orders = [one for one in old_ones(copy, order) if isinstance(one, msg.Promote) and one.epoch == 3 and one.term == 2]
    assert [len(one.successors) for one in orders] == [2]
    assert [one.replaces(order) for one in orders] == [False]
