"""When a run ends and how: drained, evaluated, saved; and what it says when that cannot be."""

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
    ModelSaved,
    RunFailed,
    StopRequested,
)
from psplatform.errors import ClusterError

Open = Callable[..., Any]
LOST = CopyLost("server-0", "tcp://there:1", "killed")
BROKEN = EvaluationFailed("KeyError", "'x'", "Traceback ...")


def phase(scene: Any) -> Phase:
    return scene.coordinator.ending.phase  # type: ignore[no-any-return]


in_phases = lambda phases: pytest.mark.parametrize("at_phase", phases, ids=lambda one: one.value)  # noqa: E731


# --- stop conditions ---


def test_no_commit_is_made_beyond_the_number_of_updates(open_scene: Open) -> None:
    scene = open_scene(stop=Stop(updates=3)).join("a", "b")
    for name in ("a", "b", "a"):
        scene.announce(name)
    assert scene.addressed(msg.Stop) == ["a", "b"]
    scene.announce("b")
    assert scene.coordinator.state.version == 3
    finish = scene.end().finish
    assert (finish.outcome, finish.detail, finish.failure) == ("updates", "3 updates", None)


def test_epochs_count_samples_of_applied_gradients(open_scene: Open) -> None:
    scene = open_scene(stop=Stop(epochs=0.1)).join("a").announce("a").announce("a", samples=4)
    assert phase(scene) is Phase.RUNNING
    scene.announce("a", samples=2)
    assert scene.end().finish.detail == "0.10 epochs"


def test_seconds_count_from_the_first_joiner(open_scene: Open) -> None:
    scene = open_scene(stop=Stop(seconds=5.0))
    assert all(one.tag != "seconds" for one in scene.asked(SetTimer))
    scene.now = 2.0
    scene.join("a")
    assert SetTimer("seconds", 7.0) in scene.effects
    assert all(one.tag != "seconds" for one in scene.join("b").asked(SetTimer))
    scene.fire("seconds", at=7.0)
    assert scene.end().finish.outcome == "seconds"
    assert scene.logged("finished")[0]["seconds"] == 5.0


def test_asking_to_stop_ends_the_run_in_good_order(open_scene: Open) -> None:
    scene = open_scene().join("a").announce("a")
    scene.handle(StopRequested("enough"))
    finish = scene.end().finish
    assert (finish.outcome, finish.detail, finish.failure) == ("stopped", "enough", None)


def test_the_first_reason_to_end_stands(open_scene: Open) -> None:
    scene = open_scene().join("a").announce("a")
    scene.handle(StopRequested("enough"))
    scene.handle(StopRequested("more than enough"))
    scene.handle(RunFailed(ClusterError("too late to fail")))
    assert scene.end().finish == Finish("stopped", "enough")


# --- evaluations while the run goes on, and targets ---


def test_the_newest_version_is_evaluated_at_the_interval_and_one_at_a_time(open_scene: Open) -> None:
    scene = open_scene(evaluates=True, evaluate_every=2).join("a")
    asked = [scene.announce("a").asked(Evaluate) for _ in range(5)]
    assert asked == [[], [Evaluate(2, measure=True)], [], [], []]
    assert scene.handle(Evaluated(2, 1.0, None))[-1] == Evaluate(5, measure=True)


def test_without_held_out_data_nothing_is_measured_but_the_last_version_is_fetched(open_scene: Open) -> None:
    scene = open_scene(evaluate_every=1, stop=Stop(updates=2)).join("a").announce("a").announce("a")
    assert scene.orders == []
    assert scene.show().orders == [Evaluate(2, measure=False)]


def test_the_version_that_reached_the_target_is_the_one_that_is_kept(open_scene: Open) -> None:
    scene = open_scene(evaluates=True, evaluate_every=1, stop=Stop(target_accuracy=0.9)).join("a").announce("a")
    scene.announce("a")
    scene.handle(Evaluated(1, 0.2, 0.95))
    assert scene.show().asked(Evaluate) == []
    assert scene.asked(SaveModel) == [SaveModel(1)]
    finish = scene.end().finish
    assert (finish.outcome, finish.detail) == ("reached target", "accuracy 0.9500 >= 0.9")
    (record,) = scene.logged("finished")
    assert (record["version"], record["loss"], record["accuracy"]) == (1, 0.2, 0.95)


def test_an_evaluation_under_way_when_the_run_ends_may_still_reach_the_target(open_scene: Open) -> None:
    stop = Stop(updates=2, target_loss=0.5)
    scene = open_scene(evaluates=True, evaluate_every=1, stop=stop).join("a").announce("a").announce("a").show()
    assert phase(scene) is Phase.DRAINING
    scene.handle(Evaluated(1, 0.4, None))
    assert scene.asked(SaveModel) == [SaveModel(1)]
    assert scene.handle(ModelSaved(1))[-1] == Finish("reached target", "loss 0.4000 <= 0.5")


def test_a_failed_run_does_not_become_a_success_by_a_late_evaluation(open_scene: Open) -> None:
    scene = open_scene(evaluates=True, evaluate_every=1, stop=Stop(target_loss=0.5)).join("a").announce("a")
    scene.handle(RunFailed(ClusterError("broken")))
    scene.handle(Evaluated(1, 0.4, None))
    finish = scene.end().finish
    assert (finish.outcome, str(finish.failure)) == ("failed", "broken")


def test_a_target_that_is_not_reached_does_not_end_the_run(open_scene: Open) -> None:
    scene = open_scene(evaluates=True, evaluate_every=1, stop=Stop(target_loss=0.5)).join("a").announce("a")
    scene.handle(Evaluated(1, 0.6, None))
    assert phase(scene) is Phase.RUNNING
    assert [(one["version"], one["loss"]) for one in scene.logged("evaluated")] == [(1, 0.6)]


# --- the phases of the end ---


def test_a_run_drains_evaluates_saves_and_is_over(brought_to: Any) -> None:
    scene = brought_to(Phase.DRAINING)
    assert scene.orders == []
    scene.show()
    assert scene.orders == [Evaluate(1, measure=True)]
    scene.evaluated(scene.orders[0], loss=0.3)
    assert scene.orders == [SaveModel(1)]
    scene.handle(ModelSaved(1))
    assert scene.finish == Finish("updates", "1 updates")
    assert scene.logged("finished")[0]["loss"] == 0.3


def test_draining_waits_for_an_evaluation_under_way(open_scene: Open) -> None:
    scene = open_scene(evaluates=True, evaluate_every=1, stop=Stop(updates=2)).join("a").announce("a").announce("a")
    scene.show()
    assert phase(scene) is Phase.DRAINING
    scene.handle(Evaluated(1, 1.0, None))
    assert scene.asked(Evaluate) == [Evaluate(2, measure=True)]


def test_a_run_that_ends_before_its_first_commit_saves_its_initial_version(open_scene: Open) -> None:
    scene = open_scene().join("a")
    scene.handle(StopRequested("enough"))
    assert scene.orders == [Evaluate(0, measure=False)]
    scene.end()
    assert scene.logged("finished")[0]["version"] == 0


def test_saved_twice_is_finished_once(brought_to: Any) -> None:
    scene = brought_to(Phase.OVER)
    assert scene.handle(ModelSaved(1)) == []
    assert len(scene.logged("finished")) == 1


@in_phases([Phase.RUNNING, Phase.DRAINING, Phase.EVALUATING])
def test_a_model_that_is_reported_saved_too_early_changes_nothing(brought_to: Any, at_phase: Phase) -> None:
    scene = brought_to(at_phase)
    scene.handle(ModelSaved(0))
    assert phase(scene) is at_phase
