"""Checkpoints: where they are cut, when they are complete, and what makes one be given up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from psplatform.core.plan import Cuts, Protection
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import CancelTimer, Discard, Finish, Seal, SetTimer
from psplatform.core.protocol.events import CheckpointFailed, CheckpointSealed, CopyLost, StopRequested, TimerFired
from psplatform.policies.psp import PartiallySynchronous

Open = Callable[..., Any]
FIRST = 100_002
"""The first that is asked for; the one before is that of a run's first commit."""


def cuts_of(scene: Any) -> list[tuple[int, int]]:
    """Return shard and number of the cuts in the last answer."""
    return [
        (int(name.rsplit("-", 1)[1]), one.cut)
        for name, one in zip(scene.addressed(msg.Commit), scene.sent(msg.Commit), strict=True)
        if one.cut
    ]


def write(scene: Any, *shards: int, number: int = FIRST, position: int = 2) -> Any:
    for shard in shards:
        scene.handle(msg.Written(shard, number, position, {"shard": shard}))
    return scene


def began(scene: Any) -> Any:
    """Let a run make its first commit, whose checkpoint becomes complete, and forget that."""
    scene.join("a").announce("a")
    write(scene, *range(scene.plan.shards), number=FIRST - 1, position=1).handle(CheckpointSealed(FIRST - 1, 80))
    scene.records.clear()
    return scene


@pytest.fixture
def cut(open_scene: Open) -> Any:
    """Return a run of two shards that has just cut its second checkpoint, at position 2."""
    return began(open_scene(shards=2, cuts=Cuts(every_updates=2))).announce("a")


def outcomes(scene: Any) -> list[tuple[int, str]]:
    return [(one["number"], one["event"]) for one in scene.logged("checkpoint")]


# --- where ---


def test_every_so_many_updates_all_shards_are_cut_at_one_position(open_scene: Open) -> None:
    scene = open_scene(shards=2, cuts=Cuts(every_updates=3)).join("a")
    found = {}
    for position in range(1, 10):
        if cuts_of(scene.announce("a")):
            found[position] = cuts_of(scene)
            number = found[position][0][1]
            write(scene, 0, 1, number=number, position=position).handle(CheckpointSealed(number, 80))
    expected = {1: FIRST - 1, 3: FIRST, 6: FIRST + 1, 9: FIRST + 2}
    assert found == {at: [(0, number), (1, number)] for at, number in expected.items()}


def test_one_is_under_way_at_a_time(cut: Any) -> None:
    for _ in range(5):
        assert cuts_of(cut.announce("a")) == []
    write(cut, 0, 1).handle(CheckpointSealed(FIRST, 80))
    assert cuts_of(cut.announce("a")) == [(0, FIRST + 1), (1, FIRST + 1)]


def test_after_so_many_seconds_the_next_commit_is_the_cut(open_scene: Open) -> None:
    scene = open_scene(cuts=Cuts(every_seconds=5.0))
    assert SetTimer("checkpoint due", 5.0) in scene.effects
    assert cuts_of(began(scene).announce("a")) == []
    scene.fire("checkpoint due", at=5.0)
    assert cuts_of(scene.announce("a")) == [(0, FIRST)]
    write(scene, 0)
    scene.handle(CheckpointSealed(FIRST, 80), at=7.0)
    assert SetTimer("checkpoint due", 12.0) in scene.effects
    assert cuts_of(scene.announce("a")) == []


def test_without_word_nothing_is_cut(open_scene: Open) -> None:
    scene = open_scene().join("a")
    assert [cut for _ in range(9) for cut in cuts_of(scene.announce("a"))] == []


def test_numbers_begin_with_the_term(cut: Any) -> None:
    cut.coordinator.state.term = 3
    write(cut, 0, 1).handle(CheckpointSealed(FIRST, 80))
    assert cuts_of(cut.announce("a").announce("a"))[0] == (0, 300_003)


