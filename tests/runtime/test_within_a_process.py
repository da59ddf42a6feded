"""Messages between actors of one process: handed over as they are and in order, in the event loop's next round."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from distributed import Worker

from psplatform.core.protocol.messages import Lease, Retiring, Stop
from psplatform.core.protocol.wire import decode, encode
from psplatform.runtime.actors.coordinator.held_answers import HeldAnswers
from psplatform.runtime.comms.answering import Listening
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import OK, Peer, answer_within, connections_of
from psplatform.runtime.comms.lines import Line, Said, messages_of

Jump = Callable[[Any], Any]
ELSEWHERE = Peer("tcp://10.0.0.2:1234", "psplatform-run-another")


class Actor(Listening):
    """An actor that notes what it is said, and how that reached it."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.forms: list[type] = []
        self.answer: bool | bytes = True

    def take(self, sender: str, said: Said) -> bool | bytes:
        self.forms.append(type(said))
        self.heard.extend(messages_of(said))
        return self.answer


class Process:
    """A process with one actor, and one elsewhere."""

    def __init__(self, network: Callable[..., Any], peer: Peer) -> None:
        self.actor, self.other = Actor(), Actor()
        self.actors: dict[str, Any] = {peer.key: self.actor}
        rpc = network(lambda method, *arguments: self.other.take(*arguments))
        worker: Any = SimpleNamespace(address=peer.address, rpc=rpc, state=SimpleNamespace(actors=self.actors))
        self.connect = connections_of(cast("Worker", worker))

    def open(self, peer: Peer, **options: Any) -> Line:
        return Line(
            self.connect, peer, "coordinator-1", Background(), patience_s=5.0, on_lost=lambda _: None, **options
        )


@pytest.fixture
def process(network: Callable[..., Any], peer: Peer) -> Process:
    return Process(network, peer)


def test_they_are_handed_over_as_they_are_in_the_next_round(process: Process, peer: Peer, jump: Jump) -> None:
    async def talk() -> None:
        said, line = [Stop(1, "a"), Stop(2, "b"), Stop(3, "c")], process.open(peer)
        line.send(said[0])
        line.send(said[1])
        assert process.actor.heard == []
        await asyncio.sleep(0)
        assert line.is_idle
        line.send(said[2])
        assert process.actor.heard == said[:2]
        await line.flush(1.0)
        assert [id(one) for one in process.actor.heard] == [id(one) for one in said]
        assert process.actor.forms == [tuple, tuple]
        assert process.other.heard == []

    jump(talk())


def test_an_answer_is_there_at_once(process: Process, peer: Peer, jump: Jump) -> None:
    """Neither is one lost, nor does one take long: no call is kept, and no timer set."""

    async def talk() -> None:
        timers: list[Any] = []
        asyncio.get_running_loop().call_at = lambda *timer: timers.append(timer)  # type: ignore[assignment,method-assign]
        said = "deliver", "coordinator-1", (Stop(1, "a"),)
        assert answer_within(process.connect, peer, *said) == (OK, True)
        assert process.actor.heard == [Stop(1, "a")]
        assert answer_within(process.connect, ELSEWHERE, *said) is None
        assert timers == []

    jump(talk())


def test_what_is_said_while_a_message_is_taken_goes_out_in_the_next_round(
    process: Process, peer: Peer, jump: Jump
) -> None:

    async def talk() -> list[Any]:
        line = process.open(peer)
        heard = process.actor.take

        def answer_back(sender: str, said: Any) -> Any:
            if len(process.actor.heard) < 3:
                line.send(Stop(len(process.actor.heard) + 2, "more"))
            return heard(sender, said)

        process.actor.take = answer_back  # type: ignore[method-assign]
        line.send(Stop(1, "first"))
        counts = []
        for _ in range(5):
            await asyncio.sleep(0)
            counts.append(len(process.actor.heard))
        assert line.is_idle
        return counts

    assert jump(talk()) == [1, 2, 3, 4, 4]
    assert [one.term for one in process.actor.heard] == [1, 2, 3, 4]


