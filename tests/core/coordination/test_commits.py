"""Order: how commits are decided, clipped and followed until they are visible."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from psplatform.core.plan import Stop
from psplatform.core.policy import Answer, Change, Committed, Traits, View, Worker, not_yet, yes
from psplatform.core.protocol import messages as msg
from psplatform.jobs.schedules import StepDecay
from psplatform.policies.asp import Asynchronous
from psplatform.policies.bsp import BulkSynchronous

Open = Callable[..., Any]


def test_positions_and_versions_grow_by_one(open_scene: Open) -> None:
    scene = open_scene().join("a", "b")
    found = []
    for name in ("a", "b", "a"):
        (commit,) = scene.announce(name).sent(msg.Commit)
        found.append((commit.position, commit.version))
    assert found == [(1, 1), (2, 2), (3, 3)]


def test_every_shard_is_told_the_same_commit_for_its_own_epoch(open_scene: Open) -> None:
    scene = open_scene(shards=3)
    for one, epoch in zip(scene.coordinator.state.shards, (1, 4, 2), strict=True):
        one.epoch = epoch
    commits = scene.join("a").announce("a").sent(msg.Commit)
    assert scene.addressed(msg.Commit) == ["server-0", "server-1", "server-2"]
    assert [one.epoch for one in commits] == [1, 4, 2]
    assert len({(one.term, one.position, one.contributions, one.rate) for one in commits}) == 1


def test_gradients_enter_a_commit_in_the_order_of_their_slots(open_scene: Open) -> None:
    scene = open_scene(BulkSynchronous()).join("a", "b", "c").announce("c").announce("a")
    (commit,) = scene.announce("b").sent(msg.Commit)
    assert [one.slot for one in commit.contributions] == [0, 1, 2]


def test_a_commit_is_logged_with_staleness_loss_rate_and_duration(open_scene: Open) -> None:
    scene = open_scene().join("a", "b").announce("a")
    scene.now = 2.5
    scene.announce("b", loss=0.5)
    record = scene.logged("commit")[-1]
    assert (record["position"], record["version"], record["slots"], record["sequences"]) == (2, 2, [1], [1])
    assert (record["staleness"], record["loss"], record["rate"], record["duration_s"]) == ([1], 0.5, 1.0, 2.5)
    assert record["reason"] == "applied at once"


def test_the_staleness_of_a_label_over_several_shards_counts_from_its_oldest_version(open_scene: Open) -> None:
    scene = open_scene(shards=2).join("a", "b").announce("a").announce("a").announce("b", label=0)
    scene.handle(msg.Announce("b", 2, msg.Label((3, 1), (1, 1)), 4, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0))
    assert scene.logged("commit")[-1]["staleness"] == [2]


# --- rates ---


@dataclass
class Halving(Asynchronous):
    """Scales every commit by one half."""

    def step_scale(self, commit: Committed, view: View) -> float:
        return 0.5


def test_the_policy_s_scale_is_multiplied_by_the_job_s_schedule(open_scene: Open) -> None:
    """100 samples are 25 batches: from the 26th commit on, one epoch is over."""
    scene = open_scene(Halving(), schedule=StepDecay(milestones=(1.0,), gamma=0.1)).join("a")
    rates = [scene.announce("a").sent(msg.Commit)[0].rate for _ in range(26)]
    assert rates[:25] == [0.5] * 25
    assert rates[25] == pytest.approx(0.05)


def test_the_schedule_is_asked_for_the_version_before_the_commit(open_scene: Open) -> None:
    asked = []

    @dataclass
    class Noting:
        def factor(self, updates: int, epochs: float) -> float:
            asked.append((updates, epochs))
            return 1.0

    scene = open_scene(schedule=Noting()).join("a").announce("a").announce("a")
    assert scene.coordinator.state.version == 2
    assert asked == [(0, 0.0), (1, 0.04)]


# --- clipping ---


def test_under_clipping_all_shards_are_told_one_factor_once_all_norms_are_known(open_scene: Open) -> None:
    scene = open_scene(shards=2, clip_norm=1.0).join("a").announce("a")
    assert all(one.clip for one in scene.sent(msg.Commit))
    scene.handle(msg.Gathered(1, 1, 1, (7.0,)))
    assert scene.sent(msg.Proceed) == []
    scene.handle(msg.Gathered(0, 1, 1, (1.0, 1.0)))
    assert scene.addressed(msg.Proceed) == ["server-0", "server-1"]
    factor = 1.0 / (3.0 + 1e-6)
    assert scene.sent(msg.Proceed) == [msg.Proceed(1, 1, factor), msg.Proceed(1, 1, factor)]


def test_a_small_gradient_is_let_through_unchanged(open_scene: Open) -> None:
    scene = open_scene(clip_norm=10.0).join("a").announce("a")
    scene.handle(msg.Gathered(0, 1, 1, (9.0,)))
    assert scene.sent(msg.Proceed) == [msg.Proceed(1, 1, 1.0)]


def test_norms_that_were_not_asked_for_change_nothing(open_scene: Open) -> None:
    scene = open_scene().join("a").announce("a")
    scene.handle(msg.Gathered(0, 1, 1, (9.0,)))
    assert scene.effects == []


def test_clipping_goes_on_while_the_run_drains(open_scene: Open) -> None:
    scene = open_scene(clip_norm=1.0, stop=Stop(updates=1)).join("a").announce("a")
    assert scene.coordinator.state.stopping
    scene.handle(msg.Gathered(0, 1, 1, (1.0,)))
    assert len(scene.sent(msg.Proceed)) == 1


# --- visible ---


def test_a_commit_is_noted_visible_when_the_last_shard_shows_it(open_scene: Open) -> None:
    scene = open_scene(shards=2).join("a").announce("a")
    scene.handle(msg.Applied(0, 1, 1, 1, ()), at=1.0)
    assert scene.logged("applied") == []
    scene.handle(msg.Applied(1, 1, 1, 1, ()), at=1.5)
    assert scene.logged("applied") == [{"kind": "applied", "at": 1.5, "position": 1, "version": 1, "visible_s": 1.5}]


@dataclass
class Learning(Asynchronous):
    """Keeps what it is told of commits, with or without norms."""

    norms: bool = False
    learned: list[Committed] = field(default_factory=list)

    @property
    def traits(self) -> Traits:
        return Traits(exact=False, mean_norm=self.norms, wakes=frozenset({Change.COMMIT}))

    def on_commit(self, commit: Committed, view: View) -> None:
        self.learned.append(commit)


def test_a_policy_learns_of_a_commit_when_it_is_decided(open_scene: Open) -> None:
    policy = Learning()
    scene = open_scene(policy).join("a").announce("a")
    assert not scene.sent(msg.Commit)[0].norms
    ((position, norm),) = [(one.position, one.mean_squared_norm) for one in policy.learned]
    assert (position, norm) == (1, None)


def test_a_policy_that_needs_the_mean_norm_learns_when_all_servers_have_reported_it(open_scene: Open) -> None:
    policy = Learning(norms=True)
    scene = open_scene(policy, shards=2).join("a").announce("a")
    assert all(one.norms for one in scene.sent(msg.Commit))
    scene.handle(msg.Applied(0, 1, 1, 1, (1.0, 2.0)))
    assert policy.learned == []
    scene.handle(msg.Applied(1, 1, 1, 1, (4.0,)))
    assert [one.mean_squared_norm for one in policy.learned] == [7.0]


def test_a_policy_learns_from_commits_in_their_order(open_scene: Open) -> None:
    policy = Learning(norms=True)
    scene = open_scene(policy).join("a").announce("a").announce("a")
    scene.handle(msg.Applied(0, 1, 2, 2, (1.0,)))
    scene.handle(msg.Applied(0, 1, 1, 1, (4.0,)))
    assert [(one.position, one.mean_squared_norm) for one in policy.learned] == [(1, 4.0), (2, 1.0)]


@dataclass
class LearningToStart(Learning):
    """Lets workers go on only when it has learned of the commit."""

    norms: bool = True

    def may_start(self, worker: Worker, view: View) -> Answer:
        return yes("learned") if len(self.learned) == view.version else not_yet("nothing is known yet")


def test_waiting_workers_are_looked_at_again_when_the_policy_has_learned(open_scene: Open) -> None:
    scene = open_scene(LearningToStart()).join("a").announce("a")
    assert scene.sent(msg.Release) == []
    assert scene.show(1.0).addressed(msg.Release) == ["a"]


def test_the_batch_of_an_applied_gradient_is_not_dealt_again(open_scene: Open) -> None:
    scene = open_scene(deal_epochs=True).join("a").announce("a")
    assert [one.assignment for one in scene.sent(msg.Release)] == [msg.BatchAssignment(0, 1)]
    scene.coordinator.state.give_back(0, 1)
    assert [one.assignment for one in scene.announce("a").sent(msg.Release)] == [msg.BatchAssignment(0, 2)]


def test_the_loss_of_a_commit_is_the_mean_over_its_gradients(gradient: Callable[..., Any]) -> None:
    commit = Committed(1, 1, (gradient(0, 1, loss=1.0), gradient(1, 1, loss=4.0)), (0, 0))
    assert commit.loss == 2.5
    assert math.isfinite(commit.loss)
