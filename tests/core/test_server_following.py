"""Replicas that take gradients from the workers: what their server tells them, and when it sends them anything."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Effect, Gather, Load, Publish, Send, Stage, Transmit
from psplatform.core.protocol.events import Captured, GatherDone, Loaded, StageDone
from psplatform.core.protocol.messages import Applied, Commit, Contribution
from psplatform.core.shards.replica import Replica, ShardCopy
from psplatform.core.shards.server import Server
from psplatform.replication.accounts import Account

CHAIN = partial(Account, 0.0, 0)
ONE, TWO, FOUR = (partial(Account, most_updates=most) for most in (1, 2, 4))


def gradient(sequence: int, slot: int = 0) -> Contribution:
    return Contribution(f"m{slot}", slot, sequence)


def commit(position: int, *contributions: Contribution, **fields: Any) -> Commit:
    return Commit(1, 1, position, position, contributions or (gradient(position),), rate=0.5, **fields)


def server(account: Any = CHAIN, *replicas: str, **fields: Any) -> Server:
    return Server(0, name="s", make_account=account, replicas=replicas or ("r",), from_workers=True, **fields)


def do(one: Any, event: Any) -> list[Effect]:
    return one.handle(event, 0.0)  # type: ignore[no-any-return]


def stage(one: Server, position: int, *contributions: Contribution, **fields: Any) -> list[Effect]:
    """Bring a position to where it is staged; return what comes of that."""
    do(one, commit(position, *contributions, **fields))
    do(one, GatherDone(position, ()))
    return do(one, StageDone(position, step=1.0))


def transfers(effects: list[Effect]) -> list[msg.Transfer]:
    return [one.transfer for one in effects if isinstance(one, Transmit)]


def published(effects: list[Effect]) -> list[int]:
    return [one.position for one in effects if isinstance(one, Publish)]


def arrive(one: Server, transfer: msg.Transfer, replica: str = "r", position: int | None = None) -> list[Effect]:
    at = transfer.position if position is None else position
    return do(one, msg.Replicated(0, replica, transfer.epoch, transfer.number, at))


def captured(one: Server, transfer: msg.Transfer, replica: str = "r", size_bytes: int = 80) -> list[Effect]:
    return do(one, Captured(replica, transfer.number, size_bytes))


def test_a_staged_commit_is_told_by_the_names_of_its_gradients() -> None:
    one = server()
    (transfer,) = transfers(stage(one, 1, gradient(1), gradient(1, slot=1)))
    assert (transfer.kind, transfer.position, transfer.version) == (msg.GRADIENTS, 1, 1)
    assert transfer.contributions == (gradient(1), gradient(1, slot=1))
    assert (transfer.rate, transfer.factor, transfer.applied) == (0.5, 1.0, ((0, 1), (1, 1)))
    assert [past.commit.position for past in transfer.past] == [1]


def test_under_chain_the_version_waits_for_the_replica_and_nothing_for_a_capture() -> None:
    one = server()
    (transfer,) = transfers(stage(one, 1))
    assert one.under_way == {"staged and held back", "transfer in flight"}
    assert published(arrive(one, transfer)) == [1]
    assert [type(each) for each in do(one, commit(2))] == [Gather, Stage]


def test_within_the_bound_the_gradients_are_named_before_the_version_is_shown() -> None:
    """Then workers go on, and write over them."""
    effects = stage(server(FOUR), 1)
    assert [type(each) for each in effects if isinstance(each, Publish | Transmit)] == [Transmit, Publish]


def test_only_gradients_that_the_server_applied_itself_are_named() -> None:
    one = server()
    arrive(one, transfers(stage(one, 1, gradient(1)))[0])
    (transfer,) = transfers(stage(one, 2, gradient(1), gradient(1, slot=1)))
    assert transfer.contributions == (gradient(1, slot=1),)


def test_a_replica_is_told_by_what_the_mean_was_clipped() -> None:
    one = server()
    do(one, commit(1, clip=True))
    do(one, GatherDone(1, (4.0,)))
    do(one, msg.Proceed(1, 1, 0.25))
    (transfer,) = transfers(do(one, StageDone(1, step=1.0)))
    assert (transfer.kind, transfer.factor) == (msg.GRADIENTS, 0.25)
    assert transfer.past[-1].squared_norms == (4.0,)


def test_what_could_not_be_had_from_the_workers_is_sent_by_the_server() -> None:
    """The mean, which is still there while the version is held back; and its gradients are not named again."""
    one = server()
    (named,) = transfers(stage(one, 1))
    (sent,) = transfers(arrive(one, named, position=-1))
    assert (sent.kind, sent.position, sent.contributions, sent.factor) == (msg.UPDATE, 1, (), 1.0)
    captured(one, sent)
    assert published(arrive(one, sent)) == [1]
    assert transfers(stage(one, 2))[0].kind == msg.GRADIENTS


def test_a_replica_that_missed_a_step_gets_the_state_only_when_the_bound_needs_it() -> None:
    one = server(TWO)
    (named,) = transfers(stage(one, 1))
    assert transfers(arrive(one, named, position=-1)) == []
    assert transfers(stage(one, 2)) == []
    effects = stage(one, 3)
    (state,) = transfers(effects)
    assert (state.kind, state.position, published(effects)) == (msg.STATE, 3, [])
    captured(one, state)
    assert published(arrive(one, state)) == [3]
    assert [each.kind for each in transfers(stage(one, 4))] == [msg.GRADIENTS], "level again, it follows again"


def test_a_step_that_is_staged_while_the_replica_takes_another_is_named_when_it_has_that() -> None:
    one = server(ONE)
    (first,) = transfers(stage(one, 1))
    assert stage(one, 2) == [], "held back, and the replica is busy"
    effects = arrive(one, first)
    (second,) = transfers(effects)
    assert (second.kind, second.position) == (msg.GRADIENTS, 2)
    assert published(effects) == [2]


def test_within_the_bound_a_replica_takes_what_was_shown_meanwhile_step_by_step() -> None:
    one = server(FOUR)
    (first,) = transfers(stage(one, 1, gradient(1), gradient(1, slot=1)))
    assert transfers(stage(one, 2, gradient(2, slot=1)) + stage(one, 3)) == []
    (second,) = transfers(arrive(one, first))
    assert (second.kind, second.position, second.version) == (msg.GRADIENTS, 2, 2)
    assert (second.contributions, second.applied) == ((gradient(2, slot=1),), ((1, 2),)), "of the table what is new"
    assert [past.commit.position for past in second.past] == [2]
    (third,) = transfers(arrive(one, second))
    assert third.position == 3
    assert transfers(arrive(one, third, position=-1)) == [], (
        "what was shown is sent by nobody before the bound needs it"
    )


def test_a_replica_that_is_too_far_behind_is_brought_level_at_once() -> None:
    one = server(ONE)
    (first,) = transfers(stage(one, 1))
    arrive(one, first, position=-1)
    (state,) = transfers(stage(one, 2))
    assert (state.kind, state.position) == (msg.STATE, 2)


def test_a_step_that_is_long_over_cannot_be_followed() -> None:
    one = server(partial(Account, most_updates=40))
    (first,) = transfers(stage(one, 1))
    for position in range(2, 20):
        stage(one, position)
    assert transfers(arrive(one, first)) == []


def test_each_replica_is_told_by_itself() -> None:
    one = server(CHAIN, "a", "b")
    to_a, to_b = transfers(stage(one, 1))
    assert published(arrive(one, to_a, "a")) == []
    (again,) = transfers(arrive(one, to_b, "b", position=-1))
    assert again.kind == msg.UPDATE
    captured(one, again, "b")
    assert published(arrive(one, again, "b")) == [1]


def test_a_joining_replica_gets_the_state_and_follows_once_it_is_in_sync() -> None:
    one = Server(0, name="s", make_account=CHAIN, from_workers=True)
    stage(one, 1)
    (state,) = transfers(do(one, msg.Include(1, 1, "r")))
    assert state.kind == msg.STATE
    captured(one, state)
    arrive(one, state)
    assert [each.kind for each in transfers(stage(one, 2))] == [msg.GRADIENTS]


def test_a_cut_and_a_hand_over_are_sent_by_the_server() -> None:
    one = server()
    (cut,) = transfers(stage(one, 1, cut=7))
    assert (cut.kind, cut.cut) == (msg.UPDATE, 7)
    captured(one, cut)
    arrive(one, cut)
    do(one, commit(2))
    do(one, msg.HandOver(1, 1))
    (over,) = transfers(do(one, StageDone(2, 1.0)))
    assert over.kind == msg.UPDATE


def test_gradients_count_as_replicated_bytes_when_they_have_arrived() -> None:
    one = server()
    (named,) = transfers(stage(one, 1))
    captured(one, named, size_bytes=30)
    (applied,) = [each.message for each in arrive(one, named) if isinstance(each, Send)]
    assert isinstance(applied, Applied)
    assert applied.replicated_bytes == 30
    (named,) = transfers(stage(one, 2))
    captured(one, named, size_bytes=30)
    (sent,) = transfers(arrive(one, named, position=-1))
    captured(one, sent, size_bytes=5)
    (applied,) = [each.message for each in arrive(one, sent) if isinstance(each, Send)]
    assert applied.replicated_bytes == 35


def test_a_capture_of_one_replica_is_not_over_because_another_follows() -> None:
    one = server(CHAIN, "a")
    do(one, msg.Include(1, 1, "b"))
    stage(one, 1)
    named, state = one.links.get("a"), one.links.get("b")
    assert named is not None
    assert state is not None
    do(one, Captured("a", named.flying, 30))
    assert "capturing" in one.under_way
    do(one, Captured("b", state.flying, 80))
    assert "capturing" not in one.under_way


# --- the replica ---


@pytest.mark.parametrize("whole", [True, False])
def test_a_replica_says_whether_it_has_taken_the_step(*, whole: bool) -> None:
    one = Replica(0, "r", position=2, version=2, applied={0: 2, 1: 1})
    named = msg.Transfer("s", 0, 1, 1, msg.GRADIENTS, 3, 3, 0.5, ((0, 3),), contributions=(gradient(3),))
    assert do(one, named) == [Load(named)]
    (answer,) = [each.message for each in do(one, Loaded(1, whole=whole)) if isinstance(each, Send)]
    assert answer.position == (3 if whole else -1)
    assert (one.position, one.applied) == ((3, {0: 3, 1: 1}) if whole else (2, {0: 2, 1: 1}))


def test_a_copy_that_is_promoted_lets_its_replicas_follow_the_workers() -> None:
    copy = ShardCopy(Replica(0, "r", position=2, version=2), CHAIN, from_workers=True)
    copy.handle(msg.Promote(1, 2), 0.0)
    assert isinstance(copy.part, Server)
    assert copy.part.from_workers
