"""One copy of a shard: a replica that becomes the server, and leases that run out on its own clock."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Effect, Send, Serve, Transmit
from psplatform.core.protocol.events import Captured, GatherDone, Loaded, StageDone, Tick
from psplatform.core.protocol.messages import Beat, Lease, Promote, Promoted, Replicated
from psplatform.core.protocol.names import COORDINATOR, Role
from psplatform.core.shards.replica import Replica, ShardCopy
from psplatform.core.shards.server import Server
from psplatform.replication.accounts import Account

CHAIN = partial(Account, 0.0, 0)


def waiting(**fields: Any) -> ShardCopy:
    return ShardCopy(Replica(0, "r", **fields), CHAIN)


def promoted(effects: list[Effect]) -> list[tuple[int, str, int, int, int]]:
    """Return shard, copy, epoch, position and version of what the coordinator is told."""
    said = [one.message for one in effects if isinstance(one, Send) and one.to == COORDINATOR]
    told = [one for one in said if isinstance(one, Promoted)]
    return [(one.shard, one.copy, one.epoch, one.position, one.version) for one in told]


def test_a_replica_that_is_promoted_serves_from_where_it_stands() -> None:
    one = waiting(position=3, version=4)
    effects = one.handle(Promote(2, 5), 0.0)
    assert effects[0] == Serve(5, 4)
    assert promoted(effects) == [(0, "r", 5, 3, 4)]
    assert one.serving
    assert isinstance(one.part, Server)
    assert (one.part.term, one.part.position, one.part.version) == (2, 3, 4)
    assert one.part.links.in_sync == ()


def level(effects: list[Effect], successor: str) -> Replicated:
    """Return what a successor answers to the state that it is sent."""
    (sent,) = [one.transfer for one in effects if isinstance(one, Transmit) and one.replica == successor]
    return Replicated(0, successor, sent.epoch, sent.number, sent.position)


def test_one_that_has_heirs_serves_when_they_stand_where_it_does() -> None:
    """Before, any of them may be promoted in its place, so it shows nothing and takes no step."""
    one = waiting(position=3, version=4)
    first = one.handle(Promote(2, 5, 3, successors=("a", "b")), 0.0)
    assert [type(each) for each in first] == [Transmit], "one transfer is captured after the other"
    assert one.handle(msg.Pull("m", 0, 7, 0, 5), 0.0) == []
    (standing,) = [each.message for each in one.handle(msg.StateRequest(2, 3), 0.0) if isinstance(each, Send)]
    assert not standing.serving
    second = one.handle(Captured("a", 1, 100), 0.0)
    one.handle(Captured("b", 2, 100), 0.0)
    assert one.handle(level(first, "a"), 0.0) == []
    done = one.handle(level(second, "b"), 0.0)
    assert done[0] == Serve(5, 4)
    assert promoted(done) == [(0, "r", 5, 3, 4)]
    assert [each.message for each in done if isinstance(each, Send)][-1] == msg.Pulled(0, 7, 4, 5, 2)
    assert isinstance(one.part, Server)
    assert one.part.links.in_sync == ("a", "b")


def test_told_again_it_waits_for_those_heirs_only_that_are_left() -> None:
    one = waiting(position=3, version=4)
    first = one.handle(Promote(2, 5, 3, successors=("a", "b")), 0.0)
    one.handle(Captured("a", 1, 100), 0.0)
    one.handle(Captured("b", 2, 100), 0.0)
    one.handle(level(first, "a"), 0.0)
    assert promoted(one.handle(Promote(2, 5, 3, successors=("a",)), 0.0)) == [(0, "r", 5, 3, 4)]
    assert isinstance(one.part, Server)
    assert one.part.links.replicas == ("a",)
    one.handle(msg.Include(2, 5, "c"), 0.0)
    assert promoted(one.handle(Promote(2, 5, 3), 0.0)) == [(0, "r", 5, 3, 4)]
    assert one.part.links.replicas == ("a", "c"), "what is said once it serves is only confirmed"


def test_an_order_that_comes_late_brings_no_lost_heir_back() -> None:
    one = waiting(position=3, version=4)
    one.handle(Promote(2, 5, 3, successors=("a", "b")), 0.0)
    one.handle(Captured("a", 1, 100), 0.0)
    one.handle(Captured("b", 2, 100), 0.0)
    one.handle(Promote(2, 5, 3, successors=("b",)), 0.0)
    one.handle(Promote(2, 5, 3, successors=("a", "b")), 0.0)
    assert promoted(one.handle(Replicated(0, "b", 5, 2, 3), 0.0)) == [(0, "r", 5, 3, 4)]


def test_nor_does_it_while_a_transfer_is_loaded() -> None:
    one = waiting()
    one.handle(msg.Transfer("s", 0, 1, 1, msg.STATE, 3, 4, 1.0, ()), 0.0)
    one.handle(Promote(1, 2), 0.0)
    one.handle(Promote(1, 2, successors=("a",)), 0.0)
    assert promoted(one.handle(Loaded(1), 0.0)) == [(0, "r", 2, 3, 4)]


def test_the_order_of_a_new_coordinator_counts_whomever_it_names() -> None:
    one = waiting()
    one.handle(msg.Transfer("s", 0, 1, 1, msg.STATE, 3, 4, 1.0, ()), 0.0)
    one.handle(Promote(1, 2), 0.0)
    one.handle(Promote(2, 2, successors=("a",)), 0.0)
    first = one.handle(Loaded(1), 0.0)
    assert promoted(first) == []
    one.handle(Captured("a", 1, 100), 0.0)
    assert promoted(one.handle(level(first, "a"), 0.0)) == [(0, "r", 2, 3, 4)]


def test_told_that_a_copy_is_missing_it_shows_nothing_until_another_has_its_place() -> None:
    one = waiting(position=3, version=3)
    one.handle(Promote(1, 2, missing="s"), 0.0)
    assert isinstance(one.part, Server)
    one.handle(msg.Commit(1, 2, 4, 4, (msg.Contribution("m", 0, 1),), 1.0), 0.0)
    one.handle(GatherDone(4, ()), 0.0)
    one.handle(StageDone(4, 0.5), 0.0)
    assert (one.part.position, one.part.newest) == (3, 4)
    one.handle(msg.Exclude(1, 2, "s"), 0.0)
    assert one.part.position == 4


def test_one_that_is_promoted_answers_nothing_before_it_stands_where_the_one_before_it_may_have_stood() -> None:
    """Whoever was answered by that one would be given less than it has."""
    one = waiting(position=3, version=3)
    one.handle(Promote(1, 2, position=5), 0.0)
    assert one.handle(msg.Pull("m", 0, 1, 3, 2), 0.0) == []
    one.handle(msg.Commit(1, 2, 4, 4, (msg.Contribution("m", 0, 1),), 1.0), 0.0)
    one.handle(GatherDone(4, ()), 0.0)
    (said,) = one.handle(StageDone(4, 0.5), 0.0)[1:]
    assert isinstance(said.message, msg.Applied)
    answers = one.handle(msg.Commit(1, 2, 5, 5, (), 0.0), 0.0)
    assert Send(Role.member("m"), msg.Pulled(0, 1, 5, 2, 1)) in answers


def test_promoted_during_a_takeover_it_answers_nothing_before_it_is_known_what_was_decided() -> None:
    one = waiting(position=3, version=3)
    assert promoted(one.handle(Promote(2, 5, 3, settled=False), 0.0)) == [(0, "r", 5, 3, 3)], "it waits for that"
    assert one.handle(msg.Pull("m", 0, 7, 0, 5), 0.0) == []
    assert pulled(one.handle(Promote(2, 5, 4), 0.0)) == [], "what was decided is not shown yet"
    assert pulled(one.handle(Promote(2, 5, 3, settled=False), 0.0)) == [], "overtaken by the other"
    assert pulled(one.handle(msg.Commit(2, 5, 4, 4, (), 0.0), 0.0)) == [msg.Pulled(0, 7, 4, 5, 2)]


def test_what_waits_for_that_is_answered_as_soon_as_it_is_known() -> None:
    one = waiting(position=3, version=3)
    one.handle(Promote(2, 5, 1, settled=False), 0.0)
    one.handle(msg.Pull("m", 0, 7, 0, 5), 0.0)
    assert pulled(one.handle(Promote(2, 5, 3), 0.0)) == [msg.Pulled(0, 7, 3, 5, 2)]
    one.handle(Promote(3, 5, 9, settled=False), 0.0)  # of a coordinator that takes over: it serves already
    assert pulled(one.handle(msg.Pull("m", 0, 8, 0, 5), 0.0)) == [msg.Pulled(0, 8, 3, 5, 2)]


def test_told_so_before_it_serves_it_keeps_to_it() -> None:
    one = waiting(position=3, version=3)
    first = one.handle(Promote(2, 5, 3, successors=("a",), settled=False), 0.0)
    one.handle(Promote(2, 5, 3, successors=("a",)), 0.0)
    one.handle(Captured("a", 1, 100), 0.0)
    assert promoted(one.handle(level(first, "a"), 0.0)) == [(0, "r", 5, 3, 3)]
    assert pulled(one.handle(msg.Pull("m", 0, 7, 0, 5), 0.0)) == [msg.Pulled(0, 7, 3, 5, 2)]


def pulled(effects: list[Effect]) -> list[msg.Pulled]:
    return [one.message for one in effects if isinstance(one, Send) and isinstance(one.message, msg.Pulled)]


def test_a_promotion_waits_until_a_transfer_is_loaded() -> None:
    one = waiting()
    one.handle(msg.Transfer("s", 0, 1, 1, msg.STATE, 3, 4, 1.0, ((0, 2),)), 0.0)
    assert one.handle(Promote(1, 2), 0.0) == []
    assert not one.serving
    effects = one.handle(Loaded(1), 0.0)
    assert promoted(effects) == [(0, "r", 2, 3, 4)]
    assert isinstance(one.part, Server)
    assert one.part.applied == {0: 2}


def test_a_server_that_is_fenced_does_not_serve() -> None:
    one = ShardCopy(Server(0, name="s"), CHAIN)
    assert one.serving
    one.handle(msg.Outdated(0, 2), 0.0)
    assert not one.serving


@pytest.mark.parametrize("part", [Server(0, name="x"), Replica(0, "x")], ids=["server", "replica"])
def test_every_copy_beats(part: Server | Replica) -> None:
    assert ShardCopy(part, CHAIN).handle(Tick(), 1.5) == [Send(COORDINATOR, Beat("x", 1.5))]


def test_a_lease_is_counted_from_when_it_was_asked_for_with_a_margin() -> None:
    server = Server(0, name="s", entitled_until=1.0)
    one = ShardCopy(server, CHAIN)
    one.handle(Lease(1, sent_at=10.0, seconds=2.0), 11.0)
    assert server.entitled_until == pytest.approx(11.8)


def test_a_lease_lets_go_the_answers_that_were_held_back_for_it() -> None:
    one = ShardCopy(Server(0, name="s", entitled_until=1.0), CHAIN)
    assert one.handle(msg.Pull("m", 0, 1, 0), 2.0) == []
    (answer,) = one.handle(Lease(1, 2.0, 2.0), 2.5)
    assert isinstance(answer, Send)
    assert isinstance(answer.message, msg.Pulled)


@pytest.mark.parametrize("lease", [None, Lease(1, 1.0, 2.0)], ids=["waits for its first", "of a replica"])
def test_being_promoted_entitles_to_no_answer_where_leases_are_held(lease: Lease | None) -> None:
    """It may have been stopped since, and another promoted in its place."""
    one = waiting()
    one.handle(Tick(), 1.0)
    if lease is not None:
        one.handle(lease, 1.5)
    one.handle(Promote(1, 2), 2.0)
    assert one.serving
    assert one.handle(msg.Pull("m", 0, 1, 0), 9.0) == []
    (answer,) = one.handle(Lease(1, 9.0, 2.0), 9.5)
    assert isinstance(answer, Send)
    assert isinstance(answer.message, msg.Pulled)


def test_a_lease_of_a_lower_term_is_none() -> None:
    server = Server(0, name="s", term=3, entitled_until=1.0)
    ShardCopy(server, CHAIN).handle(Lease(2, 10.0, 5.0), 10.0)
    assert server.entitled_until == 1.0


def test_a_lease_says_nothing_to_a_replica() -> None:
    assert waiting().handle(Lease(1, 10.0, 5.0), 10.0) == []