def test_where_blocks_are_decided_about_one_by_one_each_is_cut_at_its_own_next_commit(open_scene: Open) -> None:
    scene = open_scene(PartiallySynchronous(push=1), shards=2, cuts=Cuts(every_seconds=1.0)).join("a")
    scene.announce("a", shards=(1,))
    assert cuts_of(scene) == [(1, FIRST - 1)]
    write(scene, 1, number=FIRST - 1, position=1)
    scene.announce("a", shards=(0,))
    assert cuts_of(scene) == [(0, FIRST - 1)]
    write(scene, 0, number=FIRST - 1, position=1)
    (seal,) = scene.asked(Seal)
    assert seal.state["positions"] == [1, 1]


# --- complete ---


def test_with_the_last_part_the_manifest_is_written(cut: Any) -> None:
    assert write(cut, 1).asked(Seal) == []
    (seal,) = write(cut, 0).asked(Seal)
    assert (seal.number, seal.version, seal.parts) == (FIRST, 2, ({"shard": 0}, {"shard": 1}))
    assert (seal.state["version"], seal.state["positions"], seal.state["samples_applied"]) == (2, [2, 2], 8)


def test_the_coordinator_s_part_is_of_the_cut_however_far_it_has_gone_on(cut: Any) -> None:
    (seal,) = write(cut.announce("a").announce("a"), 0, 1).asked(Seal)
    assert (seal.version, seal.state["version"]) == (2, 2)


def test_a_part_that_comes_again_seals_nothing_again(cut: Any) -> None:
    write(cut, 0, 1)
    assert write(cut, 0).asked(Seal) == []


@pytest.mark.parametrize(
    "stray", [msg.Written(1, FIRST + 1, 2, {}), msg.Written(1, FIRST, 3, {})], ids=["another number", "another place"]
)
def test_a_part_of_something_else_does_not_count(cut: Any, stray: msg.Written) -> None:
    write(cut, 0).handle(stray)
    assert cut.asked(Seal) == []


def test_a_complete_one_is_logged_with_its_size_and_duration(cut: Any) -> None:
    write(cut, 0, 1).handle(CheckpointSealed(FIRST, 80), at=1.5)
    (record,) = cut.logged("checkpoint")
    assert (record["event"], record["bytes"], record["version"], record["seconds"]) == ("complete", 80, 2, 1.5)
    assert CancelTimer("checkpoint overdue") in cut.effects


# --- given up ---


@pytest.mark.parametrize(
    "event",
    [msg.NotWritten(1, FIRST, "disk full"), CheckpointFailed(FIRST, "disk full")],
    ids=["a part", "the manifest"],
)
def test_one_that_cannot_be_written_is_given_up_and_the_run_goes_on(cut: Any, event: Any) -> None:
    cut.handle(event)
    assert outcomes(cut) == [(FIRST, "failed")]
    assert cut.logged("checkpoint")[0]["reason"] == "disk full"
    assert cuts_of(cut.announce("a").announce("a")) == [(0, FIRST + 1), (1, FIRST + 1)]


def test_one_that_takes_too_long_says_who_is_missing(cut: Any) -> None:
    assert SetTimer("checkpoint overdue", 600.0) in cut.effects
    write(cut, 0).fire("checkpoint overdue", at=600.0)
    assert outcomes(cut) == [(FIRST, "abandoned")]
    assert "shards [1] have not written" in cut.logged("checkpoint")[0]["reason"]


@pytest.mark.parametrize(("written", "given_up"), [((), True), ((0,), False), ((1,), True)])
def test_a_lost_copy_takes_an_unwritten_part_with_it(
    open_scene: Open, written: tuple[int, ...], *, given_up: bool
) -> None:
    scene = began(open_scene(shards=2, protection=Protection(1), cuts=Cuts(every_updates=2))).announce("a")
    write(scene, *written).handle(CopyLost("replica-0-0", "there", "killed"))
    assert outcomes(scene) == ([(FIRST, "abandoned")] if given_up else [])


