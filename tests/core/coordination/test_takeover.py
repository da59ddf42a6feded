"""Taking over: nothing is decided before every server has answered; what was decided is adopted and said again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from psplatform.core.plan import Cuts, Protection, Stop
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Discard, Evaluate, SaveModel, Seal
from psplatform.core.protocol.events import CheckpointSealed, CopyLost, EvaluationLost, RunBroken, StopRequested
from psplatform.core.protocol.messages import BatchAssignment, Commit, Contribution, ServerState
from psplatform.errors import ClusterError
from psplatform.policies.backup import BackupWorkers
from psplatform.policies.bsp import BulkSynchronous

Open = Callable[..., Any]


def commit(position: int, *contributions: tuple[Any, ...], **fields: Any) -> Commit:
    """Return the commit of (member, slot, sequence[, batch assignment]) that the lost coordinator has made."""
    made = tuple(Contribution(*one) for one in contributions)
    return Commit(1, 1, position, position, made, fields.pop("rate", 0.5), **fields)


def standing(shard: int = 0, position: int = 0, *commits: Commit, term: int = 2, **fields: Any) -> ServerState:
    known = {"copy": f"server-{shard}", "epoch": 1, "serving": True, **fields}
    told = known["copy"], term, known["epoch"], known["serving"], position, commits
    return ServerState(shard, *told, known.get("replicas", ()))


# --- asking ---


def test_every_copy_and_member_is_asked(open_scene: Open) -> None:
    scene = open_scene(shards=2, protection=Protection(1)).join("a", "b").announce("a").take_over()
    assert scene.addressed(msg.StateRequest) == ["server-0", "replica-0-0", "server-1", "replica-1-0", "a", "b"]
    assert {(one.term, one.position) for one in scene.sent(msg.StateRequest)} == {(2, 1), (2, 0)}
    for shard in range(2):
        scene.handle(standing(shard))
    (record,) = scene.logged("promoted")
    assert (record["role"], record["epoch"], record["detected_seconds"]) == ("coordinator", 2, 0.5)


def test_the_record_names_the_process_that_was_lost_whoever_takes_over(open_scene: Open) -> None:
    """The first coordinator's, and then that of whoever took over from it."""
    scene = open_scene(processes={"coordinator": "tcp://a:1 pid 7"}).join("a")
    for term, process in ((2, "tcp://b:1 pid 8"), (3, "tcp://c:1 pid 9")):
        scene.take_over(term, process=process)
        scene.handle(standing(term=term))
    assert [one["process"] for one in scene.logged("promoted")] == ["tcp://a:1 pid 7", "tcp://b:1 pid 8"]


def test_nothing_is_decided_until_the_server_of_every_shard_has_answered(open_scene: Open) -> None:
    scene = open_scene(shards=2).join("a").take_over()
    scene.announce("a")
    assert scene.effects == []
    scene.handle(standing(0))
    assert scene.sent(msg.Commit) == []
    scene.handle(standing(1))
    assert [one.position for one in scene.sent(msg.Commit)] == [1, 1]
    assert {one.term for one in scene.sent(msg.Commit)} == {2}


def test_a_member_does_not_outrun_its_own_gradient(open_scene: Open) -> None:
    """Released for a version with it in, that it now waits for without: it would write over what is not applied yet."""
    scene = open_scene(workers=2).join("a", "b")
    scene.take_over().handle(standing(0))
    scene.announce("b")
    said = msg.Announce("a", 1, msg.Label((0,), (1,)), 4, 0.5, 1.0, 1.0, 0.0, 0.0, 0.0)
    scene.handle(msg.WorkerState(2, "a", 2, 1, None, (said,)))
    assert [(one["version"], one["sequences"]) for one in scene.logged("commit")] == [(1, [1]), (2, [1])]
    assert scene.sent(msg.Abort) == [msg.Abort(2, 2)]
    (release,) = [one for one in scene.sent(msg.Release) if one.sequence == 3]
    assert release.version == 2


