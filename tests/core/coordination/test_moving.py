"""A replica that would be better elsewhere is replaced by another, and goes when that one is in sync."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from psplatform.core.plan import Cuts, Protection
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Recruit, Retire
from psplatform.core.protocol.events import CoordinatorLost, CopyLost, CopyMisplaced, CopyReady, NoCopy, StopRequested

Open = Callable[..., Any]

MISPLACED = CopyMisplaced("replica-0-0", "moved away from the host of another copy of shard 0")


def gone(copy: str) -> CopyLost:
    return CopyLost(copy, f"tcp://{copy}", "killed")


@pytest.fixture
def protected(open_scene: Open) -> Open:
    """Open a run with one replica for each shard."""

    def make(*, replicas: int = 1, **fields: Any) -> Any:
        return open_scene(protection=Protection(replicas), **fields)

    return make


def in_sync(scene: Any, copy: str) -> Any:
    scene.handle(CopyReady(0, copy, f"process of {copy}"))
    scene.handle(msg.InSync(0, scene.coordinator.state.shards[0].epoch, copy, 0))
    return scene


def test_another_is_made_first_and_the_shard_stays_protected(protected: Open) -> None:
    scene = protected().join("a")
    scene.handle(MISPLACED)
    assert (scene.asked(Recruit), scene.asked(Retire)) == ([Recruit(0)], [])
    scene.handle(CopyReady(0, "replica-0-1", "p"))
    assert scene.asked(Retire) == []
    scene.handle(msg.InSync(0, 1, "replica-0-1", 0))
    assert scene.asked(Retire) == [Retire("replica-0-0", MISPLACED.reason)]
    assert scene.sent(msg.Exclude) == [msg.Exclude(1, 1, "replica-0-0")]
    assert scene.coordinator.state.shards[0].in_sync == ["replica-0-1"]
    assert [one["shards"] for one in scene.logged("protection")] == [], "there was a replica in sync all the time"
    assert [(one["copy"], one["reason"]) for one in scene.logged("copy") if one["event"] == "moved"] == [
        ("replica-0-0", MISPLACED.reason)
    ]


def test_it_is_asked_for_once(protected: Open) -> None:
    scene = protected().join("a")
    scene.handle(MISPLACED)
    scene.handle(MISPLACED)
    assert scene.asked(Recruit) == []


@pytest.mark.parametrize("stray", ["server-0", "replica-0-7"])
def test_only_a_replica_in_sync_moves(protected: Open, stray: str) -> None:
    scene = protected().join("a")
    assert scene.handle(CopyMisplaced(stray, "far")) == []


def test_one_that_is_lost_meanwhile_is_replaced_by_the_one_that_is_being_made(protected: Open) -> None:
    scene = protected().join("a")
    scene.handle(MISPLACED)
    scene.handle(gone("replica-0-0"))
    assert scene.asked(Recruit) == []
    in_sync(scene, "replica-0-1")
    assert scene.coordinator.state.shards[0].in_sync == ["replica-0-1"]
    assert scene.asked(Retire) == []


def test_one_that_is_promoted_meanwhile_stays(protected: Open) -> None:
    scene = protected().join("a")
    scene.handle(MISPLACED)
    scene.handle(gone("server-0"))
    scene.handle(msg.Promoted(0, "replica-0-0", 2, 0, 0))
    in_sync(scene, "replica-0-1")
    one = scene.coordinator.state.shards[0]
    assert (one.server, one.in_sync) == ("replica-0-0", ["replica-0-1"])


def test_where_none_can_be_made_it_stays(protected: Open) -> None:
    scene = protected().join("a")
    scene.handle(MISPLACED)
    scene.handle(NoCopy(0, "no process"))
    assert scene.coordinator.state.shards[0].in_sync == ["replica-0-0"]
    scene.handle(MISPLACED)
    assert scene.asked(Recruit) == [Recruit(0)], "and is asked for again"


def test_a_coordinator_that_takes_over_meanwhile_lets_the_surplus_go_when_it_is_told(protected: Open) -> None:
    scene = protected().join("a")
    scene.handle(MISPLACED)
    scene.handle(CopyReady(0, "replica-0-1", "p"))
    scene.coordinator.take_over(2, CoordinatorLost("killed"), scene.now)
    scene.handle(msg.ServerState(0, "server-0", 2, 1, True, 0, (), ("replica-0-0",)))
    scene.handle(msg.InSync(0, 1, "replica-0-1", 0))
    assert scene.coordinator.state.shards[0].in_sync == ["replica-0-0", "replica-0-1"]
    scene.handle(MISPLACED)
    assert scene.asked(Retire) == [Retire("replica-0-0", MISPLACED.reason)]
    assert scene.asked(Recruit) == []


def test_one_that_has_yet_to_write_its_part_of_a_checkpoint_stays_until_it_has(protected: Open) -> None:
    scene = in_sync(protected(cuts=Cuts(every_updates=1)).join("a"), "replica-0-1")
    scene.announce("a")
    assert scene.coordinator.checkpoints.awaits(0)
    scene.handle(MISPLACED)
    assert scene.asked(Retire) == []


def test_a_run_that_ends_moves_nothing(protected: Open) -> None:
    scene = protected().join("a").announce("a")
    scene.handle(StopRequested("enough"))
    assert scene.coordinator.state.stopping
    scene.handle(MISPLACED)
    assert scene.asked(Recruit) == []
