"""Taking over block by block: members run ahead, and say of all their gradients what only a lost coordinator knew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.messages import BatchAssignment, Commit, Contribution
from psplatform.policies.psp import PartiallySynchronous

Open = Callable[..., Any]


def standing(shard: int = 0, *commits: Commit) -> msg.ServerState:
    """Return what the server of a shard knows that shows the last of those commits."""
    return msg.ServerState(shard, f"server-{shard}", 2, 1, True, len(commits), commits)


def commit(position: int, member: str, slot: int, sequence: int) -> Commit:
    return Commit(1, 1, position, position, (Contribution(member, slot, sequence),), 0.5)


def pushed(member: str, sequence: int, counter: int, *, versions: tuple[int, ...] = (0,)) -> msg.Announce:
    """Return what a member says of a gradient that it computed in the iteration of that count, on older blocks."""
    label = msg.Label(versions, (1,) * len(versions))
    shards = tuple(range(len(versions)))
    return msg.Announce(member, sequence, label, 4, 0.5, 1.0, 1.0, 0.0, 0.0, 0.0, shards, counter)


def test_a_gradient_has_the_count_that_its_member_says(open_scene: Open) -> None:
    """Not that of its oldest block: it would be merged with another of its own member."""
    scene = open_scene(PartiallySynchronous(push=1), workers=2).join("a", "b").take_over()
    scene.handle(standing())
    scene.handle(msg.WorkerState(2, "a", 2, 1, None, (pushed("a", 1, 0), pushed("a", 2, 1))))
    assert [one["sequences"] for one in scene.logged("commit")] == [[1], [2]]


def test_a_count_is_not_that_of_newer_blocks_either(open_scene: Open) -> None:
    """A pull may be answered with what became visible long after its iteration."""
    scene = open_scene(PartiallySynchronous(push=2), workers=2).join("a", "b").take_over()
    scene.handle(standing())
    late = (pushed("a", 1, 0, versions=(3,)), pushed("a", 2, 1, versions=(3,)))
    scene.handle(msg.WorkerState(2, "a", 3, 2, None, late))
    scene.handle(msg.WorkerState(2, "b", 2, 1, None, (pushed("b", 1, 0), pushed("b", 2, 1))))
    assert [(one["slots"], one["sequences"]) for one in scene.logged("commit")] == [([0, 1], [1, 1]), ([0, 1], [2, 2])]


def test_what_a_member_says_first_of_all_comes_first(open_scene: Open) -> None:
    """What it says of a later gradient may arrive before what it said to the lost coordinator only."""
    scene = open_scene(PartiallySynchronous(push=2), workers=2).join("a", "b").take_over()
    scene.handle(standing())
    for member in "ab":
        scene.handle(pushed(member, 2, 1))
    assert scene.logged("commit") == []
    for member in "ab":
        scene.handle(msg.WorkerState(2, member, 2, 1, None, (pushed(member, 1, 0), pushed(member, 2, 1))))
    assert [one["sequences"] for one in scene.logged("commit")] == [[1, 1], [2, 2]]


def test_what_one_block_has_applied_is_not_over_for_another(open_scene: Open) -> None:
    """Commits of the first block are adopted by what its member said; the second block hears the same from then on."""
    scene = open_scene(PartiallySynchronous(push=1), shards=2, workers=2).join("a", "b").take_over()
    said = (pushed("a", 1, 0, versions=(0, 0)), pushed("a", 2, 1, versions=(1, 1)))
    scene.handle(msg.WorkerState(2, "a", 2, 1, None, said))
    scene.handle(standing(0, commit(1, "a", 0, 1), commit(2, "a", 0, 2)))
    scene.handle(standing(1))
    commits = [(one["block"], one["sequences"]) for one in scene.logged("commit")]
    assert commits == [(0, [1]), (0, [2]), (1, [1]), (1, [2])]


def test_what_a_member_has_pushed_is_not_forgotten(open_scene: Open) -> None:
    """There a block may have gone on since a member was released: a newer version is no other release."""
    scene = open_scene(PartiallySynchronous(push=2), shards=2, workers=2).join("a", "b").announce("a", shards=(0,))
    scene.take_over().handle(standing(0))
    scene.handle(standing(1))
    member = scene.coordinator.state.roster.by_name.get("a")
    pushed = set(member.announced)
    scene.handle(msg.WorkerState(2, "a", 1, 1, None))
    assert pushed
    assert set(member.announced) == pushed


def test_both_gradients_of_one_batch_count(open_scene: Open) -> None:
    """Its worker may have run ahead, and would not compute again what the others wait for."""
    scene = open_scene(PartiallySynchronous(push=2), shards=2, workers=2, deal_epochs=True).join("a").take_over()
    for shard in range(2):
        scene.handle(standing(shard))
    scene.join("b")
    label = msg.Label((0, 0), (1, 1))
    scene.handle(
        msg.Announce("a", 1, label, 4, 0.5, 1.0, 1.0, 0.0, 0.0, 0.0, (0, 1), 0, assignment=BatchAssignment(0, 1))
    )
    assert scene.logged("dropped") == []
    assert scene.coordinator.state.pooled == 2