@pytest.mark.parametrize(
    "stray",
    [
        standing(term=1),
        standing(copy="replica-0-0", serving=False),
        standing(epoch=2),
        standing(serving=False),
    ],
    ids=["another term", "another copy", "another epoch", "does not serve"],
)
def test_an_answer_of_somebody_else_is_none(open_scene: Open, stray: ServerState) -> None:
    scene = open_scene().join("a").take_over()
    scene.handle(stray)
    assert scene.coordinator.takeover.awaited_shards


def test_a_server_that_is_lost_meanwhile_is_replaced_and_its_successor_awaited(open_scene: Open) -> None:
    scene = open_scene(protection=Protection(1)).join("a").announce("a").take_over()
    scene.handle(CopyLost("server-0", "there", "killed"))
    assert [(one.term, one.epoch) for one in scene.sent(msg.Promote)] == [(2, 2)]
    assert scene.coordinator.takeover.awaited_shards
    scene.handle(msg.Promoted(0, "replica-0-0", 2, 0, 0, term=2))
    assert not scene.coordinator.takeover.awaited_shards
    assert {(one.position, one.epoch, one.term) for one in scene.sent(msg.Commit)} == {(1, 2, 2)}


def test_a_successor_that_obeys_the_lost_coordinator_is_still_awaited(open_scene: Open) -> None:
    """It may yet be given orders by that one."""
    scene = open_scene(protection=Protection(1)).join("a").announce("a").take_over()
    scene.handle(CopyLost("server-0", "there", "killed"))
    scene.handle(msg.Promoted(0, "replica-0-0", 2, 0, 0, term=1))
    assert scene.coordinator.takeover.awaited_shards
    scene.handle(msg.Promoted(0, "replica-0-0", 2, 0, 0, term=2))
    assert not scene.coordinator.takeover.awaited_shards


def test_a_promotion_under_way_is_ordered_again(open_scene: Open) -> None:
    scene = open_scene(protection=Protection(1)).join("a")
    scene.handle(CopyLost("server-0", "there", "killed"))
    scene.take_over()
    assert [(one.term, one.epoch) for one in scene.sent(msg.Promote)] == [(2, 2)]
    assert scene.addressed(msg.Promote) == ["replica-0-0"]


def test_a_promotion_is_settled_once_it_is_known_what_was_decided(open_scene: Open) -> None:
    """Until then its server answers nobody: the one before may have shown more than the order says."""
    scene = open_scene(shards=2, protection=Protection(1)).join("a")
    scene.handle(CopyLost("server-0", "there", "killed"))
    assert [one.settled for one in scene.sent(msg.Promote)] == [True]
    scene.take_over()
    assert [(one.position, one.settled) for one in scene.sent(msg.Promote)] == [(0, False)]
    scene.handle(msg.Promoted(0, "replica-0-0", 2, 0, 0, term=2))
    assert scene.sent(msg.Promote) == scene.sent(msg.Moved) == []
    scene.handle(standing(1, 1, commit(1, ("a", 0, 1))))
    assert [(one.position, one.settled) for one in scene.sent(msg.Promote)] == [(1, True)]


def test_after_the_next_takeover_it_is_not_known_whether_promoted_servers_were_told(open_scene: Open) -> None:
    scene = open_scene(shards=2, protection=Protection(1)).join("a")
    scene.handle(CopyLost("server-0", "there", "killed"))
    scene.handle(msg.Promoted(0, "replica-0-0", 2, 0, 0, term=1))
    scene.take_over()
    assert scene.sent(msg.Promote) == []
    scene.handle(standing(copy="replica-0-0", epoch=2))
    scene.handle(standing(1, 1, commit(1, ("a", 0, 1))))
    assert scene.sent(msg.Promote) == [msg.Promote(2, 2, 1)]
    assert scene.coordinator.takeover.adopted == [1, 1]
    scene.take_over(3)
    assert scene.coordinator.takeover.adopted == []


# --- adopting ---


