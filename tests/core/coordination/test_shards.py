"""What the coordinator knows of a shard's copies, and versions that were lost with one of them."""

from __future__ import annotations

import pytest

from psplatform.core.coordination.shards.state import ShardState, rebased
from psplatform.core.protocol.messages import Applied, Label


def shard(number: int = 0, *losses: tuple[int, int]) -> ShardState:
    one = ShardState.first(number, 1)
    one.losses = list(losses)
    return one


def test_a_run_begins_with_a_server_and_its_replicas() -> None:
    one = ShardState.first(3, 2)
    assert one.copies == ["server-3", "replica-3-0", "replica-3-1"]
    assert (one.epoch, one.promoting) == (1, False)


@pytest.mark.parametrize(
    ("version", "epoch", "counts_as"),
    [(7, 1, 4), (3, 1, 3), (4, 1, 4), (7, 2, 7), (9, 2, 8), (9, 3, 9), (9, 1, 4)],
)
def test_a_label_of_a_lost_version_counts_as_the_last_one_kept(version: int, epoch: int, counts_as: int) -> None:
    """Epoch 2 began after version 4, epoch 3 after version 8."""
    assert shard(0, (2, 4), (3, 8)).rebased(version, epoch) == counts_as


def test_only_the_shards_that_lost_something_count() -> None:
    label = Label((7, 7), (1, 1))
    assert rebased(label, [shard(0), shard(1, (2, 4))]) == Label((7, 4), (1, 1))
    assert rebased(label, [shard(0), shard(1)]) is label
    assert rebased(Label((3, 3), (1, 1)), [shard(0, (2, 4)), shard(1)]) == Label((3, 3), (1, 1))


def test_the_way_of_lost_steps_is_known_only_where_all_of_them_are() -> None:
    one = shard()
    for position, step in ((2, 0.5), (3, 0.25)):
        one.note(Applied(0, 1, position, position, (), step=step, divergence=1.5, lag=2, replicated_bytes=80))
    assert one.way((2, 3)) == 0.75
    assert one.way((1, 2, 3)) is None
    assert one.way(()) == 0.0
    assert (one.visible, one.divergence, one.lag, one.replicated_bytes) == (3, 1.5, 2, 80)


def test_an_old_confirmation_does_not_turn_what_is_visible_back() -> None:
    one = shard()
    for position in (5, 3):
        one.note(Applied(0, 1, position, position, ()))
    assert one.visible == 5


def test_only_so_many_steps_are_kept() -> None:
    one = shard()
    for position in range(1, 2000):
        one.note(Applied(0, 1, position, position, (), step=1.0))
    assert len(one.steps) == 1024
    assert one.way(range(1999 - 1023, 2000)) == 1024.0
