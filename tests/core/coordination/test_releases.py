"""Who goes on and when the pool is committed: the policy is asked after what it depends on, and at its own times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from psplatform.core.policy import (
    APPLY,
    POOL,
    Answer,
    Change,
    Gradient,
    Policy,
    Traits,
    Verdict,
    View,
    Worker,
    at,
    not_yet,
    yes,
)
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import CancelTimer, SetTimer
from psplatform.core.protocol.events import StopRequested
from psplatform.policies.backup import BackupWorkers
from psplatform.policies.bsp import BulkSynchronous, start_on_newer
from psplatform.policies.ssp import StaleSynchronous

Open = Callable[..., Any]


@dataclass
class Waiting(Policy):
    """A round lasts until all are in, but at most two seconds from its first gradient."""

    first_at: float | None = None

    @property
    def traits(self) -> Traits:
        return Traits(exact=True)

    def admit(self, gradient: Gradient, view: View) -> Verdict:
        self.first_at = view.now if not view.pooled else self.first_at
        return POOL

    def pool_ready(self, view: View) -> Answer:
        if view.busy == 0:
            return yes("all are in")
        return at((self.first_at or 0.0) + 2.0, "two seconds after the first")

    def may_start(self, worker: Worker, view: View) -> Answer:
        return start_on_newer(worker, view)


@dataclass
class Pausing(Policy):
    """Applies at once; a worker pauses three seconds after each of its gradients but the first."""

    asked: list[tuple[float, int]] = field(default_factory=list)
    wakes: frozenset[Change] = frozenset()

    @property
    def traits(self) -> Traits:
        return Traits(exact=False, wakes=self.wakes)

    def admit(self, gradient: Gradient, view: View) -> Verdict:
        return APPLY

    def may_start(self, worker: Worker, view: View) -> Answer:
        self.asked.append((view.now, worker.slot))
        return yes("first") if worker.version < 0 else at(view.round_started_at + 3.0, "a pause")


def at_time(scene: Any, now: float) -> Any:
    scene.now = now
    return scene


# --- the pool at a time ---


def test_the_pool_is_committed_at_the_time_the_policy_names(open_scene: Open) -> None:
    scene = at_time(open_scene(Waiting()).join("a", "b"), 5.0).announce("a")
    assert scene.asked(SetTimer) == [SetTimer("pool:0", 7.0)]
    assert scene.sent(msg.Commit) == []
    (commit,) = scene.fire("pool:0", at=7.0).sent(msg.Commit)
    assert [one.slot for one in commit.contributions] == [0]
    assert scene.logged("commit")[0]["reason"] == "two seconds after the first"


def test_a_pool_that_is_ready_earlier_is_committed_then_and_its_timer_cancelled(open_scene: Open) -> None:
    scene = open_scene(Waiting()).join("a", "b").announce("a").announce("b")
    assert CancelTimer("pool:0") in scene.effects
    assert len(scene.sent(msg.Commit)) == 1


def test_a_pool_timer_that_fires_early_sets_another(open_scene: Open) -> None:
    scene = open_scene(Waiting()).join("a", "b").announce("a").fire("pool:0", at=1.0)
    assert scene.asked(SetTimer) == [SetTimer("pool:0", 2.0)]


def test_a_timer_without_a_pool_commits_nothing(open_scene: Open) -> None:
    scene = open_scene(Waiting()).join("a", "b").fire("pool:0", at=1.0)
    assert scene.effects == []


def test_a_run_that_ends_cancels_the_timer_of_the_pool_and_drops_what_is_in_it(open_scene: Open) -> None:
    scene = open_scene(Waiting()).join("a", "b").announce("a")
    scene.handle(StopRequested("enough"))
    assert scene.logged("dropped")[0]["reason"] == "stopped"
    assert CancelTimer("pool:0") in scene.effects
    assert scene.fire("pool:0", at=2.0).sent(msg.Commit) == []


def test_who_comes_too_late_may_still_contribute_to_the_round_at_hand(open_scene: Open) -> None:
    """Its old gradient is dropped; the round must not be closed because nobody seems to be busy for a moment."""
    scene = open_scene(BackupWorkers(k=2), workers=3).join("a", "b", "late").announce("a").announce("b").lose("b")
    scene.announce("a")
    assert scene.coordinator.state.pooled == 1
    scene.announce("late", label=0)
    assert scene.sent(msg.Commit) == []
    assert scene.addressed(msg.Release) == ["late"]
    (commit,) = scene.announce("late").sent(msg.Commit)
    assert [one.member for one in commit.contributions] == ["a", "late"]


# --- starting at a time ---


def test_a_worker_starts_at_the_time_the_policy_names(open_scene: Open) -> None:
    scene = at_time(open_scene(Pausing()).join("a"), 1.0).announce("a")
    assert scene.asked(SetTimer) == [SetTimer("start:a", 4.0)]
    assert scene.sent(msg.Release) == []
    assert scene.fire("start:a", at=4.0).sent(msg.Release) == [msg.Release(1, 2, 1, None)]


def test_a_timer_of_a_worker_that_is_busy_or_gone_starts_nothing(open_scene: Open) -> None:
    scene = open_scene(Pausing()).join("a", "b").fire("start:a", at=9.0)
    assert scene.effects == []
    scene.announce("b").lose("b").fire("start:b", at=20.0)
    assert scene.effects == []


def test_a_worker_that_leaves_takes_its_timer_with_it(open_scene: Open) -> None:
    scene = open_scene(Pausing()).join("a", "b").announce("b").lose("b")
    assert CancelTimer("start:b") in scene.effects


def test_a_run_that_ends_leaves_no_timer_to_start_anybody(open_scene: Open) -> None:
    scene = open_scene(Pausing()).join("a").announce("a")
    scene.handle(StopRequested("enough"))
    assert CancelTimer("start:a") in scene.effects


# --- whom the policy is asked about ---


def test_waiting_workers_are_looked_at_only_after_changes_the_policy_depends_on(open_scene: Open) -> None:
    """A commit wakes nobody here: only the worker that announced is looked at."""
    policy = Pausing()
    at_time(open_scene(policy).join("a", "b").announce("a"), 1.0).announce("b")
    assert policy.asked == [(0.0, 0), (0.0, 1), (0.0, 0), (1.0, 1)]


def test_every_waiting_worker_is_looked_at_after_a_change_the_policy_depends_on(open_scene: Open) -> None:
    policy = Pausing(wakes=frozenset({Change.COMMIT}))
    at_time(open_scene(policy).join("a", "b").announce("a"), 1.0).announce("b")
    assert policy.asked[-2:] == [(1.0, 0), (1.0, 1)]


def test_a_policy_may_be_woken_by_its_own_timer(open_scene: Open) -> None:
    policy = Pausing(wakes=frozenset({Change.TIMER}))
    scene = open_scene(policy).join("a").announce("a")
    del policy.asked[:]
    assert scene.fire("pool:0", at=3.0).sent(msg.Release) == [msg.Release(1, 2, 1, None)]
    assert policy.asked == [(3.0, 0)]


@dataclass
class Company(Pausing):
    """Nobody works alone."""

    def may_start(self, worker: Worker, view: View) -> Answer:
        return yes("not alone") if view.live > 1 else not_yet("alone")


def test_a_joiner_wakes_those_who_depend_on_who_is_there(open_scene: Open) -> None:
    scene = open_scene(Company(wakes=frozenset({Change.ROSTER}))).join("a")
    assert scene.sent(msg.Release) == []
    assert scene.join("b").addressed(msg.Release) == ["a", "b"]


def test_a_departure_wakes_those_who_waited_for_the_slowest(open_scene: Open) -> None:
    scene = open_scene(StaleSynchronous(bound=0)).join("slow", "fast").announce("fast")
    assert scene.sent(msg.Release) == []
    assert scene.lose("slow").addressed(msg.Release) == ["fast"]


def test_a_release_names_the_version_that_was_just_decided(open_scene: Open) -> None:
    """The pull waits at the servers until it is visible, so nothing waits at the coordinator for that."""
    scene = open_scene(BulkSynchronous()).join("a").announce("a")
    assert [one.version for one in scene.sent(msg.Release)] == [1]
    assert scene.logged("applied") == []


def test_a_start_is_logged_with_the_clocks_that_allowed_it(open_scene: Open) -> None:
    scene = open_scene(StaleSynchronous(bound=1)).join("slow", "fast").announce("fast")
    record = scene.logged("start")[-1]
    assert (record["slot"], record["sequence"], record["version"]) == (1, 2, 1)
    assert (record["clock"], record["min_clock"]) == (1, 0)
    assert scene.announce("fast").sent(msg.Release) == []


def test_nobody_is_released_once_the_run_ends(open_scene: Open) -> None:
    scene = open_scene().join("a")
    scene.handle(StopRequested("enough"))
    scene.announce("a")
    assert scene.sent(msg.Release) == []
    assert scene.logged("dropped")[-1]["reason"] == "stopped"