def test_a_commit_that_only_a_server_knows_is_adopted_as_it_is(open_scene: Open) -> None:
    scene = open_scene(shards=2, policy=BulkSynchronous()).join("a", "b").announce("a").take_over()
    decided = commit(1, ("a", 0, 1), ("b", 1, 1), rate=0.125)
    scene.handle(standing(0, 1, decided))
    scene.handle(standing(1))
    (record,) = scene.logged("commit")
    assert (record["slots"], record["rate"], record["reason"]) == ([0, 1], 0.125, "decided by the coordinator before")
    again = scene.sent(msg.Commit)
    assert {(one.term, one.position, one.rate, one.contributions) for one in again} == {
        (2, 1, 0.125, decided.contributions)
    }
    assert set(scene.addressed(msg.Commit)) == {"server-0", "server-1"}
    assert scene.coordinator.state.pooled == 0


def test_a_gradient_that_comes_again_after_its_commit_was_adopted_counts_once(open_scene: Open) -> None:
    scene = open_scene().join("a").take_over()
    scene.announce("a")
    scene.handle(standing(0, 1, commit(1, ("a", 0, 1))))
    assert len(scene.logged("commit")) == 1
    assert len(scene.logged("gradient")) == 1
    assert scene.coordinator.state.samples_applied == 4
    scene.announce("a", sequence=1)
    assert len(scene.logged("commit")) == 1


def test_a_member_joins_again_whose_slot_the_lost_coordinator_had_given_to_another(open_scene: Open) -> None:
    """It had taken the member for lost; only a server knows what the other has given since."""
    scene = open_scene(BulkSynchronous(), workers=2).join("a", "c").take_over()
    scene.handle(standing(0, 1, commit(1, ("b", 0, 2), ("c", 1, 1))))
    assert [one["slot"] for one in scene.logged("lost")] == [0]
    assert scene.sent(msg.Stop) == [msg.Stop(2, msg.JOIN_AGAIN)]
    assert scene.addressed(msg.Stop) == ["a"]
    assert scene.addressed(msg.Release) == ["c"]
    scene.join("a+")
    assert [(one.sequence, one.version) for one in scene.sent(msg.Release)] == [(3, 1)], "no name is given twice"


def test_commits_are_adopted_in_their_order_from_whoever_knows_them(open_scene: Open) -> None:
    scene = open_scene(shards=2).join("a", "b").take_over()
    scene.handle(standing(0, 1, commit(1, ("a", 0, 1))))
    scene.handle(standing(1, 0, commit(2, ("b", 1, 1))))
    assert [(one["position"], one["slots"]) for one in scene.logged("commit")] == [(1, [0]), (2, [1])]


def test_where_one_shard_has_lost_a_commit_another_one_says_what_it_was(open_scene: Open) -> None:
    scene = open_scene(shards=2).join("a").take_over()
    scene.handle(standing(0, 1, commit(1)))
    scene.handle(standing(1, 1, commit(1, ("a", 0, 1))))
    assert scene.logged("commit")[0]["slots"] == [0]


def test_a_position_that_was_passed_over_is_lost_on_every_shard(open_scene: Open) -> None:
    """The lost coordinator had given it up for one shard, and nobody knows what it was made of."""
    scene = open_scene(shards=2).join("a").announce("a").take_over()
    scene.handle(standing(0, 3, commit(3)))
    scene.handle(standing(1, 1, commit(1, ("a", 0, 1))))
    assert [(one["version"], one["sequences"]) for one in scene.logged("commit")] == [(1, [1]), (2, []), (3, [])]
    told = [(one.position, one.contributions) for one in scene.sent(msg.Commit) if one.position > 1]
    assert set(told) == {(2, ()), (3, ())}
    scene.announce("a", sequence=2)
    assert scene.logged("commit")[-1]["position"] == 4, "it goes on behind what the shard has passed over"


def test_what_the_policy_would_have_said_does_not_matter(open_scene: Open) -> None:
    """Two of three would do for this one; the lost coordinator waited for all."""
    scene = open_scene(BackupWorkers(k=2), workers=3).join("a", "b", "c").take_over()
    scene.handle(standing(0, 0, commit(1, ("a", 0, 1), ("b", 1, 1), ("c", 2, 1))))
    assert scene.logged("commit")[0]["slots"] == [0, 1, 2]


