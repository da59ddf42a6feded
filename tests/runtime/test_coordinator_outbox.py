"""Whom a coordinator tells where a worker is that others are to send to, or to pull from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from psplatform.core.protocol.effects import Send
from psplatform.core.protocol.messages import Release, Route
from psplatform.core.protocol.names import Role
from psplatform.core.protocol.place_messages import ActorAt
from psplatform.core.protocol.wire import encode
from psplatform.runtime.actors.coordinator.outbox import CoordinatorOutbox
from psplatform.runtime.timeouts import TIMEOUTS

Jump = Callable[[Any], Any]


class Workers:
    """Notes what workers are sent; all of those in `there` have heard everything."""

    def __init__(self, *there: str) -> None:
        self.there, self.sent = there, list[tuple[str, Any]]()
        self.noted = list[tuple[str, bytes, bytes]]()
        self.behind, self.waiting = set[str](), set[str]()

    def place_of(self, name: str) -> ActorAt | None:
        return ActorAt(name, f"tcp://{name}:1", name, part="worker") if name in self.there else None

    def has_heard_all(self, name: str) -> bool:
        return name not in self.behind

    def send(self, name: str, message: Any) -> None:
        self.sent.append((name, message))

    def note_answer(self, name: str, said: bytes, answer: bytes) -> None:
        self.noted.append((name, said, answer))


@pytest.fixture
def workers() -> Workers:
    return Workers("a", "b")


@pytest.fixture
def outbox(workers: Workers) -> CoordinatorOutbox:
    return outbox_to(workers)


def outbox_to(workers: Workers) -> CoordinatorOutbox:
    lead = SimpleNamespace(is_waiting=lambda worker: worker in workers.waiting)
    parts: Any = lead, None, workers, None
    return CoordinatorOutbox(*parts)


def release(relay: str) -> Release:
    return Release(1, 5, 3, None, relay=relay)


@pytest.mark.parametrize("message", [Route(1, 5, 2, "b"), release("b")], ids=["route", "release"])
def test_a_worker_is_told_once_where_another_is_before_it_needs_that(
    outbox: CoordinatorOutbox, workers: Workers, message: Any
) -> None:
    for _ in range(2):
        outbox.send(Send(Role.member("a"), message))
    outbox.send(Send(Role.member("c"), message))
    place = ActorAt("b", "tcp://b:1", "b", part="worker")
    assert workers.sent == [("a", place), ("a", message), ("a", message), ("c", place), ("c", message)]


@pytest.mark.parametrize("message", [Route(1, 5), Route(1, 5, 2, "a"), release(""), release("a")], ids=repr)
def test_a_worker_needs_no_place_of_servers_or_of_itself(
    outbox: CoordinatorOutbox, workers: Workers, message: Any
) -> None:
    outbox.send(Send(Role.member("a"), message))
    assert workers.sent == [("a", message)]


def test_a_worker_that_is_gone_has_no_place_and_may_have_one_later(outbox: CoordinatorOutbox, workers: Workers) -> None:
    message = Route(1, 5, 2, "z")
    outbox.send(Send(Role.member("a"), message))
    workers.there = ("z",)
    outbox.send(Send(Role.member("a"), message))
    assert [one for _, one in workers.sent if isinstance(one, ActorAt)] == [
        ActorAt("z", "tcp://z:1", "z", part="worker")
    ]


def test_a_release_is_not_the_answer_to_a_worker_that_must_be_told_a_place_before(
    outbox: CoordinatorOutbox, workers: Workers
) -> None:
    with outbox.answering("a") as answers:
        outbox.send(Send(Role.member("a"), release("b")))
    assert (answers, len(workers.sent)) == ([], 2)
    with outbox.answering("a") as answers:
        outbox.send(Send(Role.member("a"), release("b")))
    assert answers == [release("b")]


def said_by(
    workers: Workers, outbox: CoordinatorOutbox, worker: str, said: bytes
) -> asyncio.Future[bool | bytes] | bool:
    """Let a worker announce a gradient and wait for its release; return what it will be answered, or is at once."""
    with outbox.answering(worker) as answers:
        workers.waiting.add(worker)
    assert not answers
    return outbox.hold(worker, said)


def is_held(workers: Workers, outbox: CoordinatorOutbox, worker: str, said: bytes) -> asyncio.Future[bool | bytes]:
    """Do what `said_by` does, for a worker that is not answered at once."""
    held = said_by(workers, outbox, worker, said)
    assert isinstance(held, asyncio.Future)
    return held


def test_a_release_is_the_answer_that_was_held_and_is_kept_for_a_repeat(workers: Workers, jump: Jump) -> None:
    """In the next round of the event loop: by then the servers of this process show what was decided."""

    async def talk() -> tuple[list[bool], bool | bytes]:
        outbox = outbox_to(workers)
        held, answered, so_far = is_held(workers, outbox, "a", b"said"), list[bool | bytes](), list[bool]()
        held.add_done_callback(lambda done: answered.append(done.result()))
        outbox.send(Send(Role.member("a"), release("")))
        for _ in range(2):
            so_far.append(bool(answered))
            await asyncio.sleep(0)
        return so_far, answered[0]

    so_far, answer = jump(talk())
    assert so_far == [False, True]
    assert (answer, workers.sent) == (encode([release("")]), [])
    assert workers.noted == [("a", b"said", answer)]


def test_whatever_else_a_worker_is_sent_ends_its_waiting(workers: Workers, jump: Jump) -> None:
    """What it says to that waits behind the call that is not answered."""

    async def talk() -> list[bool | bytes]:
        outbox = outbox_to(workers)
        one = is_held(workers, outbox, "a", b"1")
        outbox.send(Send(Role.member("a"), Route(1, 5)))
        other = is_held(workers, outbox, "b", b"2")
        workers.behind = {"b"}
        outbox.send(Send(Role.member("b"), release("")))
        return [await one, await other]

    assert jump(talk()) == [True, True]
    assert workers.sent == [("a", Route(1, 5)), ("b", release(""))]
    assert workers.noted == []


def test_a_worker_that_has_still_to_hear_something_does_not_wait(workers: Workers, jump: Jump) -> None:
    """What it says to that would come late."""

    async def talk() -> Any:
        workers.behind = {"a"}
        return said_by(workers, outbox_to(workers), "a", b"said")

    assert jump(talk()) is True


def test_a_worker_that_goes_on_by_itself_does_not_wait(workers: Workers, jump: Jump) -> None:
    """It announces block by block, or computes the next gradient already: what it says next would come late."""

    async def talk() -> Any:
        outbox = outbox_to(workers)
        with outbox.answering("a"):
            pass
        return outbox.hold("a", b"said")

    assert jump(talk()) is True


def test_a_repeat_does_not_wait(workers: Workers, jump: Jump) -> None:
    """The call that is heard last may be the one that the worker gave up first: a release given to it would be lost."""

    async def talk() -> tuple[Any, ...]:
        outbox = outbox_to(workers)
        first = is_held(workers, outbox, "a", b"said")
        again = said_by(workers, outbox, "a", b"said")
        outbox.send(Send(Role.member("a"), release("")))
        return await first, again

    assert jump(talk()) == (True, True)
    assert workers.sent == [("a", release(""))]
    assert workers.noted == []


def test_after_the_end_no_answer_is_held(workers: Workers, jump: Jump) -> None:
    async def talk() -> tuple[Any, ...]:
        outbox = outbox_to(workers)
        first = is_held(workers, outbox, "a", b"said")
        outbox.close()
        return await first, said_by(workers, outbox, "b", b"said")

    assert jump(talk()) == (True, True)


def test_an_answer_is_not_held_beside_one_that_is_given(workers: Workers, jump: Jump) -> None:
    """What a worker says again tells that the call before is lost, whatever it is answered."""

    async def talk() -> tuple[bool, bool | bytes]:
        outbox = outbox_to(workers)
        before = is_held(workers, outbox, "a", b"said")
        with outbox.answering("a") as answers:
            outbox.send(Send(Role.member("a"), release("")))
        assert answers
        return before.done(), await before

    assert jump(talk()) == (True, True)


def test_a_release_for_a_call_that_was_given_up_is_kept_for_the_repeat(workers: Workers, jump: Jump) -> None:
    async def talk() -> list[dict[str, Any]]:
        failures: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))
        outbox = outbox_to(workers)
        is_held(workers, outbox, "a", b"said").cancel()
        outbox.send(Send(Role.member("a"), release("")))
        await asyncio.sleep(1)
        return failures

    assert jump(talk()) == []
    assert workers.noted == [("a", b"said", encode([release("")]))]


def test_an_answer_is_not_held_for_long(workers: Workers, jump: Jump) -> None:
    async def talk() -> tuple[bool | bytes, float]:
        outbox, clock = outbox_to(workers), asyncio.get_running_loop().time
        begun = clock()
        answer = await is_held(workers, outbox, "a", b"said")
        outbox.send(Send(Role.member("a"), release("")))
        return answer, clock() - begun

    answer, seconds = jump(talk())
    assert answer is True
    assert seconds == pytest.approx(TIMEOUTS.held_s)
    assert workers.sent == [("a", release(""))]
