"""A policy is foreign code: whatever it raises or answers, the run ends with its name, the hook and the event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from psplatform.core.plan import Stop
from psplatform.core.policy import (
    HOLD,
    POOL,
    Answer,
    Committed,
    Fate,
    Gradient,
    Policy,
    Traits,
    Verdict,
    View,
    Worker,
    at,
    yes,
)
from psplatform.errors import UserCodeError

Open = Callable[..., Any]


@dataclass
class Odd(Policy):
    """Does in one hook what a test says, and otherwise what BSP would do with one worker."""

    hook: str = ""
    does: Callable[[], Any] = lambda: None
    mean_norm: bool = False

    def __post_init__(self) -> None:
        """Take callables as they are."""

    @property
    def traits(self) -> Traits:
        return Traits(exact=True, mean_norm=self.mean_norm)

    def admit(self, gradient: Gradient, view: View) -> Verdict:
        return self._or("admit", POOL)  # type: ignore[no-any-return]

    def pool_ready(self, view: View) -> Answer:
        return self._or("pool_ready", yes("always"))  # type: ignore[no-any-return]

    def may_start(self, worker: Worker, view: View) -> Answer:
        return self._or("may_start", yes("always"))  # type: ignore[no-any-return]

    def wanted(self, worker: Worker, view: View) -> int:
        return self._or("wanted", view.version)  # type: ignore[no-any-return]

    def step_scale(self, commit: Committed, view: View) -> float:
        return self._or("step_scale", 1.0)  # type: ignore[no-any-return]

    def on_commit(self, commit: Committed, view: View) -> None:
        self._or("on_commit", None)

    def _or(self, hook: str, usual: Any) -> Any:
        return self.does() if hook == self.hook else usual


def oops() -> Any:
    raise KeyError("oops")


EVENTS = {
    "admit": "Announce",
    "pool_ready": "Announce",
    "may_start": "Join",
    "wanted": "Join",
    "step_scale": "Announce",
    "on_commit": "Announce",
}


@pytest.mark.parametrize(("hook", "event"), EVENTS.items())
def test_a_hook_that_raises_ends_the_run_and_is_named_with_the_event(open_scene: Open, hook: str, event: str) -> None:
    scene = open_scene(Odd(hook, oops)).join("a")
    if scene.failure is None:
        scene.announce("a")
    assert isinstance(scene.failure, UserCodeError)
    wanted = f"the policy Odd raised KeyError in {hook} while the coordinator was handling {event}: 'oops'"
    assert scene.failure.args[0] == wanted
    assert "in oops" in scene.failure.user_traceback
    assert scene.end().finish.outcome == "failed"


@dataclass
class Rates:
    """A schedule that does what a test says."""

    does: Callable[[], Any]

    def factor(self, updates: int, epochs: float) -> Any:
        return self.does()


def test_a_schedule_that_raises_ends_the_run_and_is_named_with_the_event(open_scene: Open) -> None:
    scene = open_scene(schedule=Rates(oops)).join("a").announce("a")
    wanted = "the schedule Rates raised KeyError in factor while the coordinator was handling Announce: 'oops'"
    assert isinstance(scene.failure, UserCodeError)
    assert scene.failure.args[0] == wanted
    assert "in oops" in scene.failure.user_traceback
    assert scene.end().finish.outcome == "failed"


@pytest.mark.parametrize("answer", ["half", None, float("nan"), -1.0, True])
def test_a_schedule_that_answers_no_factor_ends_the_run(open_scene: Open, answer: Any) -> None:
    scene = open_scene(schedule=Rates(lambda: answer)).join("a").announce("a")
    wanted = f"the schedule Rates returned {answer!r} from factor while the coordinator was handling Announce; "
    assert str(scene.failure) == f"{wanted}the hook must return a finite number, 0 or more"


def test_a_policy_that_pools_and_never_says_when_is_told_without_a_traceback(open_scene: Open) -> None:
    class Forgetful(Odd):
        pool_ready = Policy.pool_ready

    scene = open_scene(Forgetful()).join("a").announce("a")
    assert "Forgetful pools gradients but never says when the pool is ready" in str(scene.failure)
    assert "\n" not in str(scene.failure)


NONSENSE = [
    ("admit", None, "a Verdict"),
    ("pool_ready", True, "an Answer"),
    ("pool_ready", at(float("nan"), "never"), "an Answer"),
    ("may_start", "yes", "an Answer"),
    ("pool_ready", Answer("soon", "a word is no time"), "an Answer"),  # type: ignore[arg-type]
    ("may_start", at(float("inf"), "never"), "an Answer"),
    ("admit", Verdict("apply"), "a Verdict"),  # type: ignore[arg-type]
    ("admit", Verdict(Fate.DROP, "why"), "a Verdict"),  # type: ignore[arg-type]
    ("wanted", -1, "a version, 0 or newer"),
    ("wanted", True, "a version, 0 or newer"),
    ("step_scale", float("nan"), "a finite number, 0 or more"),
    ("step_scale", -0.5, "a finite number, 0 or more"),
    ("step_scale", None, "a finite number, 0 or more"),
    ("step_scale", 10**400, "a finite number, 0 or more"),
    ("wanted", 2**70, "a version, 0 or newer"),
]


@pytest.mark.parametrize(("hook", "answer", "wanted"), NONSENSE)
def test_a_hook_that_returns_nonsense_ends_the_run_and_says_what_was_wanted(
    open_scene: Open, hook: str, answer: Any, wanted: str
) -> None:
    scene = open_scene(Odd(hook, lambda: answer)).join("a")
    if scene.failure is None:
        scene.announce("a")
    assert f"the policy Odd returned {repr(answer)[:200]} from {hook} " in scene.failure.args[0]
    assert scene.failure.args[0].endswith(f"; the hook must return {wanted}")
    assert scene.end().finish.outcome == "failed"


def test_a_policy_of_the_whole_model_may_neither_hold_a_gradient_nor_send_a_worker_on_an_old_version(
    open_scene: Open,
) -> None:
    """The worker's next gradient would be written over one that is not applied yet."""
    scene = open_scene(Odd("admit", lambda: HOLD)).join("a").announce("a")
    assert scene.failure.args[0].endswith("handling Announce; only scope BLOCK may hold gradients")
    answers = iter([0, 0])
    scene = open_scene(Odd("wanted", lambda: next(answers))).join("a").announce("a")
    assert scene.failure.args[0].endswith("; the hook must return a version, 1 or newer")


def test_a_policy_that_fails_on_the_last_commit_does_not_keep_the_run_from_ending(open_scene: Open) -> None:
    scene = open_scene(Odd("on_commit", oops, mean_norm=True), stop=Stop(updates=1)).join("a").announce("a")
    assert scene.failure is None
    assert scene.show().orders, "the last version is fetched without it"
    assert scene.end().finish.outcome == "failed"
    assert isinstance(scene.finish.failure, UserCodeError)


def test_a_policy_that_fails_while_the_step_is_scaled_leaves_no_half_of_a_commit(open_scene: Open) -> None:
    scene = open_scene(Odd("step_scale", oops)).join("a").announce("a")
    assert scene.coordinator.state.version == 0
    assert scene.logged("commit") == []


def test_a_policy_that_has_failed_is_not_asked_again(open_scene: Open) -> None:
    """The commits that are still under way become visible and the model is saved without it."""
    asked = []

    def fail() -> Any:
        asked.append(1)
        raise KeyError("oops")

    policy = Odd("on_commit", fail, mean_norm=True)
    scene = open_scene(policy, stop=Stop(updates=9)).join("a").announce("a").announce("a")
    scene.end()
    assert len(asked) == 1
    assert scene.finish.outcome == "failed"
