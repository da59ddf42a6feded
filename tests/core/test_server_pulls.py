"""A shard's server answers a pull as soon as the version is visible, and never before."""

from __future__ import annotations

from typing import Any

from psplatform.core.protocol.effects import Effect, Publish, Send
from psplatform.core.protocol.events import GatherDone, PullWithdrawn, StageDone
from psplatform.core.protocol.messages import Applied, Commit, Contribution, Pull, Pulled, StateRequest
from psplatform.core.protocol.names import Role
from psplatform.core.shards.server import MOST_AHEAD, Server


def do(server: Server, event: Any) -> list[Effect]:
    return server.handle(event, 0.0)


def messages(effects: list[Effect]) -> list[Any]:
    return [one.message for one in effects if isinstance(one, Send)]


def apply_next(server: Server) -> list[Effect]:
    """Make the next version visible; return what the server does then."""
    position = server.position + 1
    do(server, Commit(1, 1, position, position, (Contribution("m0", 0, position),), rate=0.5))
    do(server, GatherDone(position, ()))
    return do(server, StageDone(position))


def test_a_pull_of_a_visible_version_is_answered_at_once_with_the_newest() -> None:
    server = Server(2, epoch=1)
    apply_next(server)
    apply_next(server)
    for version in (0, 1, 2):
        assert do(server, Pull("w", 2, 9, version)) == [Send(Role.member("w"), Pulled(2, 9, 2, 1, 1))]


def test_a_pull_of_a_later_version_is_parked_until_that_is_visible() -> None:
    server = Server(0)
    assert do(server, Pull("a", 0, 1, 1)) == []
    assert do(server, Pull("b", 0, 1, 2)) == []
    answers = [one for one in apply_next(server) if isinstance(one, Send)][1:]
    assert answers == [Send(Role.member("a"), Pulled(0, 1, 1, 1, 1))]


def test_an_answer_says_in_which_term_its_version_was_decided() -> None:
    """Whatever the server has heard since: a worker goes on with what its own coordinator decided."""
    server = Server(0)
    assert messages(do(server, Pull("a", 0, 1, 0))) == [Pulled(0, 1, 0, 1, 0)]
    apply_next(server)
    do(server, StateRequest(3))
    assert messages(do(server, Pull("a", 0, 2, 1))) == [Pulled(0, 2, 1, 1, 1)]
    do(server, Commit(3, 1, 2, 2, (), rate=0.5))
    assert messages(do(server, Pull("a", 0, 3, 1))) == [Pulled(0, 3, 2, 1, 3)]


def test_a_version_is_published_before_anybody_is_told_of_it() -> None:
    server = Server(0)
    do(server, Pull("a", 0, 1, 1))
    assert isinstance(apply_next(server)[0], Publish)


def test_a_withdrawn_pull_is_not_answered() -> None:
    server = Server(0)
    do(server, Pull("a", 0, 1, 1))
    assert do(server, PullWithdrawn("a", 1)) == []
    assert do(server, PullWithdrawn("a", 1)) == []
    assert messages(apply_next(server)) == [Applied(0, 1, 1, 1, ())]


def test_a_repeated_pull_that_is_parked_is_answered_once() -> None:
    server = Server(0)
    do(server, Pull("a", 0, 1, 1))
    do(server, Pull("a", 0, 1, 1))
    assert messages(apply_next(server)).count(Pulled(0, 1, 1, 1, 1)) == 1


def test_a_member_s_next_pull_makes_the_one_that_waits_void() -> None:
    """Partial pulls leave requests behind: a server that is slow must not keep more and more of them."""
    server = Server(0)
    do(server, Pull("a", 0, 1, 1))
    do(server, Pull("a", 0, 2, 1))
    do(server, Pull("b", 0, 1, 1))
    answers = [one.request for one in messages(apply_next(server)) if isinstance(one, Pulled)]
    assert answers == [2, 1]


def test_a_pull_that_is_overtaken_by_its_successor_does_not_take_its_place() -> None:
    server = Server(0)
    do(server, Pull("a", 0, 2, 1))
    do(server, Pull("a", 0, 1, 1))
    do(server, PullWithdrawn("a", 1))
    assert messages(apply_next(server)).count(Pulled(0, 2, 1, 1, 1)) == 1


def test_there_is_room_for_pushes_up_to_a_few_versions_ahead() -> None:
    server = Server(0)
    assert [server.has_room_for(counter) for counter in (0, MOST_AHEAD, MOST_AHEAD + 1)] == [True, True, False]
    apply_next(server)
    assert server.has_room_for(MOST_AHEAD + 1)
