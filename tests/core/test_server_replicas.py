"""A shard's server and its replicas: what is visible is never further away from one in sync than its account allows."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest

from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Archive, Effect, Gather, Publish, Send, Skip, Stage, Transmit
from psplatform.core.protocol.events import (
    Archived,
    ArchiveFailed,
    Captured,
    GatherDone,
    GatherFailed,
    PullWithdrawn,
    StageDone,
)
from psplatform.core.protocol.messages import Applied, Commit, Contribution
from psplatform.core.protocol.names import COORDINATOR, Role
from psplatform.core.shards.server import Server
from psplatform.replication.accounts import Account

CHAIN = partial(Account, 0.0, 0)
TWO = partial(Account, most_updates=2)


def commit(position: int, *, term: int = 1, epoch: int = 1, **fields: Any) -> Commit:
    return Commit(term, epoch, position, position, (Contribution("m", 0, position),), rate=0.5, **fields)


def lost(position: int, version: int | None = None) -> Commit:
    return Commit(1, 1, position, position if version is None else version, (), 0.0)


def server(account: Any = CHAIN, *replicas: str, **fields: Any) -> Server:
    return Server(0, name="s", make_account=account, replicas=replicas, **fields)


def do(one: Server, event: Any, now: float = 0.0) -> list[Effect]:
    return one.handle(event, now)


def stage(one: Server, position: int, **fields: Any) -> list[Effect]:
    """Bring a position to where it is staged; return what comes of that."""
    do(one, commit(position, **fields))
    do(one, GatherDone(position, ()))
    return do(one, StageDone(position, step=1.0))


def transfers(effects: list[Effect]) -> list[msg.Transfer]:
    return [one.transfer for one in effects if isinstance(one, Transmit)]


def published(effects: list[Effect]) -> list[int]:
    return [one.position for one in effects if isinstance(one, Publish)]


def said(effects: list[Effect], kind: type) -> list[Any]:
    return [one.message for one in effects if isinstance(one, Send) and isinstance(one.message, kind)]


def captured(one: Server, transfer: msg.Transfer, replica: str = "r") -> list[Effect]:
    return do(one, Captured(replica, transfer.number, 80))


def arrive(one: Server, transfer: msg.Transfer, replica: str = "r", position: int | None = None) -> list[Effect]:
    at = transfer.position if position is None else position
    return do(one, msg.Replicated(0, replica, transfer.epoch, transfer.number, at))


# --- what is held back ---


def test_under_chain_a_version_is_visible_only_when_the_replica_has_it() -> None:
    one = server(CHAIN, "r")
    (transfer,) = transfers(stage(one, 1))
    assert published(captured(one, transfer)) == []
    assert do(one, msg.Pull("m", 0, 1, 1)) == []
    effects = arrive(one, transfer)
    assert published(effects) == [1]
    assert [pulled.version for pulled in said(effects, msg.Pulled)] == [1]


def test_within_the_bound_a_version_is_published_at_once_and_then_transmitted() -> None:
    one = server(TWO, "r")
    effects = stage(one, 1)
    assert [type(each) for each in effects if isinstance(each, Publish | Transmit)] == [Publish, Transmit]
    (transfer,) = transfers(effects)
    assert (transfer.kind, transfer.position) == (msg.STATE, 1), "what was gathered is gone once it is published"


def test_beyond_the_bound_a_version_waits_for_the_worst_of_the_replicas() -> None:
    one = server(CHAIN, "a", "b")
    (to_a,) = transfers(stage(one, 1))
    (to_b,) = transfers(captured(one, to_a, "a"))
    captured(one, to_b, "b")
    assert published(arrive(one, to_a, "a")) == []
    assert published(arrive(one, to_b, "b")) == [1]


def test_positions_behind_one_that_is_held_back_wait_for_it() -> None:
    one = server(CHAIN, "r")
    (transfer,) = transfers(stage(one, 1))
    captured(one, transfer)
    assert do(one, commit(2)) == []
    effects = arrive(one, transfer)
    assert [type(each) for each in effects if not isinstance(each, Send)] == [Publish, Gather, Stage]


def test_the_confirmation_says_how_far_away_the_worst_replica_is() -> None:
    one = server(partial(Account, most_distance=10.0), "r")
    stage(one, 1)
    (applied,) = said(stage(one, 2), Applied)
    assert (applied.step, applied.lag) == (1.0, 2)
    assert applied.divergence == pytest.approx(2.0, rel=1e-5)
    (transfer,) = [each for position in (3, 4, 5) for each in transfers(stage(one, position))]
    captured(one, transfer)
    (applied,) = said(stage(one, 6), Applied)
    assert applied.replicated_bytes == 80


def test_without_replicas_nothing_is_held_back_or_sent() -> None:
    one = server()
    effects = stage(one, 1)
    assert published(effects) == [1]
    assert transfers(effects) == []


# --- transfers ---


def test_a_replica_that_lacks_one_update_gets_just_that() -> None:
    one = server(CHAIN, "r")
    (transfer,) = transfers(stage(one, 1))
    assert (transfer.server, transfer.shard, transfer.epoch, transfer.number) == ("s", 0, 1, 1)
    assert (transfer.kind, transfer.position, transfer.version) == (msg.UPDATE, 1, 1)
    assert (transfer.rate, transfer.applied, transfer.cut) == (0.5, ((0, 1),), 0)


def test_a_replica_that_lacks_several_gets_the_whole_state() -> None:
    one = server(partial(Account, most_updates=4), "r")
    assert transfers(stage(one, 1)) == []
    (transfer,) = transfers(stage(one, 2))
    assert (transfer.kind, transfer.position, transfer.rate, transfer.applied) == (msg.STATE, 2, 1.0, ((0, 2),))


def test_nothing_is_computed_while_what_a_transfer_carries_is_captured() -> None:
    one = server(TWO, "r")
    (transfer,) = transfers(stage(one, 1))
    assert do(one, commit(2)) == []
    assert [type(each) for each in captured(one, transfer)] == [Gather, Stage]


def test_one_transfer_is_under_way_to_a_replica_at_a_time() -> None:
    one = server(TWO, "r")
    (transfer,) = transfers(stage(one, 1))
    captured(one, transfer)
    assert transfers(stage(one, 2)) == []
    assert published(stage(one, 3)) == []
    effects = arrive(one, transfer)
    assert published(effects) == [3]
    (following,) = transfers(effects)
    assert (following.number, following.position) == (2, 3)


def test_what_could_not_be_read_is_sent_again() -> None:
    one = server(CHAIN, "r")
    (transfer,) = transfers(stage(one, 1))
    captured(one, transfer)
    (again,) = transfers(arrive(one, transfer, position=-1))
    assert (again.number, again.position) == (2, 1)
    captured(one, again)
    assert published(arrive(one, again)) == [1]


@pytest.mark.parametrize(
    "stray",
    [
        msg.Replicated(0, "r", 1, 7, 1),
        msg.Replicated(0, "stranger", 1, 1, 1),
        msg.Replicated(0, "r", 2, 1, 1),
    ],
    ids=["another transfer", "another replica", "another epoch"],
)
def test_a_confirmation_of_something_else_changes_nothing(stray: msg.Replicated) -> None:
    one = server(CHAIN, "r")
    captured(one, transfers(stage(one, 1))[0])
    assert do(one, stray) == []
    assert one.position == 0


# --- joining and leaving ---


def test_a_new_replica_is_brought_in_sync_and_then_waited_for() -> None:
    one = server(CHAIN)
    stage(one, 1)
    (transfer,) = transfers(do(one, msg.Include(1, 1, "r")))
    assert (transfer.kind, transfer.position) == (msg.STATE, 1)
    captured(one, transfer)
    assert published(stage(one, 2)) == [2], "while it joins nothing waits for it"
    # It stands at 1, and what is visible is at 2 by now.
    effects = arrive(one, transfer)
    assert said(effects, msg.InSync) == []
    (following,) = transfers(effects)
    captured(one, following)
    assert said(arrive(one, following), msg.InSync) == [msg.InSync(0, 1, "r", 2)]
    assert published(stage(one, 3)) == []


def test_including_a_replica_again_says_again_that_it_is_in_sync() -> None:
    one = server(CHAIN, "r")
    assert said(do(one, msg.Include(1, 1, "r")), msg.InSync) == [msg.InSync(0, 1, "r", 0)]


def test_a_replica_that_is_excluded_is_waited_for_no_longer() -> None:
    one = server(CHAIN, "r")
    captured(one, transfers(stage(one, 1))[0])
    assert published(do(one, msg.Exclude(1, 1, "r"))) == [1]
    assert transfers(stage(one, 2)) == []


@pytest.mark.parametrize("order", [msg.Include, msg.Exclude])
def test_orders_about_replicas_are_obeyed_of_the_term_and_for_the_epoch_only(order: type) -> None:
    one = server(CHAIN, "r", term=5, epoch=2)
    for term, epoch in ((4, 2), (5, 1), (5, 3)):
        assert do(one, order(term, epoch, "r")) == [Send(COORDINATOR, msg.Refused(0, 2, 5))]
    assert one.links.in_sync == ("r",)


# --- checkpoints ---


def test_a_cut_is_captured_before_anything_else_is_staged() -> None:
    one = server(TWO, "r")
    do(one, commit(1, cut=7))
    do(one, commit(2))
    do(one, GatherDone(1, ()))
    effects = do(one, StageDone(1, 1.0))
    (transfer,) = transfers(effects)
    assert (transfer.cut, transfer.position) == (7, 1)
    assert not [each for each in effects if isinstance(each, Gather)]
    assert [type(each) for each in captured(one, transfer)] == [Gather, Stage]


def test_a_cut_waits_until_a_replica_can_take_it() -> None:
    one = server(partial(Account, most_updates=4), "r")
    stage(one, 1)
    (busy,) = transfers(stage(one, 2))
    captured(one, busy)
    assert transfers(stage(one, 3, cut=7)) == []
    assert do(one, commit(4)) == []
    (cut,) = transfers(arrive(one, busy))
    assert (cut.cut, cut.position) == (7, 3)
    assert [each.position for each in captured(one, cut) if isinstance(each, Gather)] == [4]


def test_without_replicas_the_server_writes_its_part_itself() -> None:
    one = server()
    effects = stage(one, 1, cut=7)
    assert [each for each in effects if isinstance(each, Archive)] == [Archive(7, 1, 1, ((0, 1),))]
    assert [type(each) for each in do(one, commit(2))] == [Gather, Stage]


def test_a_cut_at_a_position_that_is_lost_here_is_of_the_state_after_it() -> None:
    one = server()
    effects = do(one, Commit(1, 1, 3, 3, (), 0.0, cut=7))
    assert [each for each in effects if isinstance(each, Archive)] == [Archive(7, 3, 3, ())]


def test_the_coordinator_hears_what_became_of_a_part() -> None:
    one = server()
    assert do(one, Archived(7, 3, {"a": 1})) == [Send(COORDINATOR, msg.Written(0, 7, 3, {"a": 1}))]
    assert do(one, ArchiveFailed(7, "disk full")) == [Send(COORDINATOR, msg.NotWritten(0, 7, "disk full"))]


# --- lost positions ---


def test_lost_positions_are_jumped_over_and_the_version_goes_on() -> None:
    one = server(version=2, position=2)
    effects = do(one, lost(5))
    assert effects == [Skip(5, 5), Send(COORDINATOR, Applied(0, 1, 5, 5, ()))]
    assert published(stage(one, 6)) == [6]


def test_what_was_known_of_lost_positions_is_forgotten() -> None:
    one = server()
    do(one, commit(3))
    do(one, commit(5))
    effects = do(one, lost(4))
    assert [type(each) for each in effects if not isinstance(each, Send)] == [Skip, Gather, Stage]
    assert one.applied == {}


def test_what_was_said_first_of_a_position_and_comes_once_more_undoes_nothing() -> None:
    one = server()
    for said in (commit(2), commit(2, again=True), commit(2)):
        do(one, said)
    (gather,) = [each for each in stage(one, 1) if isinstance(each, Gather) and each.position == 2]
    assert gather.careful, "its workers may be writing over the gradients"
    one = server()
    for said in (commit(1), commit(2), lost(2), commit(2)):
        do(one, said)
    do(one, GatherDone(1, ()))
    assert [each.position for each in do(one, StageDone(1)) if isinstance(each, Skip)] == [2], "it was given up"


def test_a_successor_decides_anew_what_becomes_of_a_position() -> None:
    one = server()
    do(one, commit(2, again=True))
    do(one, commit(2, term=2))
    (gather,) = [each for each in stage(one, 1, term=2) if isinstance(each, Gather) and each.position == 2]
    assert not gather.careful


def test_a_gradient_that_is_gone_is_reported_and_its_position_given_up() -> None:
    one = server()
    do(one, commit(1))
    do(one, commit(2))
    assert do(one, GatherFailed(1)) == [Send(COORDINATOR, msg.Unreachable(0, 1, 1))]
    assert do(one, commit(1)) == [], "as long as nothing is decided about it"
    assert do(one, commit(1, again=True)) == [Send(COORDINATOR, msg.Unreachable(0, 1, 1))], "by a successor"
    effects = do(one, lost(1))
    assert [type(each) for each in effects if not isinstance(each, Send)] == [Skip, Gather, Stage]
    assert one.applied == {}
    assert do(one, GatherFailed(1)) == []


def test_a_replica_that_joins_is_sent_the_state_while_it_is_not_decided_what_becomes_of_lost_gradients() -> None:
    one = server()
    do(one, commit(1))
    assert do(one, msg.Include(1, 1, "r")) == []
    unreachable, transmit = do(one, GatherFailed(1))
    assert unreachable == Send(COORDINATOR, msg.Unreachable(0, 1, 1))
    (transfer,) = transfers([transmit])
    assert (transfer.kind, transfer.position) == (msg.STATE, 0)
    assert do(one, lost(1)) == [], "what is captured stays as it is"
    assert [type(each) for each in captured(one, transfer) if not isinstance(each, Send)] == [Skip]


def test_a_replica_is_not_sent_positions_that_are_lost() -> None:
    """It lacks nothing of the state; the next update does not follow what it has, so it gets the whole."""
    one = server(CHAIN, "r")
    do(one, lost(3))
    assert one.version == 3
    (transfer,) = transfers(stage(one, 4))
    assert transfer.kind == msg.STATE


# --- who is in charge ---


@pytest.mark.parametrize("event", [msg.Outdated(0, 2), msg.Pull("m", 0, 1, 0, epoch=2)])
def test_a_server_that_hears_of_a_successor_says_and_does_nothing_any_more(event: Any) -> None:
    one = server(CHAIN, "r")
    assert do(one, event) == []
    assert one.fenced
    for later in (commit(1), msg.Pull("m", 0, 2, 0), msg.StateRequest(9), GatherDone(1, ())):
        assert do(one, later) == []
    assert one.renew(99.0, 0.0) == []


@pytest.mark.parametrize(("epoch", "fenced"), [(2, True), (1, False)])
def test_a_transfer_of_its_successor_fences_a_server_and_one_of_the_server_before_is_answered(
    epoch: int, fenced: bool
) -> None:
    one = server(CHAIN, "r")
    transfer = msg.Transfer("other", 0, epoch, 1, msg.STATE, 3, 3, 1.0, ())
    outdated = [] if fenced else [Send(Role.copy("other"), msg.Outdated(0, 1))]
    assert do(one, transfer) == outdated
    assert one.fenced is fenced


def test_word_of_its_own_epoch_or_an_earlier_one_does_not_fence_a_server() -> None:
    one = server(epoch=2)
    do(one, msg.Outdated(0, 2))
    do(one, msg.Outdated(0, 1))
    assert not one.fenced


def test_pulls_are_answered_only_as_long_as_the_lease_lasts() -> None:
    one = server(entitled_until=5.0)
    assert len(do(one, msg.Pull("a", 0, 1, 0), 5.0)) == 1
    assert do(one, msg.Pull("b", 0, 1, 0), 5.1) == []
    assert said(one.renew(9.0, 6.0), msg.Pulled) == [msg.Pulled(0, 1, 0, 1)]
    one.renew(3.0, 6.1)
    assert one.entitled_until == 9.0, "a lease is never shortened"


def test_a_pull_that_was_withdrawn_is_not_answered_by_the_next_lease() -> None:
    one = server(entitled_until=0.0)
    do(one, msg.Pull("a", 0, 1, 0), 1.0)
    do(one, PullWithdrawn("a", 1), 1.0)
    assert one.renew(9.0, 1.0) == []


# --- handing over ---


def hand_over(one: Server) -> list[msg.HandedOver]:
    return said(do(one, msg.HandOver(1, 1)), msg.HandedOver)


def test_until_when_pulls_are_answered_is_told() -> None:
    """To those that see what the server shows and need not ask for it."""
    one = server(CHAIN, "r")
    assert one.answers_until == math.inf, "without leases"
    one.entitled_until = 5.0
    assert one.answers_until == 5.0
    one.renew(9.0, 6.0)
    assert one.answers_until == 9.0
    do(one, msg.Outdated(0, 2))
    assert one.answers_until == -math.inf


def test_a_server_that_has_handed_over_answers_nothing() -> None:
    """Its successor may show newer versions already."""
    one = server(TWO, "r")
    assert hand_over(one) == [msg.HandedOver(0, 1, "r")]
    assert do(one, msg.Pull("a", 0, 1, 0)) == []
    assert one.renew(9.0, 1.0) == []
    assert one.answers_until == -math.inf


def test_it_answers_again_when_its_heir_is_out_and_hands_over_to_another() -> None:
    one = server(TWO, "r", "q")
    hand_over(one)
    do(one, msg.Pull("a", 0, 1, 0))
    effects = do(one, msg.Exclude(1, 1, "r"))
    assert said(effects, msg.HandedOver) == [msg.HandedOver(0, 1, "q")]
    effects = do(one, msg.Exclude(1, 1, "q"))
    assert said(effects, msg.Pulled) == [msg.Pulled(0, 1, 0, 1)]


def test_it_hands_over_again_to_whoever_asks_again() -> None:
    one = server(TWO, "r")
    hand_over(one)
    assert hand_over(one) == [msg.HandedOver(0, 1, "r")]


def test_a_server_that_is_to_hand_over_brings_a_replica_in_sync_where_none_is() -> None:
    one = server(TWO)
    stage(one, 1)
    assert hand_over(one) == []
    (transfer,) = transfers(do(one, msg.Include(1, 1, "r")))
    assert transfer.position == 1


def test_a_new_coordinator_is_told_every_commit_that_it_may_not_know() -> None:
    one = server()
    stage(one, 1)
    stage(one, 2)
    do(one, commit(3))
    do(one, commit(5))
    do(one, msg.Include(1, 1, "r"))
    (standing,) = said(do(one, msg.StateRequest(2, 1)), msg.ServerState)
    assert standing.replicas == ("r",)
    assert [each.position for each in standing.commits] == [2, 3, 5]
    assert (standing.term, standing.position, standing.serving, standing.epoch) == (2, 2, True, 1)
    assert do(one, commit(4)) == [Send(COORDINATOR, msg.Refused(0, 1, 2))]


def test_a_coordinator_of_a_lower_term_is_told_nothing() -> None:
    assert do(server(term=5), msg.StateRequest(4, 0)) == [Send(COORDINATOR, msg.Refused(0, 1, 5))]


def test_a_server_that_is_promoted_again_says_so_again() -> None:
    one = server(epoch=2, term=3, position=4, version=4)
    stage(one, 5, term=3, epoch=2)
    (promoted,) = said(do(one, msg.Promote(3, 2)), msg.Promoted)
    assert (promoted.epoch, promoted.position, promoted.version) == (2, 4, 4)
    assert do(one, msg.Promote(2, 2)) == [Send(COORDINATOR, msg.Refused(0, 2, 3))]


def test_a_server_without_accounts_cannot_have_replicas() -> None:
    with pytest.raises(RuntimeError, match="nothing was given that accounts for"):
        do(Server(0), msg.Include(1, 1, "r"))


def test_transfers_go_to_the_replica_by_name() -> None:
    (transmit,) = [each for each in stage(server(CHAIN, "r"), 1) if isinstance(each, Transmit)]
    assert Role.copy(transmit.replica) == Role("copy", "r")


@pytest.mark.parametrize("account", [CHAIN, partial(Account, most_updates=1)])
def test_one_that_joins_catches_up_although_commits_come_faster_than_transfers_arrive(account: Any) -> None:
    """Its first transfer arrives too late, so versions wait for the second."""
    one = server(account)
    (first,) = transfers(do(one, msg.Include(1, 1, "r")))
    do(one, Captured("r", first.number, 8))
    for position in (1, 2):
        assert published(stage(one, position)) == [position], "nobody waits before that"
    (second,) = transfers(do(one, msg.Replicated(0, "r", 1, first.number, 0)))
    do(one, Captured("r", second.number, 8))
    held = [position for position in (3, 4) if not published(stage(one, position))]
    assert held
    effects = do(one, msg.Replicated(0, "r", 1, second.number, 2))
    while "r" not in one.links.in_sync:
        (more,) = transfers(effects)
        assert published(effects) == []
        effects = do(one, Captured("r", more.number, 8))
        effects += do(one, msg.Replicated(0, "r", 1, more.number, more.position))
    assert published(effects)[0] == held[0]


def test_one_that_joins_and_is_lost_is_waited_for_no_longer() -> None:
    one = server(CHAIN)
    (first,) = transfers(do(one, msg.Include(1, 1, "r")))
    do(one, Captured("r", first.number, 8))
    stage(one, 1)
    (second,) = transfers(do(one, msg.Replicated(0, "r", 1, first.number, 0)))
    do(one, Captured("r", second.number, 8))
    assert published(stage(one, 2)) == []
    assert published(do(one, msg.Exclude(1, 1, "r"))) == [2]