def test_a_commit_that_was_not_delivered_is_sent_again(open_scene: Open) -> None:
    scene = open_scene(shards=2, clip_norm=1.0).join("a").announce("a").take_over()
    scene.handle(standing(0, 1))
    scene.handle(standing(1, 0))
    assert scene.addressed(msg.Commit) == ["server-0", "server-1"]


def test_a_clipping_factor_that_was_decided_is_said_again(open_scene: Open) -> None:
    scene = open_scene(clip_norm=1.0).join("a").announce("a")
    scene.handle(msg.Gathered(0, 1, 1, (9.0,)))
    (before,) = scene.sent(msg.Proceed)
    scene.take_over().handle(standing(0))
    assert [(one.term, one.factor) for one in scene.sent(msg.Proceed)] == [(2, before.factor)]


def test_what_a_lost_server_had_shown_is_lost_as_the_version_that_others_know(open_scene: Open) -> None:
    """It answered, and was gone before the others said what the commit was: nothing is said of it until then."""
    scene = open_scene(shards=2, protection=Protection(1)).join("a").take_over()
    scene.handle(standing(0, 1, commit(1, ("a", 0, 1))))
    scene.handle(CopyLost("server-0", "there", "killed"))
    scene.handle(msg.Promoted(0, "replica-0-0", 2, 0, 0, 2))
    assert scene.sent(msg.Commit) == []
    scene.handle(standing(1, 1, commit(1, ("a", 0, 1))))
    promoted = [one for one in scene.sent(msg.Commit) if one.epoch == 2]
    assert {(one.position, one.version, one.contributions) for one in promoted} == {(1, 1, ())}
    assert [(one["shard"], one["first"], one["last"]) for one in scene.logged("lost positions")] == [(0, 1, 1)]


def test_what_a_promoted_server_shows_by_now_is_not_lost(open_scene: Open) -> None:
    """Its promotion was confirmed to the lost coordinator alone, which had sent it what was decided again."""
    scene = open_scene(protection=Protection(2)).join("a").announce("a")
    scene.handle(CopyLost("server-0", "there", "killed"))
    scene.take_over().handle(standing(0, 1, copy="replica-0-0", epoch=2))
    assert scene.coordinator.takeover.awaited_shards  # where it began, it has not said
    scene.handle(msg.Promoted(0, "replica-0-0", 2, 0, 0, 2))
    assert scene.logged("lost positions") == []
    assert [(one.position, len(one.contributions)) for one in scene.sent(msg.Commit)] == [(1, 1)]


def test_a_server_is_told_again_what_it_has_to_pass_over(open_scene: Open) -> None:
    """The lost coordinator had closed that position, and its word of it may never have left."""
    scene = open_scene(protection=Protection(2)).join("a").announce("a")
    scene.handle(msg.Applied(0, 1, 1, 1, ()))
    scene.handle(CopyLost("server-0", "there", "killed"))
    scene.handle(msg.Promoted(0, "replica-0-0", 2, 0, 0, 1))
    assert [(one.position, one.contributions) for one in scene.sent(msg.Commit)] == [(1, ())]
    scene.take_over().handle(standing(0, 0, copy="replica-0-0", epoch=2))
    assert [(one.term, one.position, one.contributions) for one in scene.sent(msg.Commit)] == [(2, 1, ())]
    scene.take_over(3).handle(standing(0, 1, copy="replica-0-0", epoch=2, term=3))
    assert scene.sent(msg.Commit) == []  # it says that it has done so


