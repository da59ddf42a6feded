"""What a member keeps of servers: the memory of those that were killed is free when it gives it up."""

from __future__ import annotations

import asyncio
import math
import socket
from typing import Any

import pytest

from psplatform.core.protocol.messages import Pull, Pulled
from psplatform.core.protocol.wire import decode, encode
from psplatform.runtime.comms import calls
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import OK, DirectCalls, Peer, PeerLost, PeerSilent
from psplatform.runtime.dataplane.pulls.content import Answer, Content
from psplatform.runtime.dataplane.pulls.fetching import Fetcher
from psplatform.runtime.dataplane.pulls.parameters import Parameters
from psplatform.runtime.dataplane.segments import SegmentName
from psplatform.runtime.dataplane.transports import SharedMemory
from psplatform.runtime.timeouts import TIMEOUTS
from psplatform.tensors.layout import Layout

LIMIT_S = 180.0


def test_the_memory_of_a_server_that_was_swept_is_given_up(
    layout: Layout, run_id: str, network: Any, jump: Any, peer: Peer
) -> None:
    """Mapped by a worker that lives on, it would stay in use after every failover."""
    contents = {name: Content.create(layout, 0, run_id, 1) for name in ("lost", "kept", "new")}
    asked = iter(["lost", "kept", "new"])

    async def attach_all() -> list[str]:
        connect = network(lambda method, *_: (True, contents[next(asked)].name) if method == "attach" else None)
        peers = dict.fromkeys(contents, peer)
        places = connect, layout, "w", None, peers, Parameters(layout)
        fetcher = Fetcher(*places, bool, bool, SharedMemory(), Background())
        await fetcher.attach("lost", 0)
        await fetcher.attach("kept", 0)
        contents["lost"].remove()
        await fetcher.attach("new", 0)
        assert not fetcher.sees("lost")
        return sorted(fetcher._contents)

    assert jump(attach_all()) == ["kept", "new"]


def test_a_server_that_has_ended_is_not_attached_to_for_long(layout: Layout, network: Any) -> None:
    """Dask would try to connect to it for half a minute, in which a worker that joins computes nothing."""

    async def for_ever(*_: Any) -> None:
        await asyncio.Event().wait()

    async def attach() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            gone = Peer(f"tcp://127.0.0.1:{listener.getsockname()[1]}", "server-0")
        places = network(for_ever), layout, "w", None, {"server-0": gone}, Parameters(layout)
        await Fetcher(*places, bool, bool, SharedMemory(), Background()).attach("server-0", 0)

    with pytest.raises(PeerLost, match="is gone"):
        asyncio.run(asyncio.wait_for(attach(), LIMIT_S))