@pytest.mark.parametrize("waits", [False, True])
def test_an_answer_that_was_held_leaves_after_what_was_said_before_was_taken(
    process: Process, peer: Peer, jump: Jump, waits: bool
) -> None:
    """A worker that is released looks for the version whose commit its server was sent just before."""

    async def talk() -> list[Any]:
        line, held = process.open(peer), HeldAnswers(lambda worker, said, answer: None)
        answer = held.hold("w", b"said")
        assert isinstance(answer, asyncio.Future)
        answer.add_done_callback(lambda _: process.actor.heard.append("answered"))
        if waits:
            line.send(Stop(1, "before"))
            await asyncio.sleep(0)
        line.send(Stop(2, "commit"))
        held.give("w", Stop(3, "release"))
        await asyncio.sleep(0)
        return process.actor.heard

    assert jump(talk())[-2:] == [Stop(2, "commit"), "answered"]


def test_of_a_message_that_could_not_be_taken_the_sender_hears_when_it_is_repeated(
    process: Process, peer: Peer, jump: Jump
) -> None:
    async def talk() -> tuple[list[str], int]:
        lost, calls = list[str](), list[Any]()

        def fail(sender: str, said: Any) -> Any:
            calls.append(said)
            raise ValueError("no place for that")

        process.actor.take = fail  # type: ignore[method-assign]
        line = Line(process.connect, peer, "coordinator-1", Background(), patience_s=5.0, on_lost=lost.append)
        line.send(Stop(1, "a"))
        await line.flush(5.0)
        return lost, len(calls)

    lost, calls = jump(talk())
    assert [one.split(" ", 1)[1] for one in lost] == ["failed (ValueError: no place for that)"]
    assert calls == 2


def test_a_line_that_is_closed_by_what_it_delivers_is_closed(process: Process, peer: Peer, jump: Jump) -> None:
    async def talk() -> list[Any]:
        answers: list[Any] = []
        line = process.open(peer, on_answer=answers.append)
        process.actor.answer = encode([Lease(1, 0.5, 2.0)])
        heard = process.actor.take

        def take(sender: str, said: Any) -> Any:
            line.close()
            return heard(sender, said)

        process.actor.take = take  # type: ignore[method-assign]
        line.send(Stop(1, "a"))
        await asyncio.sleep(1.0)
        line.send(Stop(2, "b"))
        await asyncio.sleep(1.0)
        return answers

    assert jump(talk()) == []
    assert process.actor.heard == [Stop(1, "a")]


def test_answers_come_back_with_the_acknowledgment(process: Process, peer: Peer, jump: Jump) -> None:
    async def talk() -> None:
        answers: list[Any] = []
        line = process.open(peer, on_answer=answers.append)
        process.actor.answer = encode([Lease(1, 0.5, 2.0)])
        line.send(Stop(1, "a"))
        await line.flush(1.0)
        assert answers == [Lease(1, 0.5, 2.0)]

    jump(talk())


def test_one_that_is_not_there_yet_gets_them_later(process: Process, peer: Peer, jump: Jump) -> None:
    async def talk() -> None:
        actor = process.actors.pop(peer.key)
        line = process.open(peer)
        line.send(Stop(1, "a"))
        await asyncio.sleep(1.0)
        process.actors[peer.key] = actor
        line.send(Stop(2, "b"))
        await line.flush(4.0)
        assert actor.heard == [Stop(1, "a"), Stop(2, "b")]
        assert actor.forms == [tuple, tuple]

    jump(talk())


@pytest.mark.parametrize("within", [False, True])
def test_who_has_moved_to_another_process_gets_them_as_they_travel_there(
    process: Process, peer: Peer, jump: Jump, within: bool
) -> None:
    """What was not acknowledged included."""

    async def move() -> None:
        before, after = (ELSEWHERE, peer) if within else (peer, ELSEWHERE)
        gone, found = (process.other, process.actor) if within else (process.actor, process.other)
        gone.take = lambda sender, said: asyncio.sleep(9.0)  # type: ignore[method-assign,assignment]
        process.actors.pop(peer.key)
        line = process.open(before)
        line.send(Stop(1, "a"))
        await asyncio.sleep(1.0)
        process.actors[peer.key] = process.actor
        line.retarget(after)
        line.send(Stop(2, "b"))
        await line.flush(4.0)
        assert found.heard == [Stop(1, "a"), Stop(2, "b")]
        assert found.forms == [tuple if within else bytes] * 2

    jump(move())


def test_a_host_takes_them_in_either_form(jump: Jump) -> None:
    said = (Retiring("server-0"), Stop(1, "a"))
    assert messages_of(said) is said
    assert messages_of(encode(said)) == said
    assert messages_of(encode([])) == decode(encode([])) == ()