def test_what_a_server_has_to_pass_over_is_not_ordered_of_it_as_well(open_scene: Open) -> None:
    """It would gather what workers may have written over, in the place of what it was told to pass over."""
    scene = open_scene(shards=2, protection=Protection(2)).join("a").announce("a")
    scene.handle(msg.Applied(0, 1, 1, 1, ()))  # shard 1 has not applied it: it is open
    scene.handle(CopyLost("server-0", "there", "killed"))
    scene.handle(msg.Promoted(0, "replica-0-0", 2, 0, 0, 1))
    scene.take_over().handle(standing(0, 0, copy="replica-0-0", epoch=2))
    scene.handle(standing(1, 0))
    ordered = list(zip(scene.addressed(msg.Commit), scene.sent(msg.Commit), strict=True))
    assert {(one.position, one.contributions) for name, one in ordered if name == "replica-0-0"} == {(1, ())}
    assert [one.position for name, one in ordered if name == "server-1" and one.contributions] == [1]


# --- members ---


def test_releases_and_aborts_are_said_again(open_scene: Open) -> None:
    scene = open_scene(BackupWorkers(k=1, busy="abort"), workers=2).join("a", "b").announce("a")
    assert scene.addressed(msg.Abort) == ["b"]
    scene.take_over().handle(standing(0))
    assert scene.addressed(msg.Abort) == ["b"]
    assert scene.sent(msg.Abort) == [msg.Abort(2, 1)]
    assert sorted(scene.addressed(msg.Release)) == ["a", "b"]
    assert {(one.term, one.sequence, one.version) for one in scene.sent(msg.Release)} == {(2, 2, 1)}


def test_a_member_that_was_released_without_a_trace_is_believed(open_scene: Open) -> None:
    """Its release had left before anybody else heard of the event that led to it."""
    scene = open_scene().join("a")
    scene.handle(msg.Aborted("a", 1, 0.0))
    scene.take_over().handle(standing(0))
    scene.handle(msg.WorkerState(2, "a", 3, 0, None))
    member = scene.coordinator.state.roster.by_name.get("a")
    assert (member.sequence, member.busy) == (3, True)
    scene.announce("a", sequence=3, label=0)
    assert scene.logged("commit")[-1]["sequences"] == [3]


def test_a_member_is_told_that_its_release_stands_as_it_knows_it(open_scene: Open) -> None:
    """Sent once: a release that was repeated already is not sent again."""
    scene = open_scene(workers=2).join("a", "b").take_over()
    scene.handle(standing(0))
    assert scene.sent(msg.Release) == [msg.Release(2, 1, 0, None), msg.Release(2, 1, 0, None)]
    scene.handle(msg.WorkerState(2, "a", 1, 0, None))
    assert scene.effects == []
    scene.handle(msg.WorkerState(2, "b", 3, 0, None))
    assert (scene.addressed(msg.Release), scene.sent(msg.Release)) == (["b"], [msg.Release(2, 3, 0, None)])
    scene.handle(msg.WorkerState(2, "b", 3, 0, None))
    assert scene.effects == []


def test_a_member_that_has_given_up_what_it_was_released_for_is_released_again(open_scene: Open) -> None:
    """It was told so by the lost coordinator, and has told that one alone; it takes no release for the same again."""
    scene = open_scene().join("a", "b")
    scene.take_over().handle(standing(0))
    scene.handle(msg.WorkerState(2, "a", 2, 0, None, aborted=True))
    assert [(one.sequence, one.version) for one in scene.sent(msg.Release)] == [(3, 0)]
    assert scene.sent(msg.Abort) == []
    scene.handle(msg.WorkerState(2, "b", 2, 0, None))
    assert scene.sent(msg.Release) == [msg.Release(2, 2, 0, None)]
    assert scene.sent(msg.Abort) == []
    assert scene.coordinator.state.roster.by_name.get("b").sequence == 2


def test_what_a_member_gave_up_before_its_last_release_changes_nothing(open_scene: Open) -> None:
    scene = open_scene(BackupWorkers(k=1, busy="abort"), workers=2).join("a", "b").announce("a")
    scene.take_over().handle(standing(0))
    scene.handle(msg.WorkerState(2, "b", 1, 0, None, aborted=True))
    assert scene.sent(msg.Release) == []
    assert scene.coordinator.state.roster.by_name.get("b").busy


