"""Who joins and leaves: slots, welcomes, refusals, and what stays valid of the lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from psplatform.core.limits import LARGEST
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import CancelTimer, Dismiss, Forget, SetTimer
from psplatform.core.protocol.events import StopRequested
from psplatform.errors import ClusterError
from psplatform.policies.bsp import BulkSynchronous

Open = Callable[..., Any]


def test_a_joiner_is_welcomed_into_a_slot_and_released(open_scene: Open) -> None:
    scene = open_scene().join("a", "b")
    assert scene.sent(msg.Welcome) == [msg.Welcome(1, 1, 1)]
    assert scene.sent(msg.Release) == [msg.Release(1, 1, 0, None)]
    assert [(one["slot"], one["incarnation"], one["clock"]) for one in scene.logged("joined")] == [(0, 1, 0), (1, 1, 0)]


def test_a_repeated_join_gets_the_same_answer_and_no_second_slot(open_scene: Open) -> None:
    scene = open_scene().join("a").join("a")
    assert scene.sent(msg.Welcome) == [msg.Welcome(1, 0, 1)]
    assert scene.sent(msg.Release) == []
    assert scene.coordinator.state.live == 1


def test_the_next_process_in_a_slot_continues_its_sequence(open_scene: Open) -> None:
    scene = open_scene().join("a").announce("a").announce("a").lose("a").join("b")
    assert scene.sent(msg.Welcome) == [msg.Welcome(1, 0, 2)]
    assert [one.sequence for one in scene.sent(msg.Release)] == [4]


def test_the_lost_are_dismissed_with_the_reason(open_scene: Open) -> None:
    scene = open_scene().join("a").lose("a")
    assert scene.asked(Dismiss) == [Dismiss("a", "killed")]
    assert [(one["slot"], one["reason"]) for one in scene.logged("lost")] == [(0, "killed")]


def test_leaving_in_good_order_frees_the_slot(open_scene: Open) -> None:
    scene = open_scene().join("a", "b")
    scene.handle(msg.Leave("a", "the cluster shrinks"))
    assert scene.logged("lost")[0]["reason"] == "the cluster shrinks"
    assert scene.join("c").sent(msg.Welcome) == [msg.Welcome(1, 0, 2)]


def test_the_gradient_a_lost_worker_was_computing_is_counted_as_lost(open_scene: Open) -> None:
    scene = open_scene().join("a").lose("a")
    (dropped,) = scene.logged("dropped")
    assert (dropped["slot"], dropped["sequence"], dropped["reason"]) == (0, 1, "lost")


def test_the_batch_of_a_lost_gradient_is_dealt_again(open_scene: Open) -> None:
    scene = open_scene(deal_epochs=True).join("a", "b").lose("a").join("c")
    assert [one.assignment for one in scene.sent(msg.Release)] == [msg.BatchAssignment(0, 0)]


def test_what_waited_in_the_pool_when_its_worker_died_is_not_lost(open_scene: Open) -> None:
    scene = open_scene(BulkSynchronous()).join("a", "b").announce("a").lose("a")
    assert scene.logged("dropped") == []


def test_a_lost_worker_is_forgotten_only_when_nothing_of_it_waits_in_the_pool(open_scene: Open) -> None:
    """Commits of others may come before the one that it enters, and must not let the servers drop it."""
    scene = open_scene(BulkSynchronous()).join("a", "b", "c").announce("a").announce("b").lose("a")
    state = scene.coordinator.state
    assert (scene.asked(Forget), state.last_position("a", 0)) == ([], LARGEST)
    assert state.last_position("c", 0) == 0
    assert scene.announce("c").asked(Forget) == [Forget("a")]
    assert state.last_position("a", 0) == 1


def test_what_waits_in_the_pool_at_the_end_of_a_run_is_forgotten(open_scene: Open) -> None:
    scene = open_scene(BulkSynchronous()).join("a", "b").announce("a").lose("a")
    scene.handle(StopRequested("enough"))
    assert scene.asked(Forget) == [Forget("a")]


@pytest.mark.parametrize("known", [True, False], ids=["after it joined", "before its request came"])
def test_a_request_to_join_that_comes_after_the_loss_is_refused(open_scene: Open, known: bool) -> None:
    """A repeated or delayed request must not bring a dead process back: a round would wait for it for ever."""
    scene = open_scene().join("other")
    if known:
        scene.join("a")
    scene.lose("a").join("a")
    assert scene.sent(msg.Stop) == [msg.Stop(1, "declared lost; join again")]
    assert scene.coordinator.state.live == 1


def test_losing_a_stranger_changes_nothing(open_scene: Open) -> None:
    scene = open_scene().join("a").lose("stranger")
    assert scene.effects == []


def test_a_full_roster_refuses_joiners_until_a_slot_is_free(open_scene: Open) -> None:
    scene = open_scene(max_workers=1).join("a").join("b")
    assert scene.addressed(msg.Stop) == ["b"]
    assert scene.sent(msg.Stop) == [msg.Stop(1, "every slot is taken")]
    scene.lose("a").join("c")
    assert scene.sent(msg.Welcome) == [msg.Welcome(1, 0, 2)]


def test_joiners_are_refused_once_the_run_ends(open_scene: Open) -> None:
    scene = open_scene().join("a")
    scene.handle(StopRequested("enough"))
    assert scene.join("b").sent(msg.Stop) == [msg.Stop(1, "the run is ending")]


def test_who_leaves_because_the_run_ends_is_not_an_incident(open_scene: Open) -> None:
    scene = open_scene().join("a")
    scene.handle(StopRequested("enough"))
    scene.handle(msg.Leave("a", "enough"))
    assert scene.logged("lost") == []
    assert scene.logged("dropped") == []
    assert len(scene.logged("left")) == 1


# --- nobody there ---


def test_a_run_gives_up_when_nobody_joins_in_time(open_scene: Open) -> None:
    scene = open_scene(absence_limit_s=7.0)
    assert scene.asked(SetTimer) == [SetTimer("absence", 7.0)]
    scene.fire("absence", at=7.0)
    assert isinstance(scene.failure, ClusterError)
    assert "no live worker for 7 s" in str(scene.failure)


def test_a_joiner_ends_the_absence_and_the_last_to_leave_begins_another(open_scene: Open) -> None:
    scene = open_scene(absence_limit_s=7.0)
    assert CancelTimer("absence") in scene.join("a").effects
    assert CancelTimer("absence") not in scene.join("b").effects
    scene.now = 3.0
    assert scene.lose("a").asked(SetTimer) == []
    assert scene.lose("b").asked(SetTimer) == [SetTimer("absence", 10.0)]


# --- joining and losing in mid-round, under bsp ---


def test_a_worker_that_joins_in_mid_round_takes_part_in_it(open_scene: Open) -> None:
    scene = open_scene(BulkSynchronous()).join("a", "b").announce("a").join("c")
    assert scene.sent(msg.Release) == [msg.Release(1, 1, 0, None)]
    assert scene.announce("b").sent(msg.Commit) == []
    (commit,) = scene.announce("c").sent(msg.Commit)
    assert [one.slot for one in commit.contributions] == [0, 1, 2]


def test_the_loss_of_the_last_busy_worker_completes_the_round(open_scene: Open) -> None:
    scene = open_scene(BulkSynchronous()).join("a", "b").announce("a").lose("b")
    (commit,) = scene.sent(msg.Commit)
    assert commit.contributions == (msg.Contribution("a", 0, 1),)


def test_a_pooled_gradient_outlives_its_worker(open_scene: Open) -> None:
    scene = open_scene(BulkSynchronous()).join("a", "b").announce("a").lose("a").join("c").announce("c")
    (commit,) = scene.announce("b").sent(msg.Commit)
    assert commit.contributions == (
        msg.Contribution("a", 0, 1),
        msg.Contribution("c", 0, 2),
        msg.Contribution("b", 1, 1),
    )


def test_a_dead_worker_s_gradient_does_not_advance_the_clock_of_its_successor(open_scene: Open) -> None:
    scene = open_scene(BulkSynchronous()).join("a", "b").announce("a").lose("a").join("c").announce("c").announce("b")
    assert [one.clock for one in scene.coordinator.state.roster.members()] == [1, 1]


def test_a_worker_that_only_a_lost_coordinator_had_welcomed_is_told_to_join_again(open_scene: Open) -> None:
    """It would wait for ever for a server that is lost: nobody tells it of the next one."""
    scene = open_scene().join("a")
    scene.handle(msg.WorkerState(0, "b", 1, 0, None))
    assert scene.sent(msg.Stop) == []
    scene.handle(msg.WorkerState(1, "b", 1, 0, None))
    assert scene.sent(msg.Stop) == [msg.Stop(1, msg.JOIN_AGAIN)]
    assert scene.addressed(msg.Stop) == ["b"]
