"""Calls to another process: an answer, or the word that the peer is lost."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from distributed import Worker

from psplatform.errors import UserCodeError
from psplatform.runtime.comms.calls import (
    OK,
    DirectCalls,
    Peer,
    PeerLost,
    PeerSilent,
    approach,
    begin_call,
    call,
    call_the_living,
    connections_of,
)

Network = Callable[..., Any]
Jump = Callable[[Any], Any]


def raising(error: BaseException) -> Callable[..., Any]:
    def answer(*_: Any) -> Any:
        raise error

    return answer


def test_a_call_returns_what_the_method_returns(network: Network, peer: Peer, jump: Jump) -> None:
    """The call reaches the actor by its key, at the address of its Dask worker."""
    calls = network(lambda method, *arguments: (method, arguments))
    assert jump(call(calls, peer, "pull", 1, b"x", deadline_s=1)) == ("pull", (1, b"x"))
    assert calls.calls == [(peer.address, peer.key, "pull")]


def test_what_the_method_raises_is_raised(network: Network, peer: Peer, jump: Jump) -> None:
    """The peer lives, so it is not lost."""
    error = UserCodeError("boom", kind="ValueError", user_traceback="Traceback")
    with pytest.raises(UserCodeError) as caught:
        jump(call(network(raising(error)), peer, "open", deadline_s=1))
    assert caught.value is error


@pytest.mark.parametrize("error", [OSError("connection reset"), ConnectionRefusedError("nobody listens")])
def test_a_peer_that_cannot_be_reached_is_lost(network: Network, peer: Peer, jump: Jump, error: OSError) -> None:
    with pytest.raises(PeerLost, match=r"tcp://10\.0\.0\.1:1234 is gone") as caught:
        jump(call(network(raising(error)), peer, "pull", deadline_s=1))
    assert caught.value.peer == peer.address
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [KeyError("key"), AttributeError("'NoneType' object has no attribute 'pull'")])
def test_a_process_without_the_actor_has_lost_it(
    network: Network, peer: Peer, jump: Jump, without_actor: Any, error: Exception
) -> None:
    """A restarted Dask worker knows nobody, and one that is still making an actor has only its name."""
    with pytest.raises(PeerLost, match=r"tcp://10\.0\.0\.1:1234 has no psplatform-run-somebody"):
        jump(call(network(raising(without_actor(error))), peer, "pull", deadline_s=1))


def test_what_the_method_finds_missing_is_not_the_actor(network: Network, peer: Peer, jump: Jump) -> None:
    """A KeyError of its own comes back as what it is."""
    with pytest.raises(KeyError, match="weight"):
        jump(call(network(raising(KeyError("weight"))), peer, "open", deadline_s=1))


def test_a_silent_peer_is_lost_at_the_deadline(network: Network, peer: Peer, jump: Jump) -> None:
    async def ask() -> float:
        with pytest.raises(PeerLost, match="did not answer pull within 7 s"):
            await call(network(lambda *_: asyncio.sleep(3600)), peer, "pull", deadline_s=7)
        return asyncio.get_running_loop().time()

    assert jump(ask()) == 7.0


@pytest.mark.parametrize("meets", [asyncio.CancelledError, OSError])
def test_a_cancelled_call_stays_cancelled(network: Network, peer: Peer, jump: Jump, meets: type[BaseException]) -> None:
    """Also where Dask turns the cancellation into an OSError: whoever was cancelled does not try again."""

    async def answer() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            raise meets from None

    async def cancelled() -> None:
        task = asyncio.create_task(call(network(lambda *_: answer()), peer, "pull", deadline_s=9999))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    jump(cancelled())


class Own:
    """A Dask worker with one actor, and a connection to everybody, itself included, that must not be used for it."""

    def __init__(self, network: Any, peer: Peer, actor: Any) -> None:
        self.address = peer.address
        self.rpc = network
        self.state = SimpleNamespace(actors={peer.key: actor})


class Taking:
    """An actor that takes what is delivered to it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.taken: list[Any] = []
        self._error = error

    async def deliver(self, sender: str, data: bytes) -> bool:
        self.taken.append((sender, data))
        if self._error is not None:
            raise self._error
        return True


def test_whoever_is_approached_says_which_process_it_is_in(network: Network, peer: Peer, jump: Jump) -> None:
    calls = network(lambda method, wait_s: ("process", method, wait_s))
    assert jump(approach(calls, peer)) == ("process", "alive", 0.0)


@pytest.mark.parametrize("error", [OSError("connection reset"), RuntimeError("pool is closed"), None])
def test_who_cannot_be_approached_is_left_alone(
    network: Network, peer: Peer, jump: Jump, without_actor: Callable[[Exception], Exception], error: Exception | None
) -> None:
    """It is no news: whoever watches it says so."""
    failing = without_actor(error) if isinstance(error, RuntimeError) else error
    calls = network(raising(failing) if failing is not None else lambda *_: asyncio.sleep(1e9))
    assert jump(approach(calls, peer)) is None


def test_what_is_delivered_to_a_process_itself_does_not_leave_it(network: Network, peer: Peer, jump: Jump) -> None:
    calls, actor = network(lambda method, *arguments: (method, arguments)), Taking()
    connect = connections_of(cast("Worker", Own(calls, peer, actor)))
    assert jump(call(connect, peer, "deliver", "a", b"x", deadline_s=1)) is True
    assert actor.taken == [("a", b"x")]
    assert calls.calls == []
    assert jump(call(connect, peer, "pull", 1, deadline_s=1)) == ("pull", (1,))
    other = Peer("tcp://10.0.0.2:1234", peer.key)
    assert jump(call(connect, other, "deliver", "a", b"x", deadline_s=1)) == ("deliver", ("a", b"x"))
    assert calls.calls == [(peer.address, peer.key, "pull"), (other.address, peer.key, "deliver")]