def test_what_a_member_said_before_it_was_released_counts(open_scene: Open) -> None:
    """In one message: a release that overtook it would make it look as if that gradient were over."""
    scene = open_scene().join("a")
    scene.take_over().handle(standing(0))
    said = msg.Announce("a", 1, msg.Label((0,), (1,)), 4, 0.5, 1.0, 1.0, 0.0, 0.0, 0.0)
    scene.handle(msg.WorkerState(2, "a", 2, 1, None, (said,)))
    assert [one["sequences"] for one in scene.logged("commit")] == [[1]]
    member = scene.coordinator.state.roster.by_name.get("a")
    assert (member.sequence, member.busy) == (2, True)


def test_a_release_that_the_lost_coordinator_forestalled_is_said_anew(open_scene: Open) -> None:
    """It had released the same gradient for a version that is gone with it: the worker ignores the second release."""
    scene = open_scene(BulkSynchronous(), workers=2, protection=Protection(1)).join("a", "b")
    scene.announce("a").announce("b").take_over().handle(CopyLost("server-0", "p", "killed"))
    scene.handle(msg.Promoted(0, "replica-0-0", 2, 0, 0, 2))
    scene.handle(msg.Unreachable(0, 2, 1))
    assert {(one.sequence, one.version) for one in scene.sent(msg.Release)} == {(3, 1)}
    for number, member in enumerate("ab"):
        said = msg.Announce(member, 2, msg.Label((1,), (1,)), 4, 0.5, 1.0, 1.0, 0.0, 0.0, 0.0)
        scene.handle(msg.WorkerState(2, member, 3, 2, None, (said,)))
        assert scene.sent(msg.Abort) == [msg.Abort(2, 3)], number
        (release,) = scene.sent(msg.Release)
        assert (release.sequence, release.version) == (4, 1)


def test_what_was_computed_on_a_commit_that_nobody_knows_is_not_current(open_scene: Open) -> None:
    """Not even where that was the first one, and nothing is left but what the run began with."""
    scene = open_scene(BackupWorkers(k=1), workers=2, protection=Protection(1)).join("a", "b")
    scene.take_over().handle(CopyLost("server-0", "p", "killed"))
    scene.handle(msg.Promoted(0, "replica-0-0", 2, 0, 0, 2))
    said = msg.Announce("a", 2, msg.Label((1,), (1,)), 4, 0.5, 1.0, 1.0, 0.0, 0.0, 0.0)
    scene.handle(msg.WorkerState(2, "a", 2, 1, None, (said,)))
    assert scene.logged("commit") == []
    assert [(one["sequence"], one["label"]) for one in scene.logged("dropped")] == [(2, -1)]
    assert scene.addressed(msg.Release) == ["a"]
    assert [(one.sequence, one.version) for one in scene.sent(msg.Release)] == [(3, 0)]


@pytest.mark.parametrize(
    "stray",
    [msg.WorkerState(1, "a", 9, 0, None), msg.WorkerState(2, "stranger", 9, 0, None)],
    ids=["another term", "a stranger"],
)
def test_word_of_a_release_to_somebody_else_changes_nothing(open_scene: Open, stray: msg.WorkerState) -> None:
    scene = open_scene().join("a").take_over()
    scene.handle(standing(0))
    before = scene.coordinator.state.roster.by_name.get("a").sequence
    scene.handle(stray)
    assert scene.coordinator.state.roster.by_name.get("a").sequence == before


def test_a_batch_that_the_lost_coordinator_had_dealt_is_not_dealt_again(open_scene: Open) -> None:
    scene = open_scene(deal_epochs=True).join("a").take_over()
    scene.handle(standing(0))
    scene.handle(msg.WorkerState(2, "a", 2, 0, BatchAssignment(0, 1)))
    given = [scene.join(name).sent(msg.Release)[0].assignment for name in "bcd"]
    assert given == [BatchAssignment(0, 0), BatchAssignment(0, 2), BatchAssignment(0, 3)], (
        "what it had before, and did not announce, is dealt"
    )
    assert scene.coordinator.state.batch_scheduler.assignment(0, 2) == BatchAssignment(0, 1)


