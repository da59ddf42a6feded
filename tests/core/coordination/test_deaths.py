"""Processes that die one after the other: which of them end the run, and which are lost workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from psplatform.core.coordination.members.membership import MOST_DEATHS
from psplatform.core.plan import Stop
from psplatform.core.protocol.effects import Evaluate, Finish
from psplatform.core.protocol.events import EvaluationLost, EvaluatorDied, MemberDied, MemberLost
from psplatform.errors import ProcessDied

Open = Callable[..., Any]
CRASH = ProcessDied(
    "tcp://there:1 (process 5) was killed by SIGSEGV", kind="SIGSEGV", peer="tcp://there:1", pid=5, code=-11
)


def die(scene: Any, name: str) -> Any:
    scene.lose(name)
    scene.handle(MemberDied(name, CRASH))
    return scene


def failure(scene: Any) -> Any:
    return scene.coordinator.ending.failure


def test_one_process_that_died_is_a_lost_worker(open_scene: Open) -> None:
    scene = die(open_scene(deal_epochs=True).join("a", "b"), "a")
    assert failure(scene) is None
    assert not scene.coordinator.state.stopping


def test_the_same_batch_in_three_processes_ends_the_run_though_others_go_on(open_scene: Open) -> None:
    scene = open_scene(deal_epochs=True).join("a").announce("a").join("b")
    for number in range(MOST_DEATHS):
        assert failure(scene) is None
        scene.join(f"c{number}")  # is dealt what the one before had
        scene.announce("b")
        die(scene, f"c{number}")
    error = failure(scene)
    assert isinstance(error, ProcessDied)
    assert str(error).startswith("3 processes have died one after the other while they computed the same batch: tcp:")
    assert (error.kind, error.peer, error.pid, error.code) == ("SIGSEGV", "tcp://there:1", 5, -11)


def test_the_first_gradient_of_three_processes_in_a_slot_ends_the_run_whatever_the_batch(open_scene: Open) -> None:
    scene = open_scene()
    for number in range(MOST_DEATHS):
        assert failure(scene) is None
        die(scene.join(f"a{number}"), f"a{number}")
    assert "died one after the other at a gradient of worker 0, none came back: tcp:" in str(failure(scene))


def test_processes_that_bring_gradients_before_they_die_do_not_end_the_run(open_scene: Open) -> None:
    scene = open_scene()
    for number in range(3 * MOST_DEATHS):
        die(scene.join(f"a{number}").announce(f"a{number}"), f"a{number}")
    assert failure(scene) is None


def test_a_process_that_brought_a_gradient_is_the_first_of_those_that_bring_none_after_it(open_scene: Open) -> None:
    scene = die(open_scene().join("a").announce("a"), "a")
    die(scene.join("b"), "b")
    assert failure(scene) is None
    die(scene.join("c"), "c")
    assert str(failure(scene)).startswith("3 processes have died one after the other at a gradient of worker 0")


def test_processes_that_die_while_they_wait_do_not_end_the_run(open_scene: Open) -> None:
    """The user's code does not run in them."""
    scene = open_scene()
    for number in range(3 * MOST_DEATHS):
        scene.join(f"a{number}")
        member = scene.coordinator.state.roster.by_name.get(f"a{number}")
        scene.coordinator.state.roster.rest(member)
        die(scene, f"a{number}")
    assert failure(scene) is None


def test_three_processes_that_open_nothing_end_the_run(open_scene: Open) -> None:
    scene = open_scene().join("here")
    for number in range(MOST_DEATHS):
        assert failure(scene) is None
        scene.handle(MemberLost(f"a{number}", "gone"))
        scene.handle(MemberDied(f"a{number}", CRASH))
    assert str(failure(scene)).startswith("3 processes have died one after the other while they opened the task: tcp:")


def test_one_that_opens_the_task_between_them_begins_the_count_anew(open_scene: Open) -> None:
    scene = open_scene().join("here")
    for number in range(2 * MOST_DEATHS):
        scene.handle(MemberLost(f"a{number}", "gone"))
        scene.handle(MemberDied(f"a{number}", CRASH))
        scene.join(f"b{number}").lose(f"b{number}")
    assert failure(scene) is None


def test_a_process_that_dies_after_the_run_began_to_end_changes_nothing(open_scene: Open) -> None:
    scene = open_scene(stop=Stop(updates=1)).join("here").announce("here")
    for number in range(MOST_DEATHS):
        scene.handle(MemberDied(f"a{number}", CRASH))
    scene.end()
    assert scene.asked(Finish)[0].failure is None


def evaluator_dies(scene: Any) -> None:
    scene.handle(EvaluationLost("gone"))
    scene.handle(EvaluatorDied(CRASH))


@pytest.mark.parametrize("updates", [1, 1000], ids=["at the end", "on the way"])
def test_evaluators_that_die_one_after_the_other_end_the_run_with_its_model_saved(
    open_scene: Open, updates: int
) -> None:
    scene = open_scene(evaluates=True, evaluate_every=1, stop=Stop(updates=updates)).join("a").announce("a").show()
    for _ in range(MOST_DEATHS):
        assert failure(scene) is None
        scene.announce("a").show()
        evaluator_dies(scene)
    assert scene.asked(Evaluate)[-1].measure is False, "what is saved is pulled, and not measured again"
    scene.end()
    (finish,) = scene.asked(Finish)
    assert isinstance(finish.failure, ProcessDied)
    assert "3 processes have died one after the other while they evaluated the model" in str(finish.failure)


def test_evaluators_that_die_with_nothing_to_evaluate_end_no_run(open_scene: Open) -> None:
    """Something else has ended their processes; how often that happens says nothing of the evaluation."""
    scene = open_scene(evaluates=True, evaluate_every=1000).join("a")
    for _ in range(2 * MOST_DEATHS):
        scene.announce("a").show()
        evaluator_dies(scene)
    assert failure(scene) is None


def test_evaluators_that_die_while_they_open_the_task_end_the_run_whatever_there_is_to_evaluate(
    open_scene: Open,
) -> None:
    scene = open_scene(evaluates=True, evaluate_every=1000).join("a")
    for _ in range(MOST_DEATHS):
        assert failure(scene) is None
        scene.handle(EvaluationLost("gone"))
        scene.handle(EvaluatorDied(CRASH, opened=False))
    assert str(failure(scene)).startswith("3 processes have died one after the other while they evaluated the model")


def test_an_evaluation_between_them_begins_the_count_anew(open_scene: Open) -> None:
    scene = open_scene(evaluates=True, evaluate_every=1).join("a")
    for _ in range(2 * MOST_DEATHS):
        scene.announce("a").show()
        scene.evaluated(scene.orders[0])
        scene.announce("a").show()
        evaluator_dies(scene)
    assert failure(scene) is None