def test_a_cut_at_a_position_that_is_lost_on_a_shard_is_cut_there_all_the_same(open_scene: Open) -> None:
    scene = began(open_scene(shards=2, protection=Protection(1), cuts=Cuts(every_updates=2)))
    scene.handle(CopyLost("server-1", "there", "killed"))
    scene.handle(msg.Promoted(1, "replica-1-0", 2, 0, 0))
    scene.announce("a")
    scene.handle(msg.Unreachable(1, 2, 2))
    (lost,) = scene.sent(msg.Commit)
    assert (lost.contributions, lost.position, lost.cut) == ((), 2, FIRST)


def test_what_comes_of_one_that_was_given_up_changes_nothing(cut: Any) -> None:
    cut.handle(msg.NotWritten(1, FIRST, "disk full"))
    for late in (CheckpointSealed(FIRST, 80), CheckpointFailed(FIRST, "x"), msg.NotWritten(0, FIRST, "x")):
        cut.handle(late)
    assert write(cut, 0, 1).asked(Seal) == []
    assert outcomes(cut) == [(FIRST, "failed")]


# --- removed ---


def discarded(scene: Any) -> list[int]:
    return [one.number for one in scene.asked(Discard)]


GIVE_UP = {
    "a part": lambda scene: scene.handle(msg.NotWritten(1, FIRST, "disk full")),
    "the manifest": lambda scene: write(scene, 0, 1).handle(CheckpointFailed(FIRST, "disk full")),
    "too late": lambda scene: scene.fire("checkpoint overdue", at=600.0),
}


@pytest.mark.parametrize("give_up", GIVE_UP.values(), ids=GIVE_UP)
def test_what_one_that_is_given_up_left_is_removed_at_once(cut: Any, give_up: Callable[[Any], Any]) -> None:
    """The next one may never be sealed, on a full disk, and the log needs the room."""
    give_up(cut)
    assert discarded(cut) == [FIRST]


def test_a_lost_copy_s_checkpoint_is_removed(open_scene: Open) -> None:
    scene = began(open_scene(protection=Protection(1), cuts=Cuts(every_updates=2))).announce("a")
    scene.handle(CopyLost("replica-0-0", "there", "killed"))
    assert discarded(scene) == [FIRST]


@pytest.mark.parametrize(
    "straggler",
    [msg.Written(0, FIRST, 2, {}), msg.NotWritten(0, FIRST, "disk full")],
    ids=["a part", "half a part"],
)
def test_what_a_copy_wrote_too_late_is_removed_as_well(cut: Any, straggler: Any) -> None:
    """Also while the next one is under way, which is left alone."""
    cut.handle(msg.NotWritten(1, FIRST, "disk full"))
    cut.handle(straggler)
    assert discarded(cut) == [FIRST]
    assert cuts_of(cut.announce("a").announce("a")) == [(0, FIRST + 1), (1, FIRST + 1)]
    cut.handle(straggler)
    assert discarded(cut) == [FIRST]


def test_a_manifest_that_fails_after_its_checkpoint_was_given_up_leaves_nothing(cut: Any) -> None:
    write(cut, 0, 1).fire("checkpoint overdue", at=600.0)
    cut.handle(CheckpointFailed(FIRST, "disk full"))
    assert discarded(cut) == [FIRST]


def test_what_is_under_way_or_complete_is_not_removed(cut: Any) -> None:
    steps = [
        msg.Written(0, FIRST, 2, {}),
        msg.Written(1, FIRST, 3, {}),
        msg.Written(1, FIRST, 2, {}),
        CheckpointSealed(FIRST, 80),
    ]
    for step in steps:
        cut.handle(step)
        assert discarded(cut) == []


def test_what_a_lost_coordinator_cut_is_left_to_the_next_seal(cut: Any) -> None:
    """It may only have been stopped while it wrote the manifest."""
    state, checkpoints = cut.coordinator.state, cut.coordinator.checkpoints
    state.term = 2
    checkpoints.on_taken_over()
    assert not checkpoints.under_way
    assert Discard(FIRST) not in state.take_effects()
    cut.handle(msg.Written(0, FIRST, 2, {}))
    assert discarded(cut) == []