def test_a_batch_of_which_only_a_commit_tells_is_not_dealt_again(open_scene: Open) -> None:
    """Its worker is lost together with the coordinator that had released it."""
    scene = open_scene(deal_epochs=True, workers=1).join("a").announce("a").take_over()
    scene.handle(standing(0, 2, commit(2, ("z", 1, 1, BatchAssignment(0, 3)))))
    assert scene.sent(msg.Commit)[-1].contributions[-1].assignment == BatchAssignment(0, 3), (
        "the next to take over learns of it"
    )
    assert [scene.join(name).sent(msg.Release)[0].assignment for name in "bc"] == [
        BatchAssignment(0, 2),
        BatchAssignment(0, 4),
    ]


def test_of_two_gradients_of_one_batch_the_second_is_dropped_and_its_worker_goes_on(open_scene: Open) -> None:
    """The new coordinator deals a batch again before the worker is heard that has it from the lost one."""
    scene = open_scene(BulkSynchronous(), deal_epochs=True, workers=2).join("a").take_over()
    scene.handle(standing(0))
    scene.join("b")
    assert scene.coordinator.state.batch_scheduler.assignment(1, 1) == BatchAssignment(0, 1)
    scene.handle(msg.WorkerState(2, "a", 2, 0, BatchAssignment(0, 1)))
    said = msg.Announce(
        "a", 2, msg.Label((0,), (1,)), 4, 0.5, 1.0, 1.0, 0.0, 0.0, 0.0, assignment=BatchAssignment(0, 1)
    )
    scene.handle(said)
    (dropped,) = scene.logged("dropped")
    assert (dropped["slot"], dropped["sequence"], dropped["reason"]) == (0, 2, "duplicate")
    (release,) = [one for one in scene.sent(msg.Release) if one.sequence == 3]
    assert (release.version, release.assignment) == (0, BatchAssignment(0, 0)), (
        "on the version of the round, which waits for it"
    )


def test_a_worker_whose_batch_was_applied_by_another_is_released_for_one_that_counts(open_scene: Open) -> None:
    """It may never have heard of its release: the lost coordinator had given it up, and dealt its batch again."""
    scene = open_scene(deal_epochs=True, workers=2).join("a", "b").take_over()
    scene.handle(standing(0, 1, commit(1, ("b", 1, 1, BatchAssignment(0, 0)))))
    released = dict(zip(scene.addressed(msg.Release), scene.sent(msg.Release), strict=True))
    assert (released["a"].sequence, released["a"].assignment) == (1, BatchAssignment(0, 1)), (
        "which the other had, and is free"
    )


# --- replicas ---


def test_a_server_waits_no_longer_for_replicas_that_only_the_lost_coordinator_knew(open_scene: Open) -> None:
    """They may be dead, and nobody here would ever say so."""
    scene = open_scene(protection=Protection(1)).join("a").take_over()
    scene.handle(standing(0, replicas=("replica-0-0", "replica-0-7")))
    assert {one.replica for one in scene.sent(msg.Exclude)} == {"replica-0-7"}


def test_a_promotion_that_nobody_has_confirmed_is_ordered_again_as_it_was(open_scene: Open) -> None:
    """Where the run pauses, the new server still waits for whoever takes the place of the lost one."""
    scene = open_scene(protection=Protection(1, pause=True)).join("a")
    scene.handle(CopyLost("server-0", "p", "killed"))
    assert scene.take_over().sent(msg.Promote) == [msg.Promote(2, 2, 0, "server-0", settled=False)]


def test_one_that_is_replaced_is_waited_for_all_the_same_where_the_run_pauses(open_scene: Open) -> None:
    scene = open_scene(protection=Protection(1, pause=True)).join("a")
    scene.handle(CopyLost("replica-0-0", "p", "killed"))
    scene.take_over().handle(standing(0, replicas=("replica-0-0",)))
    assert scene.sent(msg.Exclude) == []


# --- the end of a run ---


def test_an_evaluation_under_way_is_asked_for_again(open_scene: Open) -> None:
    scene = open_scene(evaluates=True, evaluate_every=1).join("a").announce("a")
    scene.take_over().handle(standing(0))
    assert scene.asked(Evaluate) == [Evaluate(1, measure=True)]


