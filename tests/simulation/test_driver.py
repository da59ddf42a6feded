"""The course of a simulation: how long it takes, and how it ends where it cannot go on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from psplatform.core.plan import Plan, Stop
from psplatform.core.policy import (
    APPLY,
    Answer,
    Gradient,
    Policy,
    Traits,
    Verdict,
    View,
    Worker,
    at,
    drop,
    not_yet,
    yes,
)
from psplatform.core.reasons import Reason
from psplatform.errors import ClusterError, PsplatformError, UserCodeError
from psplatform.jobs.distributions import Constant
from psplatform.jobs.schedules import Constant as Steady
from psplatform.policies.registry import make_policy
from psplatform.simulation import driver as course
from psplatform.simulation.driver import Simulated, run_world
from psplatform.simulation.event_trace import EventTrace
from psplatform.simulation.run_times import Independent, RunTimes, Traced
from psplatform.simulation.synthetic import SyntheticGradients
from psplatform.simulation.world import SimulatedWorld

SECOND = Independent(Constant(1.0), 0)


def play(
    policy: str | Policy, run_times: RunTimes = SECOND, *, workers: int = 2, options: Any = None, **given: Any
) -> Simulated:
    """Simulate times only; `given` is the plan's, but for ``update_s``."""
    world = SimulatedWorld(run_times, 0, update_s=given.pop("update_s", 0.0))
    fields: dict[str, Any] = {"stop": Stop(updates=5), "schedule": Steady(), "samples": 100, "batch_size": 4, **given}
    plan = Plan(run="r", workers=workers, shards=1, **fields)
    made = make_policy(policy, options) if isinstance(policy, str) else policy
    return run_world(plan, made, SyntheticGradients(1, 4), world, EventTrace(keep=True))


def commit_times(run: Simulated) -> list[float]:
    return [one["at"] for one in run.records if one["kind"] == "commit"]


# --- how long it takes ---


def test_a_round_takes_as_long_as_its_slowest_worker() -> None:
    run = play("bsp", Traced(((1.0, 3.0), (2.0,))), stop=Stop(updates=4))
    assert commit_times(run) == [2, 5, 7, 10]
    assert run.virtual_seconds == 10
    assert run.reached_target is None


@pytest.mark.parametrize(("busy", "second_commit"), [("abort", 2.0), ("finish", 4.0)])
def test_a_late_worker_aborts_and_begins_anew_or_finishes_first(busy: str, second_commit: float) -> None:
    """The fastest of two; the second gradient of the late one takes a second, that of the other ten."""
    times = Traced(((1.0, 10.0), (3.0, 1.0)))
    run = play("backup", times, options={"k": 1, "busy": busy}, stop=Stop(updates=2))
    assert commit_times(run) == [1.0, second_commit]


@pytest.mark.parametrize(("policy", "at_barriers"), [("asp", 0.0), ("ssp", 0.0), ("elastic-bsp", 0.2)])
def test_a_server_that_takes_its_time_limits_the_rate_of_updates(policy: str, at_barriers: float) -> None:
    """Ten workers could send a thousand gradients a second; a server that takes 0.1 s each lets ten through."""
    busy = Independent(Constant(0.01), 0)
    run = play(policy, busy, workers=10, update_s=0.1, stop=Stop(updates=200))
    assert 200 * 0.1 <= run.virtual_seconds <= 200 * 0.1 * (1.01 + at_barriers)


def test_a_server_takes_its_time_for_each_gradient_of_a_round() -> None:
    run = play("bsp", workers=4, update_s=0.25, stop=Stop(updates=3))
    assert run.virtual_seconds == pytest.approx(3 * (1.0 + 4 * 0.25))


def test_the_clock_ends_a_run_that_is_given_seconds() -> None:
    run = play("asp", stop=Stop(seconds=7.5))
    assert run.virtual_seconds == 7.5
    assert run.view.updates == 14


# --- what cannot go on ---