@pytest.mark.parametrize("key", ["nobody", "unfinished"])
def test_an_own_actor_that_is_not_there_is_lost(network: Network, peer: Peer, jump: Jump, key: str) -> None:
    own = Own(network(lambda *_: None), peer, Taking())
    own.state.actors["unfinished"] = None
    with pytest.raises(PeerLost, match=f"has no {key}"):
        jump(call(connections_of(cast("Worker", own)), Peer(peer.address, key), "deliver", "a", b"", deadline_s=1))


def test_what_an_own_actor_raises_is_raised(network: Network, peer: Peer, jump: Jump) -> None:
    connect = connections_of(cast("Worker", Own(network(lambda *_: None), peer, Taking(KeyError("weight")))))
    with pytest.raises(KeyError, match="weight"):
        jump(call(connect, peer, "deliver", "a", b"", deadline_s=1))


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Listen at a port of this host, for as long as the test likes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


async def for_ever(*_: Any) -> None:
    await asyncio.Event().wait()


def test_who_calls_the_living_does_not_wait_for_the_dead(network: Network, listener: socket.socket) -> None:
    """Dask tries to connect to a port that nobody listens at until the deadline."""
    peer = Peer(f"tcp://127.0.0.1:{listener.getsockname()[1]}", "somebody")

    async def ask() -> None:
        asyncio.get_running_loop().call_later(1.0, listener.close)
        await call_the_living(network(for_ever), peer, "status", deadline_s=3600)

    with pytest.raises(PeerLost, match=f"{peer.address} is gone"):
        asyncio.run(ask())


def test_who_calls_the_living_waits_for_those_who_are_there(network: Network, listener: socket.socket) -> None:
    peer = Peer(f"tcp://127.0.0.1:{listener.getsockname()[1]}", "somebody")

    async def answer(*_: Any) -> str:
        await asyncio.sleep(1.2)
        return "here"

    assert asyncio.run(call_the_living(network(answer), peer, "status", deadline_s=3600)) == "here"
    with pytest.raises(PeerSilent):
        asyncio.run(call_the_living(network(for_ever), peer, "status", deadline_s=1.2))


# --- calls that are sent at once ---


class AtOnce(DirectCalls):
    """Calls that are sent at once, if that is possible."""

    def __init__(self, *, possible: bool = True) -> None:
        self.possible = possible
        self.given_up = 0
        self.asked: list[tuple[str, str, tuple[Any, ...]]] = []

    def begin(
        self, actor: str, function: str, arguments: tuple[Any, ...], done: Callable[[str, Any], None]
    ) -> AtOnce | None:
        self.asked.append((actor, function, arguments))
        self.answer = done
        return self if self.possible else None

    def give_up(self) -> None:
        self.given_up += 1


def begin(calls: Any, peer: Peer, found: list[Any]) -> Any:
    return begin_call(
        lambda address: calls,
        peer,
        "pull",
        1,
        2,
        deadline_s=5.0,
        done=found.append,
        otherwise=lambda: found.append("?"),
    )


def test_a_call_that_is_sent_at_once_is_answered_once(peer: Peer, jump: Jump) -> None:
    async def talk() -> None:
        calls, found = AtOnce(), list[Any]()
        assert begin(calls, peer, found) is not None
        calls.answer(OK, "answer")
        await asyncio.sleep(10)
        assert found == ["answer"]
        assert calls.given_up == 0
        assert calls.asked == [(peer.key, "pull", (1, 2))]

    jump(talk())


@pytest.mark.parametrize("status", ["error", "gone"])
def test_one_that_has_no_answer_is_to_be_made_otherwise(peer: Peer, jump: Jump, status: str) -> None:
    async def talk() -> None:
        calls, found = AtOnce(), list[Any]()
        begin(calls, peer, found)
        calls.answer(status, None)
        await asyncio.sleep(10)
        assert found == ["?"]

    jump(talk())


def test_one_that_is_not_answered_in_time_is_given_up(peer: Peer, jump: Jump) -> None:
    async def talk() -> None:
        calls, found = AtOnce(), list[Any]()
        begin(calls, peer, found)
        await asyncio.sleep(4.9)
        assert found == []
        await asyncio.sleep(0.2)
        assert found == ["?"]
        assert calls.given_up == 1

    jump(talk())


def test_of_one_that_is_given_up_nothing_is_heard(peer: Peer, jump: Jump) -> None:
    async def talk() -> None:
        calls, found = AtOnce(), list[Any]()
        begun = begin(calls, peer, found)
        begun.give_up()
        begun.give_up()
        await asyncio.sleep(10)
        assert found == []
        assert calls.given_up == 1

    jump(talk())


def test_where_there_is_no_such_way_nothing_is_begun(network: Network, peer: Peer, jump: Jump) -> None:
    async def talk() -> None:
        found: list[Any] = []
        assert begin(AtOnce(possible=False), peer, found) is None
        assert begin(network(lambda *call: True)(peer.address), peer, found) is None
        await asyncio.sleep(10)
        assert found == []

    jump(talk())