def test_a_server_that_is_stopped_is_not_attached_to_for_long(
    layout: Layout, network: Any, jump: Any, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another may serve in its place by then: a worker that joins would compute nothing meanwhile."""

    async def lives(_peer: Peer) -> bool:
        return False

    monkeypatch.setattr(calls, "is_dead", lives)

    async def attach(loads: bool) -> float:
        loop = asyncio.get_running_loop()

        def answer(method: str, *_: Any) -> Any:
            return {} if loads and method == "alive" else asyncio.sleep(math.inf)

        places = network(answer), layout, "w", None, {"server-0": peer}, Parameters(layout)
        with pytest.raises(PeerSilent):
            await Fetcher(*places, bool, bool, SharedMemory(), Background()).attach("server-0", 0)
        return loop.time()

    assert jump(attach(loads=False)) == pytest.approx(TIMEOUTS.open_silent_s, abs=3)
    assert jump(attach(loads=True)) == TIMEOUTS.attach_s, "one that is loading its shard takes its time"


def test_a_server_that_is_swept_while_its_memory_is_taken_is_lost(
    layout: Layout, run_id: str, network: Any, peer: Peer
) -> None:
    """Where that takes a while, as with the memory of a GPU; another member must not fail for it."""
    contents = {name: Content.create(layout, 0, run_id, 1) for name in ("lost", "new")}
    asked, taking, go_on = iter(["lost", "new"]), asyncio.Event(), asyncio.Event()
    kept = set[SegmentName]()

    class Slow(Parameters):
        """Takes a while for the first."""

        async def meet(self, content: Content) -> None:
            if not taking.is_set():
                taking.set()
                await go_on.wait()
            kept.add(content.name)

        def forget(self, content: Content) -> None:
            kept.discard(content.name)

    async def attach_all() -> list[str]:
        connect = network(lambda method, *_: (True, contents[next(asked)].name) if method == "attach" else None)
        places = connect, layout, "w", None, dict.fromkeys(contents, peer), Slow(layout)
        fetcher = Fetcher(*places, bool, bool, SharedMemory(), Background())
        first = asyncio.create_task(fetcher.attach("lost", 0))
        await taking.wait()
        contents["lost"].remove()
        await fetcher.attach("new", 0)
        go_on.set()
        with pytest.raises(PeerLost, match="lost is gone"):
            await first
        return sorted(fetcher._contents)

    assert asyncio.run(asyncio.wait_for(attach_all(), LIMIT_S)) == ["new"]
    assert kept == {contents["new"].name}


class AtOnce(DirectCalls):
    """A server that is reached at once, and otherwise, as long as it is let."""

    def __init__(self, network: Any, content: Content) -> None:
        self.possible = True
        self.asked: list[tuple[Pull, Any]] = []
        self.in_tasks: list[str] = []
        self._network, self._content = network, content

    def begin(self, actor: str, function: str, arguments: tuple[Any, ...], done: Any) -> AtOnce | None:
        if not self.possible:
            return None
        self.asked.append((decode(arguments[0]), done))
        return self

    def give_up(self) -> None:
        self.asked.clear()

    def answer(self, version: int | None) -> None:
        pull, done = self.asked.pop()
        pulled = None if version is None else encode(Pulled(pull.shard, pull.request, version, 1))
        done(OK, Answer(pulled, copy=0))

    async def actor_execute(self, **call: Any) -> Any:
        return await self._network(self._take)("anywhere").actor_execute(**call)

    def _take(self, method: str, *arguments: Any) -> Any:
        self.in_tasks.append(method)
        if method == "attach":
            return True, self._content.name
        pull = decode(arguments[0])
        return Answer(encode(Pulled(pull.shard, pull.request, 9, 1)), copy=0)


class Asking:
    """A fetcher in front of such a server, which shows version 7."""

    def __init__(self, layout: Layout, run: str, network: Any, peer: Peer, slow_s: float = 0.0) -> None:
        self.content = Content.create(layout, 0, run, 1)
        self.content.show(0, 7)
        self.server = AtOnce(network, self.content)
        self.parameters = Parameters(layout)
        self.delivered: list[int] = []
        places = (lambda address: self.server), layout, "w", None, {"server-0": peer}, self.parameters
        self.took: list[tuple[int, int]] = []
        how = bool, self._take, SharedMemory(), Background()
        self.fetcher = Fetcher(*places, *how, slow_s=slow_s)
        self.fetcher.took = self._note

    def _take(self, pulled: Pulled) -> None:
        self.delivered.append(pulled.version)

    def _note(self, pulled: Pulled, at: float) -> None:
        self.took.append((pulled.request, pulled.version))

    def pull(self, request: int) -> None:
        self.fetcher.pull(Pull("w", 0, request, 7), "server-0")


@pytest.fixture
def asking(layout: Layout, run_id: str, network: Any, peer: Peer) -> Asking:
    return Asking(layout, run_id, network, peer)


def test_who_sees_the_content_and_has_a_way_asks_at_once(asking: Asking, jump: Any) -> None:
    async def talk() -> None:
        await asking.fetcher.attach("server-0", 0)
        asking.pull(1)
        assert [pull.request for pull, _ in asking.server.asked] == [1]
        asking.server.answer(None)
        assert [pull.request for pull, _ in asking.server.asked] == [1], "it is asked again"
        asking.server.answer(7)
        assert asking.delivered == [7]
        assert asking.server.in_tasks == ["attach"]

    jump(talk())


def test_the_first_pull_of_a_server_attaches(asking: Asking, jump: Any) -> None:
    async def talk() -> None:
        asking.content.show(0, 9)
        asking.pull(1)
        await asyncio.sleep(1)
        assert asking.server.in_tasks == ["attach", "pull"]
        assert asking.delivered == [9]

    jump(talk())


def test_the_next_pull_gives_the_one_before_up(asking: Asking, jump: Any) -> None:
    async def talk() -> None:
        await asking.fetcher.attach("server-0", 0)
        asking.pull(1)
        asking.pull(2)
        assert [pull.request for pull, _ in asking.server.asked] == [2]
        asking.fetcher.close()
        assert asking.server.asked == []

    jump(talk())


def test_what_is_not_answered_at_once_is_asked_in_a_task(asking: Asking, jump: Any) -> None:
    async def talk() -> None:
        await asking.fetcher.attach("server-0", 0)
        asking.content.show(0, 9)
        asking.pull(1)
        asking.server.asked.pop()[1]("the connection was closed", None)
        await asyncio.sleep(1)
        asking.pull(2)
        await asyncio.sleep(TIMEOUTS.pull_s + 1)
        assert asking.server.in_tasks == ["attach", "pull", "pull"]
        assert asking.delivered == [9, 9]

    jump(talk())


def test_content_that_is_not_there_after_all_is_asked_for_again(asking: Asking, jump: Any) -> None:
    async def talk() -> None:
        await asking.fetcher.attach("server-0", 0)
        asking.pull(1)
        asking.server.answer(6)
        assert asking.delivered == []
        asking.server.answer(7)
        assert asking.delivered == [7]

    jump(talk())


def test_what_is_shown_already_is_taken_and_nobody_is_asked(asking: Asking, jump: Any) -> None:
    async def talk() -> None:
        await asking.fetcher.attach("server-0", 0)
        for vector in asking.content.copies[0].values():
            vector.fill_(3)
        asking.content.answer_until(math.inf, decided_in=1)
        asking.pull(1)
        assert asking.delivered == [7]
        assert asking.took == [(1, 7)]
        assert asking.server.asked == []
        assert {float(value) for vector in asking.parameters.piece(0).values() for value in vector} == {3.0}

    jump(talk())


def test_what_is_written_over_while_it_is_taken_is_asked_for(asking: Asking, jump: Any) -> None:
    async def talk() -> None:
        await asking.fetcher.attach("server-0", 0)
        asking.content.answer_until(math.inf, decided_in=1)
        asking.parameters.take = lambda *_arguments: False  # type: ignore[method-assign]
        asking.pull(1)
        assert [pull.request for pull, _ in asking.server.asked] == [1]
        assert asking.took == []

    jump(talk())


def test_servers_that_are_to_answer_late_are_always_asked(
    layout: Layout, run_id: str, network: Any, peer: Peer, jump: Any
) -> None:
    async def talk() -> None:
        asking = Asking(layout, run_id, network, peer, slow_s=0.5)
        await asking.fetcher.attach("server-0", 0)
        asking.content.answer_until(math.inf, decided_in=1)
        asking.pull(1)
        assert [pull.request for pull, _ in asking.server.asked] == [1]

    jump(talk())
