"""Copies of shards are lost and made: who is promoted, what is lost, what is sent again, and who is replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from psplatform.core.plan import Protection
from psplatform.core.policy import POOL, Gradient, Traits, Verdict, View
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Finish, Recruit, Redirect, Retire
from psplatform.core.protocol.events import CopyAwake, CopyLost, CopyReady, NoCopy, ProcessesChanged, StopRequested
from psplatform.policies.backup import BackupWorkers
from psplatform.policies.bsp import BulkSynchronous

Open = Callable[..., Any]


def gone(copy: str, silence_s: float = 0.0) -> CopyLost:
    return CopyLost(copy, f"tcp://{copy}", "killed", silence_s)


@pytest.fixture
def protected(open_scene: Open) -> Open:
    """Open a run with one replica for each shard."""

    def make(policy: Any = None, *, replicas: int = 1, pause: bool = False, **fields: Any) -> Any:
        return open_scene(policy, protection=Protection(replicas, pause=pause), **fields)

    return make


def promote(scene: Any, copy: str, position: int, *, shard: int = 0, epoch: int = 2) -> Any:
    """Let a replica confirm that it is the server, from `position` on."""
    scene.handle(msg.Promoted(shard, copy, epoch, position, position))
    return scene


# --- promotion ---


@pytest.mark.parametrize("in_sync", ["known", "overtaken"])
def test_a_server_that_has_handed_over_is_replaced_by_the_replica_that_has_everything(
    protected: Open, in_sync: str
) -> None:
    """`HandedOver` says that the replica is in sync, too: it may come before `InSync`, and need not come again."""
    scene = protected().join("a")
    scene.handle(gone("replica-0-0"))
    scene.handle(CopyReady(0, "replica-0-1", "tcp://other"))
    scene.handle(msg.Retiring("server-0"))
    if in_sync == "known":
        scene.handle(msg.InSync(0, 1, "replica-0-1", 0))
    scene.handle(msg.HandedOver(0, 1, "replica-0-1"))
    assert scene.addressed(msg.Promote) == ["replica-0-1"]
    assert scene.asked(Retire) == [Retire("server-0", "retired")]
    scene.handle(msg.InSync(0, 1, "replica-0-1", 0))
    assert scene.handle(msg.HandedOver(0, 1, "replica-0-1")) == []


def test_nobody_takes_over_from_a_server_who_is_not_a_copy_of_its_shard(protected: Open) -> None:
    scene = protected().join("a")
    scene.handle(msg.HandedOver(0, 1, "replica-1-0"))
    scene.handle(msg.HandedOver(0, 2, "replica-0-0"))
    assert scene.sent(msg.Promote) == []


def test_a_replica_in_sync_is_promoted_under_a_new_epoch(protected: Open) -> None:
    scene = protected().join("a")
    scene.handle(gone("server-0"))
    assert scene.sent(msg.Promote) == [msg.Promote(1, 2)]
    assert scene.addressed(msg.Promote) == ["replica-0-0"]
    assert scene.asked(Retire) == [Retire("server-0", "killed")]
    assert scene.handle(gone("server-0")) == [], "a loss that is reported twice is one"


def test_until_it_has_confirmed_nothing_is_ordered_of_it(protected: Open) -> None:
    scene = protected().join("a")
    scene.handle(gone("server-0"))
    assert scene.announce("a").sent(msg.Commit) == []
    promote(scene, "replica-0-0", 0)
    assert [(one.position, one.epoch) for one in scene.sent(msg.Commit)] == [(1, 2)]
    assert scene.addressed(msg.Commit) == ["replica-0-0"]


def test_everybody_hears_where_the_server_is(protected: Open) -> None:
    scene = protected().join("a", "b")
    scene.handle(gone("server-0"))
    promote(scene, "replica-0-0", 0)
    assert scene.sent(msg.Moved) == [msg.Moved(1, 0, 2, "replica-0-0")] * 2
    assert scene.asked(Redirect) == [Redirect(0, 2, "replica-0-0")]
    scene.join("late")
    assert scene.sent(msg.Moved) == [msg.Moved(1, 0, 2, "replica-0-0")]


@pytest.mark.parametrize(
    "stray",
    [msg.Promoted(0, "replica-0-0", 3, 0, 0), msg.Promoted(0, "somebody", 2, 0, 0)],
    ids=["another epoch", "another copy"],
)
def test_a_confirmation_of_something_else_changes_nothing(protected: Open, stray: msg.Promoted) -> None:
    scene = protected().join("a")
    scene.handle(gone("server-0"))
    assert scene.handle(stray) == []
    assert scene.coordinator.state.shards[0].promoting


def test_without_a_replica_in_sync_the_run_ends(protected: Open) -> None:
    scene = protected().join("a")
    scene.handle(gone("replica-0-0"))
    scene.handle(CopyReady(0, "replica-0-2", "p"))
    scene.handle(gone("server-0"))
    assert scene.asked(Finish) != []
    assert "has no replica in sync" in scene.finish.detail


def test_when_the_promoted_copy_is_lost_before_it_confirmed_another_is_promoted(protected: Open) -> None:
    """The others were in sync with the server before, and nothing has been shown since."""
    scene = protected(replicas=2).join("a")
    scene.handle(gone("server-0"))
    scene.handle(gone("replica-0-0"))
    assert scene.finish is None
    assert (scene.sent(msg.Promote), scene.addressed(msg.Promote)) == ([msg.Promote(1, 3)], ["replica-0-1"])


def test_a_promoted_server_has_brought_the_other_replicas_level_before_it_confirms(protected: Open) -> None:
    """So they are in sync with it from the first moment, and its loss is survived as well."""
    scene = protected(replicas=2).join("a")
    scene.handle(gone("server-0"))
    assert scene.sent(msg.Promote) == [msg.Promote(1, 2, successors=("replica-0-1",))]
    promote(scene, "replica-0-0", 0)
    assert scene.sent(msg.Include) == []
    assert scene.coordinator.state.shards[0].in_sync == ["replica-0-1"]
    scene.handle(gone("replica-0-0"))
    assert (scene.sent(msg.Promote), scene.addressed(msg.Promote)) == ([msg.Promote(1, 3)], ["replica-0-1"])


def test_an_heir_that_is_lost_is_not_waited_for(protected: Open) -> None:
    """The order is sent again without it; the promoted server that had it level already is told to exclude it."""
    scene = protected(replicas=3).join("a")
    scene.handle(gone("server-0"))
    scene.handle(gone("replica-0-1"))
    assert scene.sent(msg.Promote) == [msg.Promote(1, 2, successors=("replica-0-2",))]
    assert scene.sent(msg.Exclude) == []
    promote(scene, "replica-0-0", 0)
    assert scene.sent(msg.Exclude) == [msg.Exclude(1, 2, "replica-0-1")]


def test_a_replica_that_was_joining_is_brought_in_sync_with_the_promoted_server(protected: Open) -> None:
    scene = protected(replicas=2).join("a")
    scene.handle(gone("replica-0-1"))
    scene.handle(CopyReady(0, "replica-0-2", "p"))
    scene.handle(gone("server-0"))
    assert scene.sent(msg.Promote) == [msg.Promote(1, 2)]
    promote(scene, "replica-0-0", 0)
    assert scene.sent(msg.Include) == [msg.Include(1, 2, "replica-0-2")]
    scene.handle(msg.InSync(0, 1, "replica-0-2", 0))
    assert scene.coordinator.state.shards[0].in_sync == [], "with the lost server it was in sync"
    scene.handle(msg.InSync(0, 2, "replica-0-2", 0))
    assert scene.coordinator.state.shards[0].in_sync == ["replica-0-2"]


# --- what is lost, and what is sent again ---


def test_what_was_decided_and_not_shown_is_sent_again(protected: Open) -> None:
    scene = protected().join("a", "b").announce("a").announce("b").announce("a")
    scene.handle(msg.Applied(0, 1, 1, 1, ()))
    scene.handle(gone("server-0"))
    promote(scene, "replica-0-0", 1)
    assert [one.position for one in scene.sent(msg.Commit)] == [2, 3]
    assert all(one.contributions for one in scene.sent(msg.Commit))
    assert scene.logged("lost positions") == []


def test_what_was_shown_and_is_not_on_the_replica_is_lost(protected: Open) -> None:
    scene = protected().join("a", "b").announce("a").announce("b").announce("a").announce("b")
    for position in (1, 2, 3):
        scene.handle(msg.Applied(0, 1, position, position, (), step=0.5))
    scene.handle(gone("server-0", silence_s=0.25), at=2.0)
    promote(scene, "replica-0-0", 1)
    lost, again = scene.sent(msg.Commit)
    assert (lost.position, lost.version, lost.contributions) == (3, 3, ())
    assert again.position == 4
    (record,) = scene.logged("lost positions")
    assert (record["first"], record["last"], record["epoch"]) == (2, 3, 2)
    (promoted,) = scene.logged("promoted")
    assert (promoted["updates_lost"], promoted["distance_lost"], promoted["detected_seconds"]) == (2, 1.0, 0.25)
    assert (promoted["bound"], promoted["unit"]) == (8.0, "updates")


def test_what_was_lost_with_an_earlier_server_is_not_lost_once_more(protected: Open) -> None:
    """The server that passed over it dies before its replica has heard of that."""
    scene = protected(replicas=2).join("a", "b").announce("a").announce("b").announce("a").announce("b")
    for position in (1, 2, 3):
        scene.handle(msg.Applied(0, 1, position, position, (), step=0.5))
    scene.handle(gone("server-0"))
    promote(scene, "replica-0-0", 1)
    scene.handle(msg.Applied(0, 2, 3, 3, ()))
    scene.handle(msg.Applied(0, 2, 4, 4, (), step=0.25))
    scene.handle(gone("replica-0-0"))
    promote(scene, "replica-0-1", 1, epoch=3)
    first, second = scene.logged("promoted")
    assert (first["updates_lost"], first["distance_lost"]) == (2, 1.0)
    assert (second["updates_lost"], second["distance_lost"]) == (1, 0.25)
    assert [(one["first"], one["last"]) for one in scene.logged("lost positions")] == [(2, 3), (2, 4)]


def test_the_first_commit_after_a_promotion_ends_its_time(protected: Open) -> None:
    scene = protected().join("a").announce("a")
    scene.handle(gone("server-0"), at=1.0)
    promote(scene, "replica-0-0", 0)
    scene.handle(msg.Applied(0, 2, 1, 1, ()), at=1.5)
    (record,) = scene.logged("resumed")
    assert (record["role"], record["first_commit_seconds"]) == ("server", 0.5)


def test_commits_that_are_passed_over_do_not_end_its_time(protected: Open) -> None:
    """The second is lost with the server, and of the third a gradient is gone."""
    scene = protected().join("a", "b").announce("a").announce("b").announce("a").announce("b")
    for position in (1, 2):
        scene.handle(msg.Applied(0, 1, position, position, (), step=0.5))
    scene.handle(gone("server-0"), at=1.0)
    promote(scene, "replica-0-0", 1)
    scene.handle(msg.Applied(0, 2, 2, 2, ()), at=1.1)
    scene.handle(msg.Unreachable(0, 2, 3), at=1.2)
    scene.handle(msg.Applied(0, 2, 3, 3, ()), at=1.3)
    assert scene.logged("resumed") == []
    scene.handle(msg.Applied(0, 2, 4, 4, ()), at=1.5)
    (record,) = scene.logged("resumed")
    assert record["first_commit_seconds"] == 0.5


@pytest.mark.parametrize("loss", [gone("server-0"), CopyLost("server-0", "server-0", "silent for 2 s", 2.0)])
def test_the_record_of_a_promotion_names_the_process_that_was_lost(protected: Open, loss: CopyLost) -> None:
    """As it was called when it came; where nothing was said of it, by what its loss was reported with."""
    scene = protected(processes={"server-0": "tcp://a:1 pid 7"}).join("a")
    scene.handle(loss)
    promote(scene, "replica-0-0", 0)
    scene.handle(CopyReady(0, "replica-0-2", "tcp://c:1 pid 9"))
    scene.handle(msg.InSync(0, 2, "replica-0-2", 0))
    scene.handle(gone("replica-0-0"))
    promote(scene, "replica-0-2", 0, epoch=3)
    assert [one["process"] for one in scene.logged("promoted")] == ["tcp://a:1 pid 7", "tcp://replica-0-0"]
    assert {one["process"] for one in scene.logged("copy") if one["copy"] == "replica-0-2"} == {"tcp://c:1 pid 9"}


def test_a_cold_replica_has_no_process_until_it_is_lost(open_scene: Open) -> None:
    scene = open_scene(protection=Protection(cold=True), processes={"server-0": "tcp://a:1 pid 7"}).join("a")
    scene.handle(gone("server-0"))
    promote(scene, "replica-0-0", 0)
    scene.handle(CopyReady(0, "replica-0-2", "the store"))
    scene.handle(msg.InSync(0, 2, "replica-0-2", 0))
    scene.handle(gone("replica-0-0"))
    promote(scene, "replica-0-2", 0, epoch=3)
    scene.handle(CopyReady(0, "replica-0-3", "the store"))
    scene.handle(msg.InSync(0, 3, "replica-0-3", 0))
    scene.handle(gone("replica-0-2"))
    promote(scene, "replica-0-3", 0, epoch=4)
    assert [one["process"] for one in scene.logged("promoted")][1:] == ["tcp://replica-0-0", "tcp://replica-0-2"]


def test_a_cold_replica_is_ordered_to_serve_again_when_it_has_a_process_and_the_log_names_that(
    open_scene: Open,
) -> None:
    """The first order only makes one of it; a loss that nothing is known of but the copy's name is still that one's."""
    scene = open_scene(protection=Protection(cold=True)).join("a")
    scene.handle(gone("server-0"))
    assert scene.sent(msg.Promote) == [msg.Promote(1, 2)]
    scene.handle(CopyAwake(0, "replica-0-0", "tcp://b:1 pid 8"))
    assert (scene.sent(msg.Promote), scene.addressed(msg.Promote)) == ([msg.Promote(1, 2)], ["replica-0-0"])
    assert scene.logged("copy")[-1]["process"] == "tcp://b:1 pid 8"
    promote(scene, "replica-0-0", 0)
    scene.handle(CopyReady(0, "replica-0-2", "the store"))
    scene.handle(msg.InSync(0, 2, "replica-0-2", 0))
    scene.handle(CopyLost("replica-0-0", "replica-0-0", "silent for 2.00 s"))
    assert scene.handle(CopyAwake(0, "replica-0-0", "tcp://b:1 pid 8")) == [], "it is out"
    promote(scene, "replica-0-2", 0, epoch=3)
    assert scene.logged("promoted")[-1]["process"] == "tcp://b:1 pid 8"


def test_word_of_the_lost_server_is_not_believed(protected: Open) -> None:
    scene = protected().join("a").announce("a")
    scene.handle(gone("server-0"))
    for late in (msg.Applied(0, 1, 1, 1, ()), msg.Unreachable(0, 1, 1), msg.InSync(0, 1, "replica-0-0", 1)):
        scene.handle(late)
    assert scene.logged("applied") == scene.logged("lost positions") == []


def test_an_asynchronous_gradient_of_a_lost_version_counts_the_lost_updates_in_its_staleness(protected: Open) -> None:
    scene = protected().join("a", "b").announce("a").announce("a")
    for position in (1, 2):
        scene.handle(msg.Applied(0, 1, position, position, ()))
    scene.handle(gone("server-0"))
    promote(scene, "replica-0-0", 1)
    scene.announce("a", label=2)
    assert scene.logged("commit")[-1]["staleness"] == [1]


def test_a_synchronous_gradient_of_a_lost_version_is_dropped_and_computed_again(protected: Open) -> None:
    scene = protected(BulkSynchronous()).join("a", "b").announce("a").announce("b")
    scene.handle(msg.Applied(0, 1, 1, 1, ()))
    scene.announce("a")
    scene.handle(gone("server-0"))
    promote(scene, "replica-0-0", 0)
    (drop,) = scene.logged("dropped")
    assert (drop["slot"], drop["reason"]) == (0, "lost version")
    assert scene.addressed(msg.Abort) == ["b"]
    assert scene.addressed(msg.Release) == ["a", "b"]
    scene.announce("b", sequence=2, label=1)
    assert [(one["slot"], one["reason"]) for one in scene.logged("dropped")] == [(0, "lost version"), (1, "aborted")]


def test_one_that_computes_on_a_version_that_is_left_is_not_interrupted(protected: Open) -> None:
    scene = protected(BackupWorkers(k=1)).join("a", "b").announce("a").announce("a")
    for position in (1, 2):
        scene.handle(msg.Applied(0, 1, position, position, ()))
    scene.handle(gone("server-0"))
    promote(scene, "replica-0-0", 0)
    assert scene.addressed(msg.Abort) == ["a"]


def test_one_that_was_released_again_is_not_interrupted_by_what_is_given_up_later(protected: Open) -> None:
    """It computes on what the new server shows: that passes over both positions."""
    scene = protected(BulkSynchronous()).join("a", "b").announce("a").announce("b")
    scene.handle(msg.Applied(0, 1, 1, 1, ()))
    scene.announce("a").announce("b")
    scene.handle(gone("server-0"))
    promote(scene, "replica-0-0", 0)
    assert scene.addressed(msg.Abort) == ["a", "b"]
    assert {(one.sequence, one.version) for one in scene.sent(msg.Release)} == {(4, 2)}
    scene.handle(msg.Unreachable(0, 2, 2))
    assert scene.sent(msg.Abort) == []
    for member in "ab":
        scene.handle(msg.Announce(member, 4, msg.Label((2,), (2,)), 4, 0.5, 1.0, 1.0, 0.0, 0.0, 0.0))
    assert scene.logged("commit")[-1]["sequences"] == [4, 4]


class Tolerant(BulkSynchronous):
    """Waits for every live worker, and takes gradients of earlier versions as well."""

    traits = Traits(exact=False)

    def admit(self, gradient: Gradient, view: View) -> Verdict:
        return POOL


def test_a_worker_whose_gradient_waits_for_a_commit_is_not_released_over_a_loss(protected: Open) -> None:
    """It would write over what is still needed."""
    scene = protected(Tolerant(), workers=2).join("a", "b").announce("a").announce("b").show().announce("a")
    scene.handle(gone("server-0"))
    promote(scene, "replica-0-0", 0)
    assert [one["first"] for one in scene.logged("lost positions")] == [1]
    assert scene.sent(msg.Release) == []
    scene.announce("b")
    assert scene.addressed(msg.Release) == ["a", "b"]


def test_a_gradient_of_a_lost_version_that_waits_for_a_commit_counts_the_lost_updates_as_well(protected: Open) -> None:
    scene = protected(Tolerant(), workers=2).join("a", "b").announce("a").announce("b").show().announce("a")
    scene.handle(gone("server-0"))
    promote(scene, "replica-0-0", 0)
    scene.announce("b", label=1)
    assert scene.logged("commit")[-1]["staleness"] == [1, 1]
    assert scene.logged("dropped") == []


@pytest.mark.parametrize("shown", [False, True], ids=["given up", "shown"])
def test_word_of_a_lost_gradient_that_comes_twice_counts_once(protected: Open, shown: bool) -> None:
    """Whoever was interrupted and released again goes on: nothing would release it a third time."""
    scene = protected(BackupWorkers(k=1, busy="abort")).join("a", "b")
    scene.handle(gone("server-0"))
    promote(scene, "replica-0-0", 0)
    scene.announce("a")
    scene.handle(msg.Unreachable(0, 2, 1))
    assert scene.addressed(msg.Release) == ["a", "b"]
    if shown:
        scene.handle(msg.Applied(0, 2, 1, 1, ()))
    scene.handle(msg.Unreachable(0, 2, 1))
    assert scene.addressed(msg.Abort) == []
    assert [one.contributions for one in scene.sent(msg.Commit)] == ([] if shown else [()]), "what is given up is said"
    assert len(scene.logged("lost positions")) == 1


def test_a_gradient_that_is_gone_is_lost_on_its_shard_alone(protected: Open) -> None:
    scene = protected(shards=2, clip_norm=1.0).join("a").announce("a")
    scene.handle(gone("server-1"))
    promote(scene, "replica-1-0", 0, shard=1)
    scene.handle(msg.Gathered(0, 1, 1, (9.0,)))
    scene.handle(msg.Unreachable(1, 2, 1))
    (lost,) = scene.sent(msg.Commit)
    assert (lost.position, lost.epoch, lost.contributions) == (1, 2, ())
    assert scene.addressed(msg.Commit) == ["replica-1-0"]
    assert "server-0" in scene.addressed(msg.Proceed), "the norm of the rest is known, nobody else is waited for"


# --- replicas ---


def test_a_lost_replica_is_excluded_and_another_one_made(protected: Open) -> None:
    scene = protected().join("a")
    scene.handle(gone("replica-0-0"))
    assert scene.sent(msg.Exclude) == [msg.Exclude(1, 1, "replica-0-0")]
    assert scene.asked(Recruit) == [Recruit(0)]
    scene.handle(CopyReady(0, "replica-0-2", "p"))
    assert scene.sent(msg.Include) == [msg.Include(1, 1, "replica-0-2")]
    scene.handle(msg.InSync(0, 1, "replica-0-2", 0))
    assert [one["shards"] for one in scene.logged("protection")] == [[0], []]
    assert [one["event"] for one in scene.logged("copy")] == ["in sync", "lost", "ready", "in sync"]


def test_where_none_can_be_made_it_is_tried_again_when_something_changes(protected: Open) -> None:
    scene = protected().join("a")
    scene.handle(gone("replica-0-0"))
    assert scene.handle(ProcessesChanged()) == [], "one is on its way"
    scene.handle(NoCopy(0, "no process is left for it"))
    assert "no new replica of shard 0" in scene.logged("note")[0]["text"]
    scene.handle(ProcessesChanged())
    assert scene.asked(Recruit) == [Recruit(0)]


def test_an_ending_run_makes_no_new_replicas(protected: Open) -> None:
    scene = protected().join("a").announce("a")
    scene.handle(StopRequested("enough"))
    scene.handle(gone("replica-0-0"))
    assert scene.asked(Recruit) == []


def test_told_to_pause_the_server_waits_until_another_replica_is_in_sync(protected: Open) -> None:
    scene = protected(pause=True).join("a")
    scene.handle(gone("replica-0-0"))
    assert scene.sent(msg.Exclude) == []
    scene.handle(CopyReady(0, "replica-0-2", "p"))
    scene.handle(msg.InSync(0, 1, "replica-0-2", 0))
    assert scene.sent(msg.Exclude) == [msg.Exclude(1, 1, "replica-0-0")]


def test_told_to_pause_a_promoted_server_waits_until_a_replica_takes_the_place_of_the_lost_one(
    protected: Open,
) -> None:
    scene = protected(pause=True, replicas=2).join("a")
    scene.handle(gone("server-0"))
    assert scene.sent(msg.Promote) == [msg.Promote(1, 2, 0, "server-0", ("replica-0-1",))]
    scene.handle(gone("replica-0-0"))
    assert scene.sent(msg.Promote) == [msg.Promote(1, 3, 0, "replica-0-0")]
    promote(scene, "replica-0-1", 0, epoch=3)
    assert scene.sent(msg.Exclude) == []
    scene.handle(CopyReady(0, "replica-0-2", "p"))
    scene.handle(msg.InSync(0, 3, "replica-0-2", 0))
    assert scene.sent(msg.Exclude) == [msg.Exclude(1, 3, "replica-0-0")]


def test_told_to_pause_a_promoted_server_goes_on_at_once_where_another_replica_is_level_with_it(
    protected: Open,
) -> None:
    scene = protected(pause=True, replicas=2).join("a")
    scene.handle(gone("server-0"))
    promote(scene, "replica-0-0", 0)
    assert scene.sent(msg.Exclude) == [msg.Exclude(1, 2, "server-0")]
    assert scene.coordinator.state.shards[0].replaced == []


def test_told_to_go_on_a_promoted_server_waits_for_nobody(protected: Open) -> None:
    scene = protected().join("a")
    scene.handle(gone("server-0"))
    assert scene.sent(msg.Promote) == [msg.Promote(1, 2)]


def test_a_copy_that_comes_twice_or_was_lost_is_not_included(protected: Open) -> None:
    scene = protected().join("a")
    scene.handle(gone("replica-0-0"))
    scene.handle(CopyReady(0, "replica-0-2", "p"))
    assert scene.handle(CopyReady(0, "replica-0-2", "p")) == []
    assert scene.handle(CopyReady(0, "replica-0-0", "p")) == []


def test_a_replica_that_comes_while_one_is_promoted_is_included_by_the_new_server(protected: Open) -> None:
    scene = protected(replicas=2).join("a")
    scene.handle(gone("replica-0-1"))
    scene.handle(gone("server-0"))
    scene.handle(CopyReady(0, "replica-0-3", "p"))
    assert scene.sent(msg.Include) == []
    promote(scene, "replica-0-0", 0)
    assert scene.sent(msg.Include) == [msg.Include(1, 2, "replica-0-3")]
    assert scene.sent(msg.Exclude) == []


@pytest.mark.parametrize(
    ("unit", "step", "said"), [("norm", 0.6, 1), ("norm", 0.4, 0), ("updates", 0.6, 0)], ids=["longer", "within", "not"]
)
def test_a_step_longer_than_the_bound_is_said_once(open_scene: Open, unit: str, step: float, said: int) -> None:
    """From then on every such step waits for the replica, as in a chain: whoever chose the bound would not notice."""
    protection = Protection(bound=1.0, unit=unit, shard_bound=0.5)
    scene = open_scene(shards=4, protection=protection).join("a").announce("a").announce("a")
    for position in (1, 2):
        for shard in range(4):
            scene.handle(msg.Applied(shard, 1, position, position, (), step=step))
    expected = [{"kind": "beyond bound", "at": 0.0, "shard": 0, "version": 1, "step": step, "bound": 0.5}]
    assert scene.logged("beyond bound") == expected * said


def test_where_nobody_is_in_sync_no_step_waits(open_scene: Open) -> None:
    scene = open_scene(protection=Protection(bound=0.5, unit="norm", shard_bound=0.5)).join("a").announce("a")
    scene.handle(gone("replica-0-0"))
    scene.handle(msg.Applied(0, 1, 1, 1, (), step=9.0))
    assert scene.logged("beyond bound") == []


def test_without_protection_nothing_is_made_or_noted(open_scene: Open) -> None:
    scene = open_scene().join("a")
    scene.handle(ProcessesChanged())
    assert scene.asked(Recruit) == scene.logged("protection") == scene.logged("copy") == []
