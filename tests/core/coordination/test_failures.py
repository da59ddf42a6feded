"""What can go wrong, in each phase of a run, and how the run ends then: it never hangs, and says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from psplatform.core.coordination.ending import Phase
from psplatform.core.plan import Stop
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Evaluate, Finish, SaveModel, SetTimer
from psplatform.core.protocol.events import (
    CopyLost,
    Evaluated,
    EvaluationFailed,
    EvaluationLost,
    RunFailed,
    SaveFailed,
    StopRequested,
)
from psplatform.errors import ClusterError, StoreError, UserCodeError
from psplatform.policies.bsp import BulkSynchronous

Open = Callable[..., Any]
LOST = CopyLost("server-0", "tcp://there:1", "killed")
BROKEN = EvaluationFailed("KeyError", "'x'", "Traceback ...")


def phase(scene: Any) -> Phase:
    return scene.coordinator.ending.phase  # type: ignore[no-any-return]


BEFORE_THE_END = [Phase.RUNNING, Phase.DRAINING, Phase.EVALUATING, Phase.SAVING]

in_phases = lambda phases: pytest.mark.parametrize("at_phase", phases, ids=lambda one: one.value)  # noqa: E731


# --- the evaluator is lost ---


def test_a_lost_evaluation_is_noted_and_the_next_interval_evaluates(open_scene: Open) -> None:
    scene = open_scene(evaluates=True, evaluate_every=1).join("a").announce("a")
    scene.handle(EvaluationLost("killed"))
    assert scene.asked(Evaluate) == []
    assert scene.logged("note") == [{"kind": "note", "at": 0.0, "text": "evaluation lost: killed"}]
    assert scene.announce("a").asked(Evaluate) == [Evaluate(2, measure=True)]


def test_losing_the_evaluation_that_draining_waits_for_goes_on_to_the_last_one(open_scene: Open) -> None:
    scene = open_scene(evaluates=True, evaluate_every=1, stop=Stop(updates=2)).join("a").announce("a").announce("a")
    scene.show()
    scene.handle(EvaluationLost("killed"))
    assert scene.asked(Evaluate) == [Evaluate(2, measure=True)]
    assert scene.end().finish == Finish("updates", "2 updates")


@in_phases([Phase.EVALUATING, Phase.SAVING])
def test_what_was_lost_with_the_evaluator_is_fetched_again_before_the_run_ends(
    brought_to: Any, at_phase: Phase
) -> None:
    """The evaluator holds the parameters that are to be saved."""
    scene = brought_to(at_phase)
    scene.handle(EvaluationLost("killed"))
    assert scene.orders == [Evaluate(1, measure=True)]
    assert phase(scene) is Phase.EVALUATING
    assert scene.end().finish == Finish("updates", "1 updates")


# --- the user's evaluation raises ---


@in_phases([Phase.RUNNING, Phase.DRAINING, Phase.EVALUATING])
def test_an_error_in_the_user_s_evaluation_fails_the_run_but_the_model_is_saved(
    open_scene: Open, at_phase: Phase
) -> None:
    scene = open_scene(evaluates=True, evaluate_every=1, stop=Stop(updates=2)).join("a").announce("a")
    if at_phase is not Phase.RUNNING:
        scene.announce("a").show()
    if at_phase is Phase.EVALUATING:
        scene.handle(Evaluated(1, 1.0, None))
    assert phase(scene) is at_phase
    scene.handle(BROKEN)
    scene.show()
    assert scene.orders == [Evaluate(scene.coordinator.state.version, measure=False)]
    finish = scene.end().finish
    assert finish.outcome == "failed"
    assert isinstance(finish.failure, UserCodeError)
    assert finish.failure.user_traceback == "Traceback ..."
    assert "KeyError in the user's code while computing the evaluation on held-out data: 'x'" in finish.detail


def test_an_evaluation_that_fails_after_the_run_failed_does_not_hide_why(open_scene: Open) -> None:
    scene = open_scene(evaluates=True).join("a").announce("a")
    scene.handle(RunFailed(ClusterError("first")))
    scene.show()
    scene.handle(BROKEN)
    assert scene.orders == [Evaluate(1, measure=False)]
    assert str(scene.end().finish.failure) == "first"


# --- the user's training code raises ---


def test_an_error_in_the_user_s_training_code_fails_the_run_with_their_traceback(open_scene: Open) -> None:
    scene = open_scene().join("a", "b").announce("a")
    scene.handle(msg.Failed("b", 1, "ValueError", "bad batch", "Traceback ..."))
    finish = scene.end().finish
    assert finish.outcome == "failed"
    assert finish.failure.user_traceback == "Traceback ..."
    assert "gradient 1 of worker 1 (process of b): bad batch" in finish.detail
    assert scene.logged("finished")[0]["version"] == 1


def test_an_error_of_a_worker_that_is_gone_is_still_the_user_s(open_scene: Open) -> None:
    scene = open_scene().join("a").lose("a")
    scene.handle(msg.Failed("a", 1, "ValueError", "bad batch", "Traceback ..."))
    assert "gradient 1 of a worker: bad batch" in str(scene.failure)


# --- what makes it pointless to go on ---


@in_phases(BEFORE_THE_END)
def test_losing_a_server_ends_the_run_at_once_whatever_it_was_doing(brought_to: Any, at_phase: Phase) -> None:
    scene = brought_to(at_phase)
    scene.handle(LOST)
    assert isinstance(scene.effects[-1], Finish)
    assert scene.asked(Evaluate) + scene.asked(SaveModel) == []
    finish = scene.finish
    assert finish.outcome == "failed"
    assert isinstance(finish.failure, ClusterError)
    assert finish.failure.peer == "tcp://there:1"
    assert "the server of shard 0 at tcp://there:1 is lost (killed)" in finish.detail
    assert scene.handle(LOST) == []


@in_phases([Phase.RUNNING])
def test_workers_are_told_to_stop_when_a_server_is_lost(brought_to: Any, at_phase: Phase) -> None:
    scene = brought_to(at_phase)
    scene.handle(LOST)
    assert scene.addressed(msg.Stop) == ["a"]


@in_phases(BEFORE_THE_END)
def test_a_model_that_cannot_be_saved_fails_the_run(brought_to: Any, at_phase: Phase) -> None:
    scene = brought_to(at_phase)
    scene.handle(SaveFailed("disk full", "runs/full.zarr"))
    assert isinstance(scene.finish.failure, StoreError)
    assert scene.finish.detail == "disk full"


def test_a_refusal_of_its_own_term_or_a_lower_one_changes_nothing(open_scene: Open) -> None:
    scene = open_scene().join("a")
    scene.handle(msg.Refused(0, 1, term=1))
    assert phase(scene) is Phase.RUNNING


def test_why_the_run_failed_first_is_not_hidden_by_what_fails_afterwards(open_scene: Open) -> None:
    scene = open_scene().join("a").announce("a")
    scene.handle(RunFailed(ClusterError("first")))
    scene.handle(LOST)
    assert scene.finish.detail == "first"
    assert str(scene.finish.failure) == "first"
    assert "the server of shard 0" in scene.logged("note")[0]["text"]


# --- overdue ---


@pytest.mark.parametrize(
    ("at_phase", "missing"),
    [
        (Phase.DRAINING, "1 commits to become visible"),
        (Phase.EVALUATING, "the last evaluation"),
        (Phase.SAVING, "the model to be saved"),
    ],
    ids=lambda one: getattr(one, "value", None),
)
def test_an_end_that_takes_too_long_is_cut_short_and_says_what_was_missing(
    brought_to: Any, at_phase: Phase, missing: str
) -> None:
    scene = brought_to(at_phase)
    scene.fire("finish", at=120.0)
    assert scene.finish.outcome == "failed"
    assert f"waited 120 s for {missing}" in scene.finish.detail


def test_the_end_has_its_time_from_the_moment_it_begins(open_scene: Open) -> None:
    scene = open_scene(finish_limit_s=9.0).join("a")
    scene.handle(StopRequested("enough"), at=2.0)
    assert SetTimer("finish", 11.0) in scene.effects


def test_an_evaluation_that_holds_up_draining_is_named(open_scene: Open) -> None:
    scene = open_scene(evaluates=True, evaluate_every=1, stop=Stop(updates=2)).join("a").announce("a").announce("a")
    scene.show().fire("finish", at=120.0)
    assert "waited 120 s for the evaluation under way" in scene.finish.detail


@in_phases([Phase.RUNNING, Phase.OVER])
def test_the_limit_on_the_end_does_not_matter_before_or_after_it(brought_to: Any, at_phase: Phase) -> None:
    scene = brought_to(at_phase)
    assert scene.fire("finish").asked(Finish) == []


# --- nothing is left ---


@in_phases(BEFORE_THE_END)
def test_every_timer_that_was_set_is_cancelled_by_the_end(open_scene: Open, brought_to: Any, at_phase: Phase) -> None:
    scene = open_scene(BulkSynchronous(), stop=Stop(updates=1, seconds=99.0), evaluates=True)
    pending: set[str] = set()
    handle = scene.handle

    def noting(event: Any, **options: Any) -> Any:
        effects = handle(event, **options)
        for one in effects:
            kind = type(one).__name__
            if kind == "SetTimer":
                pending.add(one.tag)
            elif kind == "CancelTimer":
                pending.discard(one.tag)
        return effects

    scene.handle = noting
    pending.add("absence")
    brought_to(at_phase, scene)
    noting(LOST)
    assert pending == set()
