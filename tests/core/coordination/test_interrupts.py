"""When the model moves on under a policy that interrupts: who is aborted, what is logged, what is dealt again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from psplatform.core.plan import Stop
from psplatform.core.policy import Traits
from psplatform.core.protocol import messages as msg
from psplatform.policies.asp import Asynchronous
from psplatform.policies.backup import BackupWorkers

Open = Callable[..., Any]


@pytest.fixture
def scene(open_scene: Open) -> Any:
    """Three workers of which the first to announce makes a round; a and b are aborted then."""
    return open_scene(BackupWorkers(k=1, busy="abort"), workers=3, deal_epochs=True).join("a", "b", "c").announce("c")


def test_busy_workers_are_aborted_and_released_on_the_new_version(scene: Any) -> None:
    assert scene.addressed(msg.Abort) == ["a", "b"]
    assert scene.sent(msg.Abort) == [msg.Abort(1, 1), msg.Abort(1, 1)]
    assert scene.addressed(msg.Release) == ["a", "b", "c"]
    assert [(one.sequence, one.version) for one in scene.sent(msg.Release)] == [(2, 1), (2, 1), (2, 1)]


def test_an_abort_precedes_the_release_that_follows_it(scene: Any) -> None:
    kinds = [type(one.message) for one in scene.effects if getattr(getattr(one, "to", None), "name", "") == "a"]
    assert kinds == [msg.Abort, msg.Release]


def test_the_batch_of_an_aborted_gradient_is_dealt_again_first(scene: Any) -> None:
    assert [one.assignment for one in scene.sent(msg.Release)] == [
        msg.BatchAssignment(0, 0),
        msg.BatchAssignment(0, 1),
        msg.BatchAssignment(0, 3),
    ]


def test_the_latency_of_an_abort_is_logged_when_the_computation_has_stopped(scene: Any) -> None:
    scene.handle(msg.Aborted("a", 1, 0.5))
    assert [(one["slot"], one["sequence"], one["latency_s"]) for one in scene.logged("aborted")] == [(0, 1, 0.5)]
    scene.handle(msg.Aborted("a", 1, 0.5))
    assert len(scene.logged("aborted")) == 1


def test_an_announcement_that_crossed_the_abort_is_dropped_as_aborted(scene: Any) -> None:
    scene.announce("a", sequence=1, label=0)
    (record,) = scene.logged("dropped")
    assert (record["slot"], record["sequence"], record["reason"]) == (0, 1, "aborted")
    assert scene.sent(msg.Commit) == []
    scene.announce("a", sequence=1, label=0)
    assert len(scene.logged("dropped")) == 1


def test_a_worker_that_is_aborted_again_before_it_confirmed_is_accounted_for_both(scene: Any) -> None:
    """The second round may be over before a's first computation has stopped."""
    scene.announce("c")
    assert msg.Abort(1, 2) in scene.sent(msg.Abort)
    scene.handle(msg.Aborted("a", 1, 0.75))
    scene.handle(msg.Aborted("a", 2, 0.0))
    scene.announce("b", sequence=1, label=0)
    assert [(one["slot"], one["sequence"]) for one in scene.logged("aborted")] == [(0, 1), (0, 2)]
    assert [(one["slot"], one["sequence"]) for one in scene.logged("dropped")] == [(1, 1)]


def test_aborted_computations_of_the_lost_are_forgotten(scene: Any) -> None:
    scene.lose("a")
    scene.handle(msg.Aborted("a", 1, 0.5))
    assert scene.logged("aborted") == []


@dataclass
class Restless(Asynchronous):
    """Applies at once, interrupts everybody else each time, and depends on no other change."""

    @property
    def traits(self) -> Traits:
        return Traits(exact=False, interrupt=True, wakes=frozenset())


def test_whoever_was_aborted_is_looked_at_whatever_else_the_policy_depends_on(open_scene: Open) -> None:
    scene = open_scene(Restless()).join("a", "b").announce("a")
    assert scene.addressed(msg.Abort) == ["b"]
    assert scene.addressed(msg.Release) == ["a", "b"]


def test_the_last_commit_aborts_and_stops(open_scene: Open) -> None:
    policy = BackupWorkers(k=1, busy="abort")
    scene = open_scene(policy, stop=Stop(updates=1)).join("a", "b").announce("a")
    assert scene.addressed(msg.Abort) == ["b"]
    assert scene.addressed(msg.Stop) == ["a", "b"]
    assert scene.sent(msg.Release) == []
    assert scene.end().finish.outcome == "updates"