def test_the_next_is_so_many_updates_after_the_one_that_was_restored(open_scene: Open) -> None:
    scene = open_scene(cuts=Cuts(every_updates=3))
    scene.coordinator.state.commit_logs[0].version = scene.coordinator.state.commit_logs[0].position = 7
    scene.coordinator.checkpoints.begin()
    scene.join("a")
    found = [bool(cuts_of(scene.announce("a", label=7))) for _ in range(3)]
    assert found == [False, False, True]


# --- the last one ---


def ended(scene: Any) -> Any:
    """Let the run be stopped, and its commits become visible."""
    scene.handle(StopRequested("enough"))
    return scene.show()


def test_a_run_that_ends_in_good_order_is_cut_after_its_last_commit(open_scene: Open) -> None:
    scene = began(open_scene(shards=2, cuts=Cuts(every_updates=100))).announce("a").announce("a")
    ended(scene)
    orders = [one.message for one in scene.all_sent if isinstance(one.message, msg.Cut)]
    assert orders == [msg.Cut(1, 1, FIRST, 3)] * 2
    (seal,) = write(scene, 0, 1, position=3).asked(Seal)
    assert (seal.version, seal.state["version"], seal.state["positions"]) == (3, 3, [3, 3])


def test_what_was_begun_after_the_last_commit_is_not_in_it(open_scene: Open) -> None:
    """So that a run goes on as if it had not been stopped."""
    scene = began(open_scene(cuts=Cuts(every_updates=100))).announce("a")
    before = scene.coordinator.checkpoints._last.to_plain()
    sequence = scene.coordinator.state.roster.by_name.get("a").sequence
    ended(scene)
    (seal,) = write(scene, 0, position=2).asked(Seal)
    assert seal.state == before
    assert dict(seal.state["roster"]["sequences"])[0] == sequence - 1, "the one that it computes is given up"


def test_the_end_waits_for_the_last_checkpoint(open_scene: Open) -> None:
    scene = began(open_scene(cuts=Cuts(every_updates=100))).announce("a")
    ended(scene).end()
    assert scene.asked(Finish) == []
    write(scene, 0, position=2).handle(CheckpointSealed(FIRST, 80))
    assert [one.outcome for one in scene.asked(Finish)] == ["stopped"]


@pytest.mark.parametrize(
    "event", [msg.NotWritten(0, FIRST, "disk full"), CheckpointFailed(FIRST, "disk full"), TimerFired("finish")]
)
def test_a_run_ends_as_it_would_where_its_last_checkpoint_cannot_be_written(open_scene: Open, event: Any) -> None:
    scene = began(open_scene(cuts=Cuts(every_updates=100))).announce("a")
    ended(scene).end()
    scene.handle(event)
    (finish,) = scene.asked(Finish)
    assert (finish.outcome, finish.failure) == ("stopped", None)
    assert discarded(scene) == [FIRST]


def test_a_last_commit_that_is_a_cut_needs_no_other(cut: Any) -> None:
    ended(cut).end()
    assert not [one for one in cut.all_sent if isinstance(one.message, msg.Cut)]
    write(cut, 0, 1).handle(CheckpointSealed(FIRST, 80))
    assert len(cut.asked(Finish)) == 1


def test_one_that_is_under_way_when_the_run_ends_gives_way_to_the_last(cut: Any) -> None:
    cut.announce("a")
    ended(cut)
    assert outcomes(cut) == [(FIRST, "abandoned")]
    assert {one.message.number for one in cut.all_sent if isinstance(one.message, msg.Cut)} == {FIRST + 1}


def test_a_run_that_has_made_nothing_new_is_not_cut(open_scene: Open) -> None:
    scene = open_scene(cuts=Cuts(every_updates=100)).join("a")
    ended(scene).end()
    assert not [one for one in scene.all_sent if isinstance(one.message, msg.Cut)]
    assert len(scene.asked(Finish)) == 1
