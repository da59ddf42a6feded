"""A shard's replica: always at an exact position of its server's order, and ready to become the server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Archive, Load, Send
from psplatform.core.protocol.events import Archived, ArchiveFailed, Loaded
from psplatform.core.protocol.names import COORDINATOR, Role
from psplatform.core.shards.replica import Replica
from psplatform.core.shards.shown import REMEMBERED

TRANSFER = msg.Transfer("s", 0, 1, 1, msg.STATE, 3, 4, 1.0, ((0, 2), (1, 3)))


def replica(**fields: Any) -> Replica:
    return Replica(0, "r", **fields)


def acknowledged(number: int, position: int, epoch: int = 1) -> Send:
    return Send(Role.copy("s"), msg.Replicated(0, "r", epoch, number, position))


def take(one: Replica, transfer: msg.Transfer = TRANSFER, *, whole: bool = True) -> list[Any]:
    one.handle(transfer, 0.0)
    return one.handle(Loaded(transfer.number, whole), 0.0)


def past(*positions: int) -> tuple[msg.Past, ...]:
    return tuple(msg.Past(msg.Commit(1, 1, at, at, (), 1.0), ()) for at in positions)


def test_a_transfer_is_loaded_and_then_acknowledged() -> None:
    one = replica()
    assert one.handle(TRANSFER, 0.0) == [Load(TRANSFER)]
    assert (one.loading, one.position) == (True, 0)
    assert one.handle(Loaded(1), 0.0) == [acknowledged(1, 3)]
    assert (one.loading, one.position, one.version, one.applied) == (False, 3, 4, {0: 2, 1: 3})


def test_a_repeated_transfer_is_acknowledged_again_and_not_loaded_twice() -> None:
    one = replica()
    take(one)
    assert one.handle(TRANSFER, 0.0) == [acknowledged(1, 3)]


def test_a_transfer_that_was_overtaken_changes_nothing() -> None:
    one = replica()
    take(one, replace(TRANSFER, number=2, position=5))
    assert one.handle(TRANSFER, 0.0) == []
    assert one.position == 5


def test_one_transfer_is_loaded_at_a_time() -> None:
    one = replica()
    one.handle(TRANSFER, 0.0)
    assert one.handle(replace(TRANSFER, number=2), 0.0) == []
    assert one.handle(Loaded(2), 0.0) == []


def test_what_the_next_server_sends_meanwhile_is_loaded_after_it() -> None:
    """It is answered then: its server sends it once, and waits."""
    one = replica()
    one.handle(TRANSFER, 0.0)
    following = replace(TRANSFER, server="t", epoch=2, position=2)
    assert one.handle(following, 0.0) == []
    assert one.handle(TRANSFER, 0.0) == [Send(Role.copy("s"), msg.Outdated(0, 2))]
    assert one.handle(Loaded(1), 0.0) == [acknowledged(1, 3), Load(following)]
    assert one.handle(Loaded(1), 0.0) == [Send(Role.copy("t"), msg.Replicated(0, "r", 2, 1, 2))]
    assert (one.loading, one.position, one.epoch) == (False, 2, 2)


def test_a_promotion_goes_before_what_the_next_server_sends() -> None:
    one = replica()
    one.handle(TRANSFER, 0.0)
    one.handle(replace(TRANSFER, server="t", epoch=2), 0.0)
    one.handle(msg.Promote(1, 3), 0.0)
    assert one.handle(Loaded(1), 0.0) == [acknowledged(1, 3), Send(Role.copy("t"), msg.Outdated(0, 2))]
    assert not one.loading


def test_commits_that_its_state_does_not_contain_any_more_are_forgotten() -> None:
    """It may be asked for them when it is promoted: what only a lost server had shown is not known to it."""
    one = replica()
    take(one, replace(TRANSFER, position=7, past=past(4, 5, 6, 7)))
    take(one, replace(TRANSFER, server="t", epoch=2, position=5, past=past(5)))
    assert sorted(one.past) == [4, 5]


def test_the_last_commits_that_its_state_contains_are_remembered_in_their_order() -> None:
    """Whatever another server tells of again, from however far back."""
    one = replica()
    for at in range(1, REMEMBERED + 3):
        take(one, replace(TRANSFER, number=at, position=at, past=past(at)))
    assert list(one.past) == list(range(3, REMEMBERED + 3))
    take(one, replace(TRANSFER, epoch=2, position=5, past=past(4, 5)))
    take(one, replace(TRANSFER, epoch=3, position=6, past=past(1, 2, 3, 4, 5, 6)))
    assert list(one.past) == [1, 2, 3, 4, 5, 6]
    take(one, replace(TRANSFER, epoch=3, number=2, position=REMEMBERED + 4, past=past(REMEMBERED + 4)))
    assert list(one.past) == [5, 6, REMEMBERED + 4]
    take(one, replace(TRANSFER, epoch=4, position=4))
    assert list(one.past) == []


def test_what_could_not_be_read_leaves_it_where_it_was() -> None:
    one = replica(position=2)
    assert take(one, whole=False) == [acknowledged(1, -1)]
    assert one.position == 2
    assert take(one, replace(TRANSFER, number=2)) == [acknowledged(2, 3)]


def test_a_server_of_a_lower_epoch_is_told_that_it_was_replaced() -> None:
    one = replica(epoch=3)
    assert one.handle(TRANSFER, 0.0) == [Send(Role.copy("s"), msg.Outdated(0, 3))]
    assert not one.loading


def test_a_new_server_counts_its_transfers_anew() -> None:
    one = replica()
    take(one, replace(TRANSFER, number=9))
    assert take(one, replace(TRANSFER, epoch=2, position=7)) == [acknowledged(1, 7, epoch=2)]
    assert one.epoch == 2


def test_a_cut_is_archived_from_exactly_that_state() -> None:
    effects = take(replica(), replace(TRANSFER, cut=7))
    assert effects == [Archive(7, 3, 4, TRANSFER.applied), acknowledged(1, 3)]


def test_the_coordinator_hears_what_became_of_a_part() -> None:
    one = replica()
    assert one.handle(Archived(7, 3, {}), 0.0) == [Send(COORDINATOR, msg.Written(0, 7, 3, {}))]
    assert one.handle(ArchiveFailed(7, "full"), 0.0) == [Send(COORDINATOR, msg.NotWritten(0, 7, "full"))]


# --- promotion ---


def test_a_promotion_is_kept_for_the_copy_that_this_is_of() -> None:
    one = replica()
    order = msg.Promote(2, 2)
    assert one.handle(order, 0.0) == []
    assert (one.promotion, one.term) == (order, 2)
    assert one.handle(TRANSFER, 0.0) == [Send(Role.copy("s"), msg.Outdated(0, 1))], "its server has been replaced"


@pytest.mark.parametrize("order", [msg.Promote(1, 5), msg.Promote(2, 3), msg.Promote(3, 2)])
def test_a_promotion_of_a_lower_term_or_to_an_old_epoch_is_refused(order: msg.Promote) -> None:
    one = replica(term=2, epoch=3)
    assert one.handle(order, 0.0) == [Send(COORDINATOR, msg.Refused(0, 3, 2))]
    assert one.promotion is None


def test_a_new_coordinator_is_told_where_it_stands() -> None:
    one = replica(term=2, position=4)
    assert one.handle(msg.StateRequest(3, 9), 0.0) == [Send(COORDINATOR, msg.ServerState(0, "r", 3, 1, False, 4, ()))]
    assert one.handle(msg.StateRequest(2, 9), 0.0) == [Send(COORDINATOR, msg.Refused(0, 1, 3))]


@pytest.mark.parametrize("message", [msg.Pull("m", 0, 1, 0), msg.Include(1, 1, "x"), msg.Proceed(1, 1, 0.5)])
def test_what_is_said_to_a_server_is_not_for_a_replica(message: Any) -> None:
    assert replica().handle(message, 0.0) == []
