"""A shard's server: applies each gradient at most once, in the coordinator's order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from psplatform.core.protocol.effects import Effect, Gather, Publish, Send, Stage
from psplatform.core.protocol.events import GatherDone, StageDone
from psplatform.core.protocol.messages import (
    Applied,
    Commit,
    Contribution,
    Exclude,
    Gathered,
    Proceed,
    Refused,
    StateRequest,
)
from psplatform.core.protocol.names import COORDINATOR
from psplatform.core.shards.server import Server


def commit(position: int, *sequences: int, term: int = 1, epoch: int = 1, **fields: Any) -> Commit:
    """Commit gradient `sequence` of slot 0, 1, ..., by default number `position` of slot 0."""
    contributions = tuple(Contribution(f"m{slot}", slot, one) for slot, one in enumerate(sequences or (position,)))
    return Commit(term, epoch, position, position, contributions, rate=0.5, **fields)


def messages(effects: list[Effect]) -> list[Any]:
    return [one.message for one in effects if isinstance(one, Send)]


def work(effects: list[Effect]) -> list[Effect]:
    return [one for one in effects if isinstance(one, Gather | Stage | Publish)]


def do(server: Server, event: Any) -> list[Effect]:
    return server.handle(event, 0.0)


def apply(server: Server, *positions: int) -> None:
    for position in positions:
        do(server, commit(position))
        do(server, GatherDone(position, ()))
        do(server, StageDone(position))


# --- order ---


def test_a_commit_is_gathered_staged_published_and_confirmed() -> None:
    server = Server(3)
    assert do(server, commit(1, 4, 7)) == [
        Gather(1, (Contribution("m0", 0, 4), Contribution("m1", 1, 7)), norms=False),
        Stage(1, 1.0, 0.5),
    ]
    assert do(server, GatherDone(1, ())) == []
    assert do(server, StageDone(1)) == [Publish(1, 1), Send(COORDINATOR, Applied(3, 1, 1, 1, ()))]
    assert (server.position, server.version) == (1, 1)


def test_commits_are_applied_in_their_order_whatever_order_they_arrive_in() -> None:
    server = Server(0)
    assert do(server, commit(3)) == []
    assert do(server, commit(2)) == []
    assert [one.position for one in work(do(server, commit(1)))] == [1, 1]
    for position in (1, 2):
        do(server, GatherDone(position, ()))
        following = work(do(server, StageDone(position)))
        assert following[1] == Gather(position + 1, (Contribution("m0", 0, position + 1),), norms=False)


def test_one_position_is_in_hand_at_a_time() -> None:
    server = Server(0)
    do(server, commit(1))
    assert do(server, commit(2)) == []


@pytest.mark.parametrize("stray", [GatherDone(2, ()), StageDone(2), GatherDone(0, ()), StageDone(0)])
@pytest.mark.parametrize("clip", [True, False])
def test_reports_of_a_position_that_is_not_in_hand_change_nothing(stray: Any, clip: bool) -> None:
    server = Server(0)
    assert do(server, stray) == []
    do(server, commit(1, clip=clip))
    assert do(server, stray) == []
    assert server.position == 0


def test_norms_are_gathered_where_they_are_asked_for() -> None:
    (gather, _) = do(Server(0), commit(1, norms=True))
    assert gather == Gather(1, (Contribution("m0", 0, 1),), norms=True)


# --- duplicates ---


@pytest.mark.parametrize("progress", ["pending", "gathering"])
def test_a_repeated_commit_is_not_taken_twice(progress: str) -> None:
    server = Server(0)
    do(server, commit(1))
    repeated = commit(2) if progress == "pending" else commit(1)
    do(server, commit(2))
    assert do(server, repeated) == []
    do(server, GatherDone(1, ()))
    assert [type(one) for one in work(do(server, StageDone(1)))] == [Publish, Gather, Stage]
    do(server, GatherDone(2, ()))
    assert [type(one) for one in work(do(server, StageDone(2)))] == [Publish]


def test_a_commit_that_is_visible_is_confirmed_again_and_not_applied_again() -> None:
    server = Server(0)
    apply(server, 1, 2)
    assert do(server, commit(1)) == [Send(COORDINATOR, Applied(0, 1, 1, 1, ()))]
    assert do(server, commit(2)) == [Send(COORDINATOR, Applied(0, 1, 2, 2, ()))]
    assert server.version == 2


def test_a_repeated_confirmation_has_the_norms_of_the_first() -> None:
    """The repetition may overtake it, and a norm without some blocks would be wrong."""
    server = Server(0)
    for position, norms in ((1, (1.0, 2.0)), (2, (3.0,))):
        do(server, commit(position, norms=True))
        do(server, GatherDone(position, norms))
        (_, confirmation) = do(server, StageDone(position))
        assert confirmation == Send(COORDINATOR, Applied(0, 1, position, position, norms))
    assert do(server, commit(1, norms=True)) == [Send(COORDINATOR, Applied(0, 1, 1, 1, (1.0, 2.0)))]


def test_a_commit_of_long_ago_is_confirmed_without_its_norms_and_little_is_kept() -> None:
    server = Server(0)
    for position in range(1, 301):
        do(server, Proceed(1, position, 0.5))
        do(server, commit(position, clip=True))
        do(server, GatherDone(position, (1.0,)))
        do(server, StageDone(position))
    assert do(server, commit(1, clip=True)) == [Send(COORDINATOR, Applied(0, 1, 1, 1, ()))]
    assert do(server, commit(300, clip=True)) == [Send(COORDINATOR, Applied(0, 1, 300, 300, (1.0,)))]
    assert len(server._shown) == 256
    assert server._applying._factors == server._applying._pending == {}


def test_a_gradient_that_was_applied_does_not_enter_another_commit() -> None:
    server = Server(0)
    apply(server, 1)
    (gather, _) = do(server, commit(2, 1, 5))
    assert gather == Gather(2, (Contribution("m1", 1, 5),), norms=False)


def test_the_dedupe_table_holds_the_last_sequence_applied_per_slot() -> None:
    server = Server(0)
    do(server, commit(1, 4, 7))
    assert server.applied == {}
    do(server, GatherDone(1, ()))
    do(server, StageDone(1))
    apply(server, 2)  # an old sequence of slot 0
    assert server.applied == {0: 4, 1: 7}


# --- terms and epochs ---


def test_a_lower_term_is_refused_and_changes_nothing() -> None:
    server = Server(2, term=5)
    assert do(server, commit(1, term=4)) == [Send(COORDINATOR, Refused(2, 1, 5))]
    do(server, commit(1, term=5, clip=True))
    do(server, GatherDone(1, (4.0,)))
    assert do(server, Proceed(4, 1, 0.5)) == []
    assert do(server, Proceed(5, 1, 0.25)) == [Stage(1, 0.25, 0.5)]


def test_a_commit_for_another_epoch_is_refused() -> None:
    server = Server(0, epoch=2)
    assert do(server, commit(1, epoch=1)) == [Send(COORDINATOR, Refused(0, 2, 0))]


@pytest.mark.parametrize("first", [commit(1, term=7), Proceed(7, 1, 0.5)])
def test_a_higher_term_fences_the_lower_ones(first: Any) -> None:
    server = Server(0)
    do(server, first)
    assert do(server, commit(2, term=6)) == [Send(COORDINATOR, Refused(0, 1, 7))]


def test_a_pending_commit_of_a_lower_term_is_replaced() -> None:
    server = Server(0)
    do(server, commit(2, 8, term=1))
    do(server, commit(2, 9, term=2))
    (gather, _) = do(server, commit(1, 7, term=2))
    assert gather.position == 1
    do(server, GatherDone(1, ()))
    gather = next(one for one in do(server, StageDone(1)) if isinstance(one, Gather))
    assert gather.contributions == (Contribution("m0", 0, 9),)


def test_what_a_coordinator_has_ordered_that_is_gone_is_not_applied_beside_what_its_successor_decides() -> None:
    """The successor sends again what it adopts of that; the rest it decides anew."""
    server = Server(0)
    do(server, commit(3, 9, term=1))
    do(server, StateRequest(2))
    for position in (1, 2):
        do(server, commit(position, term=2))
        do(server, GatherDone(position, ()))
        effects = do(server, StageDone(position))
    assert work(effects) == [Publish(2, 2)]
    (gather, _) = do(server, commit(3, 4, term=2))
    assert gather.contributions == (Contribution("m0", 0, 4),)


def test_nor_is_it_where_another_order_of_the_successor_came_first() -> None:
    server = Server(0, term=1)
    do(server, commit(3, 9, term=1))
    do(server, Exclude(2, 1, "replica"))
    do(server, commit(4, 10, term=2))
    do(server, StateRequest(2))
    assert sorted(server._applying._pending) == [4]


# --- clipping ---

CLIPPED = commit(1, clip=True)


def test_under_clipping_the_step_waits_for_the_factor() -> None:
    server = Server(1)
    assert do(server, CLIPPED) == [Gather(1, CLIPPED.contributions, norms=True)]
    assert do(server, GatherDone(1, (4.0,))) == [Send(COORDINATOR, Gathered(1, 1, 1, (4.0,)))]
    assert do(server, Proceed(1, 1, 0.25)) == [Stage(1, 0.25, 0.5)]
    assert messages(do(server, StageDone(1))) == [Applied(1, 1, 1, 1, (4.0,))]


@pytest.mark.parametrize("early", ["before the commit", "before the gradient is gathered"])
def test_a_factor_that_comes_early_is_kept_and_used_once(early: str) -> None:
    server = Server(0)
    order = [Proceed(1, 1, 0.25), CLIPPED] if early == "before the commit" else [CLIPPED, Proceed(1, 1, 0.25)]
    steps = [one for event in [*order, GatherDone(1, (4.0,))] for one in do(server, event)]
    assert steps == [Gather(1, CLIPPED.contributions, norms=True), Stage(1, 0.25, 0.5)]


def test_a_repeated_factor_makes_no_second_step() -> None:
    server = Server(0)
    do(server, CLIPPED)
    do(server, GatherDone(1, (4.0,)))
    do(server, Proceed(1, 1, 0.25))
    for repeated in (Proceed(1, 1, 0.25), GatherDone(1, (4.0,)), CLIPPED):
        assert do(server, repeated) == []
    do(server, StageDone(1))
    assert do(server, Proceed(1, 1, 0.25)) == []
    assert server._applying._factors == {}


def test_the_factor_of_a_later_commit_does_not_step_the_one_in_hand() -> None:
    server = Server(0)
    do(server, CLIPPED)
    do(server, GatherDone(1, (4.0,)))
    assert do(server, Proceed(1, 2, 0.5)) == []
    assert do(server, Proceed(1, 1, 0.25)) == [Stage(1, 0.25, 0.5)]


def test_repeated_norms_change_nothing() -> None:
    server = Server(0)
    do(server, CLIPPED)
    do(server, GatherDone(1, (4.0,)))
    assert do(server, GatherDone(1, (9.0,))) == []


def test_a_commit_repeated_while_it_waits_for_its_factor_reports_its_norms_again() -> None:
    """A coordinator that took over learns of them only so."""
    server = Server(0)
    do(server, CLIPPED)
    assert do(server, CLIPPED) == []
    do(server, GatherDone(1, (4.0,)))
    assert do(server, replace(CLIPPED, term=2)) == [Send(COORDINATOR, Gathered(0, 1, 1, (4.0,)))]
