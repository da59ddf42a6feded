"""Large arrays follow a message over Dask's connections, into memory that is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import dask
import numpy as np
import pytest
from distributed.comm.core import CommClosedError
from numpy.typing import NDArray

from psplatform.runtime.comms import bulk
from psplatform.runtime.comms.bulk import Outgoing, call_with_arrays, fetch_arrays, is_streamed
from psplatform.runtime.comms.calls import ActorGone, Peer, PeerLost, PeerSilent
from tests.support.two_servers import Two, two

SIZE = 300_000
"""Elements of a large array."""

LIMIT_S = 180.0


@dataclass
class Actor:
    """Takes arrays, and answers with arrays."""

    taken: list[Any] = field(default_factory=list)
    holds: bool = True
    content: list[NDArray[Any]] = field(default_factory=lambda: [np.arange(SIZE, dtype=np.float32), np.arange(5)])
    waiting: asyncio.Queue[float] = field(default_factory=asyncio.Queue)
    """The first number of what each call of `wait` was given."""

    async def push(self, name: str, arrays: list[NDArray[Any]], number: int | None = None) -> bool:
        self.taken.append((name, arrays, number))
        return True

    async def fail(self, arrays: list[NDArray[Any]]) -> None:
        raise ValueError(f"{len(arrays)} are too many")

    async def send_content(self, version: int) -> Outgoing:
        if version < 0:
            raise ValueError("no such version")
        return Outgoing(version or None, self.content if version else (), lambda: self.holds)

    async def wait(self, arrays: list[NDArray[Any]]) -> None:
        self.waiting.put_nowait(float(arrays[0][0]))
        await asyncio.sleep(60.0)

    async def waits_with(self, number: float) -> None:
        """Return once it waits with that first number: earlier calls, given up by now, may come late."""
        async with asyncio.timeout(LIMIT_S):
            while await self.waiting.get() != number:
                pass


async def call(found: Two, method: str, *arguments: Any, deadline_s: float = 20.0) -> Any:
    return await call_with_arrays(found.caller.rpc, found.peer, method, *arguments, deadline_s=deadline_s)


async def fetch(found: Two, version: int, into: Callable[[Any], Any], deadline_s: float = 20.0) -> bool:
    what = "send_content", version
    return await fetch_arrays(found.caller.rpc, found.peer, *what, into=into, deadline_s=deadline_s)


def run(body: Callable[[Two], Any]) -> Any:
    async def do() -> Any:
        async with two(Actor()) as found:
            return await body(found)

    return asyncio.run(do())


def large(value: float = 1.0) -> NDArray[Any]:
    return np.full(SIZE, value, np.float32)


@pytest.mark.parametrize("most_bytes", [1 << 30, 1 << 18])
def test_arrays_arrive_as_they_were_sent(monkeypatch: pytest.MonkeyPatch, most_bytes: int) -> None:
    """In one piece each, which may be written to, however many bytes can be moved at once."""
    monkeypatch.setattr(bulk, "_MOST_BYTES", most_bytes)
    sent = [large(2.0), np.zeros(0, np.float32), np.arange(6, dtype=np.int64).reshape(2, 3), large(3.0).astype("f8")]

    async def push(found: Two) -> None:
        for number in range(2):
            assert await call(found, "push", "w", sent, number) is True

    both = run(lambda found: _then(push(found), found.actor.taken))
    assert [(name, number) for name, _, number in both] == [("w", 0), ("w", 1)]
    for _, arrays, _ in both:
        assert [(one.dtype, one.shape) for one in arrays] == [(one.dtype, one.shape) for one in sent]
        assert all(np.array_equal(there, here) for there, here in zip(arrays, sent, strict=True))
        assert all(one.flags.writeable for one in arrays)


async def _then(first: Any, result: Any) -> Any:
    await first
    return result


def test_one_connection_serves_all_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an actor raises, and an actor that is not there, leave it as it was."""

    async def talk(found: Two) -> None:
        for _ in range(3):
            await call(found, "push", "w", [large()])
            with pytest.raises(ValueError, match="1 are too many"):
                await call(found, "fail", [large()])
            with pytest.raises(ValueError, match="no such version"):
                await fetch(found, -1, lambda answer: None)
            gone = replace(found.peer, key="another")
            for method in ("push", "unknown"):
                with pytest.raises(ActorGone):
                    await call_with_arrays(found.caller.rpc, gone, method, "w", [large()], deadline_s=20.0)
            with pytest.raises(ActorGone):
                await fetch_arrays(found.caller.rpc, gone, "send_content", 1, into=lambda _: None, deadline_s=20.0)
        assert found.connections == 1

    run(talk)


def test_small_arrays_and_ways_that_are_no_streams_take_an_ordinary_call(network: Any, peer: Peer) -> None:
    connect = network(lambda method, *arguments: (method, len(arguments)))
    assert asyncio.run(call_with_arrays(connect, peer, "push", "w", [large()], deadline_s=1.0)) == ("push", 2)

    async def push(found: Two) -> None:
        def connect(address: str) -> Any:
            return SimpleNamespace(pool=found.caller.rpc, actor_execute=ordinary)

        async def ordinary(**how: Any) -> Any:
            return {"status": "OK", "result": how["function"]}

        small = "push", "w", [np.zeros(10)]
        assert await call_with_arrays(connect, found.peer, *small, deadline_s=20.0) == "push"
        assert found.actor.taken == []

    run(push)