def test_an_evaluation_that_was_lost_with_the_coordinator_is_not_asked_for_again(open_scene: Open) -> None:
    """The next evaluator would make it, and what comes of it be taken for that of a later version."""
    scene = open_scene(evaluates=True, evaluate_every=1).join("a").announce("a")
    scene.take_over().handle(EvaluationLost("process ended"))
    scene.handle(standing(0))
    assert scene.asked(Evaluate) == []
    scene.announce("a")
    assert [one.version for one in scene.asked(Evaluate)] == [2], "the next that is due"


def test_a_model_is_not_saved_by_an_evaluator_that_has_not_pulled_it(open_scene: Open) -> None:
    """The one that had was lost with the coordinator."""
    scene = open_scene(stop=Stop(updates=1)).join("a").announce("a").show()
    scene.evaluated(scene.orders[0])
    scene.take_over().handle(EvaluationLost("process ended"))
    scene.handle(standing(0, 1))
    assert scene.asked(SaveModel) == []
    assert [one.version for one in scene.asked(Evaluate)] == [1]


def test_a_run_that_was_ending_ends(open_scene: Open) -> None:
    scene = open_scene(stop=Stop(updates=1)).join("a").announce("a").show()
    scene.evaluated(scene.orders[0])
    scene.take_over().handle(standing(0, 1))
    assert scene.asked(SaveModel) == [SaveModel(1)]
    assert scene.addressed(msg.Stop) == ["a"]


def test_a_stop_that_comes_meanwhile_is_not_forgotten(open_scene: Open) -> None:
    scene = open_scene().join("a").take_over()
    scene.handle(StopRequested("enough"))
    assert not scene.coordinator.state.stopping
    scene.handle(standing(0))
    assert scene.coordinator.state.stopping


def test_a_checkpoint_under_way_is_given_up(open_scene: Open) -> None:
    scene = open_scene(cuts=Cuts(every_updates=1)).join("a").announce("a")
    scene.take_over().handle(standing(0))
    assert [one["event"] for one in scene.logged("checkpoint")] == ["abandoned"]


def test_taken_over_twice_the_second_asks_again(open_scene: Open) -> None:
    scene = open_scene().join("a").take_over()
    scene.take_over(3, at=6.0)
    assert {one.term for one in scene.sent(msg.StateRequest)} == {3}
    scene.handle(standing(0))
    assert scene.coordinator.takeover.awaited_shards, "that was for the one before"
    scene.handle(standing(0, term=3))
    assert not scene.coordinator.takeover.awaited_shards


def test_who_takes_over_while_a_run_ends_cuts_its_last_version(open_scene: Open) -> None:
    """What the lost coordinator had cut is given up first: else the new cut goes with it, half written."""
    scene = open_scene(cuts=Cuts(every_updates=100)).join("a").announce("a")
    scene.handle(msg.Written(0, 100_001, 1, {})).clear()
    scene.handle(CheckpointSealed(100_001, 80))
    scene.announce("a").handle(StopRequested("enough"))
    scene.show()
    assert scene.coordinator.checkpoints.under_way
    scene.take_over().handle(standing(0, 2))
    assert [(one.number, one.position) for one in scene.sent(msg.Cut)] == [(200_003, 2)]
    assert Discard(200_003) not in scene.effects
    (seal,) = [one for one in scene.handle(msg.Written(0, 200_003, 2, {"shard": 0})) if isinstance(one, Seal)]
    assert (seal.number, seal.version) == (200_003, 2)


def test_what_is_being_written_when_a_run_breaks_is_removed(open_scene: Open) -> None:
    scene = open_scene(cuts=Cuts(every_updates=100)).join("a").announce("a")
    assert scene.coordinator.checkpoints.under_way
    scene.handle(RunBroken(ClusterError("it cannot go on")))
    assert [one for one in scene.effects if isinstance(one, Discard)] == [Discard(100_001)]
    assert [one["event"] for one in scene.logged("checkpoint")] == ["abandoned"]
