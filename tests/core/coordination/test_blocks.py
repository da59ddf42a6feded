"""Commits decided block by block: each block by itself, whoever dies in mid-push or brings nothing finite."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from psplatform.core.policy import APPLY, HOLD, Answer, Gradient, Policy, Scope, Traits, Verdict, View, Worker, yes
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import SetTimer
from psplatform.errors import DivergedError
from psplatform.policies.psp import PartiallySynchronous

Open = Callable[..., Any]
NAN = {"loss": math.nan}
FIRST, SECOND, BOTH = {"shards": (0,)}, {"shards": (1,)}, {"shards": (0, 1)}


@pytest.fixture
def two_blocks(open_scene: Open) -> Open:
    """Open a run with two blocks under PSP, with `push` of three workers."""

    def make(push: int, **options: Any) -> Any:
        fields = {name: options.pop(name) for name in ("deal_epochs",) if name in options}
        return open_scene(PartiallySynchronous(push=push, **options), shards=2, workers=3, **fields)

    return make


def merged(scene: Any) -> list[tuple[int, list[tuple[int, int]]]]:
    """Return block and gradients of every commit so far."""
    commits = scene.logged("commit")
    return [(one["block"], list(zip(one["slots"], one["sequences"], strict=True))) for one in commits]


# --- each block by itself ---


def test_a_block_merges_when_enough_pushes_have_reached_it_whatever_the_others_wait_for(two_blocks: Open) -> None:
    scene = two_blocks(2).join("a", "b", "c").announce("a", **FIRST).announce("b", **FIRST)
    assert merged(scene) == [(0, [(0, 1), (1, 1)])]


def test_the_time_of_a_push_timeout_begins_with_the_push_that_makes_the_block_ready(two_blocks: Open) -> None:
    scene = two_blocks(2, push_timeout_s=0.5).join("a", "b", "c").announce("a", **FIRST)
    scene.now = 3.0
    assert SetTimer("pool:0", 3.5) in scene.announce("b", **FIRST).effects
    scene.now = 3.2
    scene.announce("a", **SECOND).announce("b", **SECOND)
    assert merged(scene.fire("pool:0", at=3.5)) == [(0, [(0, 1), (1, 1)])]
    assert merged(scene.fire("pool:1", at=3.7))[1:] == [(1, [(0, 1), (1, 1)])]


def test_one_push_makes_the_policy_judge_its_own_block_only(two_blocks: Open) -> None:
    """However many blocks there are, the work of an event does not grow with them."""
    scene = two_blocks(2).join("a", "b", "c").announce("a", **SECOND)
    asked: list[int] = []
    policy = scene.coordinator.state.policy
    ready = policy.pool_ready
    policy.pool_ready = lambda view: asked.append(view.block) or ready(view)
    scene.announce("b", **FIRST)
    assert asked == [0]


def test_who_joins_begins_at_the_count_of_the_oldest_block(two_blocks: Open) -> None:
    scene = two_blocks(1).join("a").announce("a", **BOTH).announce("a", **BOTH).announce("a", **FIRST)
    assert [commit_log.version for commit_log in scene.coordinator.state.commit_logs] == [3, 2]
    assert [one.version for one in scene.join("b").sent(msg.Release)] == [2]


# --- who dies ---


def ahead_of_the_second_block(two_blocks: Open) -> Any:
    """Let "a" hold a gradient of count 1 in front of block 1, which waits for a second gradient of count 0."""
    scene = two_blocks(2).join("a", "b", "c").announce("a", **BOTH).announce("b", **FIRST).announce("a", **BOTH)
    (held,) = scene.coordinator.state.commit_logs[1].held
    assert (held.slot, held.sequence, held.counter) == (0, 2, 1)
    return scene


def test_what_is_held_of_a_lost_worker_is_dropped(two_blocks: Open) -> None:
    """Its successor in the slot begins at the oldest block: servers would skip the older gradient after the newer."""
    scene = ahead_of_the_second_block(two_blocks).lose("a").join("d")
    dropped = [(one["sequence"], one.get("block"), one["reason"]) for one in scene.logged("dropped")]
    assert dropped == [(3, None, "lost"), (2, 1, "lost")]
    for name, shards in (("d", BOTH), ("c", BOTH), ("b", SECOND), ("b", BOTH), ("d", BOTH)):
        scene.announce(name, **shards)
    assert [keys for block, keys in merged(scene) if block == 1] == [[(0, 1), (0, 4)], [(0, 5), (1, 2)]]
    assert scene.coordinator.state.last_position("a", 1) == scene.coordinator.state.commit_logs[1].position


def test_a_worker_lost_in_mid_push_has_lost_only_the_blocks_that_were_not_reached(two_blocks: Open) -> None:
    scene = two_blocks(1, deal_epochs=True).join("a", "b").announce("a", **FIRST).lose("a")
    assert [(one["sequence"], one["block"]) for one in scene.logged("dropped")] == [(1, 1)]
    assert merged(scene) == [(0, [(0, 1)])]
    assert [one.assignment for one in scene.join("c").sent(msg.Release)] == [msg.BatchAssignment(0, 2)], (
        "the batch was used"
    )


def test_a_worker_lost_before_any_push_has_lost_one_gradient(two_blocks: Open) -> None:
    scene = two_blocks(1, deal_epochs=True).join("a", "b").lose("a")
    assert ["block" in one for one in scene.logged("dropped")] == [False]
    assert [one.assignment for one in scene.join("c").sent(msg.Release)] == [msg.BatchAssignment(0, 0)]


def test_a_batch_is_dealt_again_when_the_last_block_of_its_gradient_is_dropped(two_blocks: Open) -> None:
    """One block came too late, the other never."""
    scene = two_blocks(1, deal_epochs=True).join("a", "b").announce("b", **BOTH).announce("a", **FIRST)
    scene.lose("a")
    assert [(one["block"], one["reason"]) for one in scene.logged("dropped")] == [(0, "stale"), (1, "lost")]
    assert [one.assignment for one in scene.join("c").sent(msg.Release)] == [msg.BatchAssignment(0, 0)]


# --- what is not finite ---


def test_a_block_does_not_wait_for_who_brought_nothing_finite(two_blocks: Open) -> None:
    """That worker has gone on to the next count: nobody would ever bring the one that is missing."""
    scene = two_blocks(3).join("a", "b", "c").announce("a", **NAN, **BOTH).announce("b", **BOTH)
    assert merged(scene) == []
    scene.announce("c", **BOTH)
    assert merged(scene) == [(0, [(1, 1), (2, 1)]), (1, [(1, 1), (2, 1)])]


def test_the_last_to_bring_nothing_finite_completes_the_round_of_the_others(two_blocks: Open) -> None:
    scene = two_blocks(3).join("a", "b", "c").announce("a", **BOTH).announce("b", **BOTH).announce("c", **NAN, **BOTH)
    assert merged(scene) == [(0, [(0, 1), (1, 1)]), (1, [(0, 1), (1, 1)])]


def test_a_block_that_everybody_alive_has_spoiled_ends_the_run(two_blocks: Open) -> None:
    """The other block got the gradient of one that died in mid-push; of this one, the version would never come."""
    scene = two_blocks(3).join("a", "b", "c").announce("c", **FIRST)
    scene.announce("a", **NAN, **BOTH).announce("b", **NAN, **BOTH)
    assert scene.failure is None, "the third may still push"
    scene.lose("c")
    assert isinstance(scene.failure, DivergedError)


def test_what_is_not_finite_is_held_like_anything_else_that_is_ahead(two_blocks: Open) -> None:
    """It counts as refused in the round that it belongs to."""
    scene = two_blocks(2).join("a", "b").announce("a", **BOTH).announce("b", **FIRST).announce("a", **NAN, **BOTH)
    assert [one["block"] for one in scene.logged("dropped")] == [0]
    scene.announce("b", **SECOND)
    assert [one["block"] for one in scene.logged("dropped")] == [0, 1]
    scene.announce("b", **BOTH)
    assert merged(scene)[2:] == [(0, [(1, 2)]), (1, [(1, 2)])]


# --- holding ---


@dataclass
class Holding(Policy):
    """Sends a worker first to a version that is far away, holds what comes of it, and applies everything else."""

    @property
    def traits(self) -> Traits:
        return Traits(exact=False, scope=Scope.BLOCK)

    def admit(self, gradient: Gradient, view: View) -> Verdict:
        return HOLD if gradient.sequence == 1 and view.version == 0 else APPLY

    def may_start(self, worker: Worker, view: View) -> Answer:
        return yes("always")

    def wanted(self, worker: Worker, view: View) -> int:
        return 7 if worker.counter < 0 else 0


def test_a_gradient_that_was_held_until_a_later_one_was_applied_is_dropped(open_scene: Open) -> None:
    """A server applies the gradients of a slot in their order, and would leave this one out of its commit."""
    scene = open_scene(Holding()).join("a").announce("a", shards=(0,)).announce("a", shards=(0,))
    (record,) = scene.logged("dropped")
    assert (record["sequence"], record["reason"]) == (1, "overtaken")
    assert [one["sequences"] for one in scene.logged("commit")] == [[2]]


def test_a_gradient_for_a_version_that_its_block_has_is_dropped_whatever_the_policy_says(open_scene: Open) -> None:
    """Its server does not keep what is over: the commit would name a gradient that never came."""
    scene = open_scene(Holding()).join("a", "b").announce("a", shards=(0,)).announce("b", shards=(0,))
    scene.announce("b", shards=(0,)).announce("b", shards=(0,))
    assert [one["sequences"] for one in scene.logged("commit")] == [[2], [1]]
    dropped = [(one["slot"], one["sequence"], one["reason"]) for one in scene.logged("dropped")]
    assert dropped == [(1, 1, "overtaken"), (1, 3, "stale")]