@pytest.mark.parametrize(
    ("address", "backend", "expected"),
    [
        ("tcp://10.0.0.1:1", "tornado", True),
        ("tls://10.0.0.1:1", "tornado", True),
        ("tcp://10.0.0.1:1", "asyncio", False),
        ("ucx://10.0.0.1:1", "tornado", False),
        ("inproc://10.0.0.1/1/1", "tornado", False),
    ],
)
def test_streams_are_those_of_tcp_and_tls(address: str, backend: str, expected: bool) -> None:
    with dask.config.set({"distributed.comm.tcp.backend": backend}):
        assert is_streamed(lambda _: SimpleNamespace(pool=object()), Peer(address, "actor")) is expected
    assert not is_streamed(lambda _: SimpleNamespace(), Peer(address, "actor"))


def test_content_is_read_into_memory_at_hand() -> None:
    place = [np.zeros(SIZE, np.float32), np.zeros(5, int)]

    async def receive(found: Two) -> list[Any]:
        told: list[Any] = []

        def into(answer: Any) -> Any:
            told.append(answer)
            return place if answer is not None else ()

        assert await fetch(found, 0, into), "not yet: nothing follows"
        assert await fetch(found, 7, into)
        found.actor.holds = False
        assert not await fetch(found, 8, into), "it was written over on its way"
        assert found.connections == 1
        return told

    assert run(receive) == [None, 7, 8]
    assert np.array_equal(place[0], np.arange(SIZE))
    assert place[1].tolist() == [0, 1, 2, 3, 4]


def test_content_that_is_not_wanted_is_written_nowhere() -> None:
    """Nor is what does not fit, which is an error of the caller's."""

    async def receive(found: Two) -> None:
        place = [np.zeros(SIZE, np.float32), np.zeros(4, int)]
        assert not await fetch(found, 7, lambda _: None)
        for into in (lambda _: place, lambda _: place[:1]):
            with pytest.raises(ValueError, match=r"arrays of \[1200000, 40\] bytes do not fit into"):
                await fetch(found, 7, into)
        assert not place[0].any()
        place[1] = np.zeros(5, int)
        assert await fetch(found, 7, lambda _: place)

    run(receive)


def test_a_call_that_is_given_up_writes_nothing_any_more_and_the_next_is_answered() -> None:
    """A late answer would be taken for that of the next call."""

    async def give_up(found: Two) -> None:
        with pytest.raises(PeerSilent, match="did not answer wait within 0.2 s"):
            await call(found, "wait", [large()], deadline_s=0.2)
        calling = asyncio.ensure_future(call(found, "wait", [large(2.0)]))
        await found.actor.waits_with(2.0)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert await call(found, "push", "w", [large()]) is True

    run(give_up)


def test_a_peer_that_goes_in_the_middle_is_lost() -> None:
    async def lose(found: Two) -> None:
        calling = asyncio.ensure_future(call(found, "wait", [large()]))
        await found.actor.waits_with(1.0)
        await found.called.close()
        with pytest.raises(PeerLost, match="is gone"):
            await calling
        with pytest.raises(PeerLost):
            await fetch(found, 7, lambda _: [large(), np.zeros(5, int)], deadline_s=2.0)

    run(lose)


def test_a_caller_that_stands_still_in_the_middle_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "TIMEOUTS", replace(bulk.TIMEOUTS, not_yet_s=0.1, push_s=0.2))

    async def stand_still(found: Two) -> None:
        comm = await found.caller.rpc.connect(found.called.address)
        what = {"actor": "actor", "function": "push", "frame": b"", "sizes": [1 << 20]}
        await comm.write({"op": "psplatform-call", **what})
        async with asyncio.timeout(60.0):
            with pytest.raises(CommClosedError):
                await comm.read()
        comm.abort()
        assert await call(found, "push", "w", [large()]) is True

    run(stand_still)


def test_what_the_caller_itself_raises_is_not_taken_for_the_loss_of_its_peer() -> None:
    def into(answer: Any) -> Any:
        raise RuntimeError("can't allocate memory")

    async def receive(found: Two) -> None:
        with pytest.raises(RuntimeError, match="can't allocate memory"):
            await fetch(found, 7, into)
        assert await call(found, "push", "w", [large()]) is True

    run(receive)


def test_a_process_that_knows_no_such_calls_has_no_such_actor() -> None:
    """It has begun in the place of another one; what was sent to it is not taken for the next call."""

    async def talk(found: Two) -> None:
        handlers = found.called.handlers
        known = {name: handlers.pop(name) for name in list(handlers) if name.startswith("psplatform-")}
        for _ in range(2):
            with pytest.raises(ActorGone):
                await call(found, "push", "w", [large()])
            with pytest.raises(ActorGone):
                await fetch(found, 7, lambda _: None)
        handlers.update(known)
        assert await call(found, "push", "w", [large()]) is True

    run(talk)


def test_a_peer_without_room_for_what_is_sent_closes_the_connection() -> None:
    async def talk(found: Two) -> None:
        comm = await found.caller.rpc.connect(found.called.address)
        what = {"actor": "actor", "function": "push", "frame": b"", "sizes": [1 << 60]}
        await comm.write({"op": "psplatform-call", **what})
        with pytest.raises(CommClosedError):
            await comm.read()
        comm.abort()
        assert await call(found, "push", "w", [large()]) is True

    run(talk)