@dataclass
class Obeying(Policy):
    """Does what the tests say."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.start: Any = lambda worker, view: yes("always")
        self.take: Any = lambda gradient, view: APPLY

    @property
    def traits(self) -> Traits:
        return Traits(exact=False)

    def admit(self, gradient: Gradient, view: View) -> Verdict:
        return self.take(gradient, view)  # type: ignore[no-any-return]

    def may_start(self, worker: Worker, view: View) -> Answer:
        return self.start(worker, view)  # type: ignore[no-any-return]


@pytest.fixture
def policy() -> Obeying:
    return Obeying()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course, "_PATIENCE", 500)
    monkeypatch.setattr(course, "_PATIENCE_FOR_EACH", 10)


def test_a_policy_that_lets_nobody_go_on_ends_with_the_names_of_those_who_wait(policy: Obeying) -> None:
    policy.start = lambda worker, view: not_yet("never") if worker.version >= 0 else yes("once")
    with pytest.raises(ClusterError) as caught:
        play(policy)
    assert str(caught.value) == (
        "the run does not end; at 1 s these wait: w0 (the coordinator), w1 (the coordinator); "
        "the policy lets nobody go on, see its may_start and pool_ready"
    )


def test_of_many_who_wait_some_are_named(policy: Obeying) -> None:
    policy.start = lambda worker, view: not_yet("never")
    with pytest.raises(ClusterError) as caught:
        play(policy, workers=1000)
    assert "w0 (the coordinator), w1" in str(caught.value)
    assert "w4 (the coordinator) and 995 more; the policy lets nobody go on" in str(caught.value)


@pytest.mark.usefixtures("impatient")
def test_a_policy_that_puts_everybody_off_for_ever_ends_as_well(policy: Obeying) -> None:
    policy.start = lambda worker, view: at(view.now + 1, "later")
    with pytest.raises(ClusterError, match="these wait: w0 .* the policy commits nothing any more"):
        play(policy)


@pytest.mark.usefixtures("impatient")
def test_a_policy_that_drops_everything_ends_as_well(policy: Obeying) -> None:
    policy.take = lambda gradient, view: drop(Reason("taste", "not this one"))
    with pytest.raises(ClusterError, match="the policy commits nothing any more, see its admit and pool_ready"):
        play(policy)


@pytest.mark.usefixtures("impatient")
def test_where_gradients_take_no_time_the_clock_cannot_end_the_run() -> None:
    instant = Independent(Constant(0.0), 0)
    with pytest.raises(ClusterError, match="gradients take no time, so that it never passes; stop the run by updates"):
        play("asp", instant, stop=Stop(seconds=1))
    assert play("asp", instant, stop=Stop(updates=2000, seconds=1)).view.updates == 2000


@pytest.mark.usefixtures("impatient")
def test_a_run_that_goes_on_is_given_all_the_time_it_needs() -> None:
    run = play("asp", stop=Stop(updates=2000))
    assert run.events > 10_000
    assert run.view.updates == 2000


def test_no_run_goes_on_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course, "_PATIENCE", 500)
    monkeypatch.setattr(course, "_EVENTS", 2000)
    with pytest.raises(ClusterError, match="not over after 2000 events; stop it by updates, epochs or seconds as well"):
        play("asp", stop=Stop(target_loss=0.0))


def raising(*_: Any) -> Any:
    raise ZeroDivisionError("by nought")


@pytest.mark.parametrize(
    ("hook", "does", "sentence"),
    [
        ("start", raising, "policy Obeying raised ZeroDivisionError in may_start while the coordinator was handling"),
        ("start", lambda *_: True, "policy Obeying returned True from may_start while the coordinator was handling"),
        ("take", raising, "raised ZeroDivisionError in admit while the coordinator was handling Announce: by nought"),
        ("take", lambda *_: None, "returned None from admit while the coordinator was handling Announce; the hook"),
        ("start", lambda *_: at(float("nan"), ""), "from may_start while the coordinator was handling"),
    ],
)
def test_a_policy_that_fails_ends_the_simulation_with_policy_hook_and_event(
    policy: Obeying, hook: str, does: Any, sentence: str
) -> None:
    setattr(policy, hook, does)
    with pytest.raises(UserCodeError) as caught:
        play(policy)
    assert sentence in str(caught.value)
    assert isinstance(caught.value, PsplatformError)
