"""Pushing a gradient: whoever serves the shard in the end has it, and who has left asks no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.core import Status

from psplatform.core.effects import Compute, SetTimer
from psplatform.core.events import Reachable
from psplatform.core.messages import Moved
from psplatform.core.wire import encode
from psplatform.runtime.calls import Peer
from psplatform.runtime.exposure import Slab
from psplatform.runtime.pushing import Pushes
from psplatform.runtime.worker_host import WorkerHost
from psplatform.tensors.layout import Layout, TensorSpec

Jump = Callable[[Any], Any]


class Closable:
    """Stands for a part that is closed with the worker, or told to begin."""

    def close(self) -> None:
        """Nothing is open."""

    def start(self, effect: Any) -> None:
        """Nothing is computed."""


class Places(Closable):
    """Knows two copies of shard 0, of which some see this worker's slab; to ask one takes a while."""

    def __init__(self, peers: dict[str, Peer], seeing: set[str], attach_s: float) -> None:
        self.peers = peers
        self._seeing, self._attach_s = seeing, attach_s

    def sees(self, copy: str) -> bool:
        return copy in self._seeing

    async def attach(self, copy: str, shard: int) -> bool:
        if self._attach_s:
            await asyncio.sleep(self._attach_s)
        return self.sees(copy)


class Session:
    """Stands for the protocol: names the server of shard 0, and notes what it is told."""

    def __init__(self, *, per_block: bool) -> None:
        self.server, self.counter = "server-0", 3 if per_block else -1
        self.told: list[Any] = []

    def server_of(self, shard: int) -> str:
        return self.server

    def handle(self, event: Any, now: float) -> list[Any]:
        self.told.append(event)
        if isinstance(event, Moved):
            self.server = event.copy
        return []

    @property
    def reachable(self) -> list[Reachable]:
        return [event for event in self.told if isinstance(event, Reachable)]


MakeWorker = Callable[..., WorkerHost]
MOVED = Moved(term=1, shard=0, copy="replica-0-0", epoch=2)


@pytest.fixture
def worker(peer: Peer, network: Any) -> MakeWorker:
    """Make a worker's host without a process, with one shard; call it where the loop runs."""

    def make(
        answer: Callable[..., Any], seeing: set[str] | None = None, attach_s: float = 0.0, *, per_block: bool = False
    ) -> WorkerHost:
        host = WorkerHost("run", "w", peer, {})
        host._loop = asyncio.get_running_loop()
        host._layout = Layout.of([TensorSpec("weight", (5,), "float32", "parameter")], shards=1)
        host._slab = Slab.create(host._layout, "none", shared=False)
        host._per_block, host._worker = per_block, SimpleNamespace(plugins={}, status=Status.running)
        host._computing = Closable()  # type: ignore[assignment]
        peers = {name: replace(peer, key=name) for name in ("server-0", "replica-0-0")}
        host._fetcher = Places(peers, seeing or set(), attach_s)  # type: ignore[assignment]
        host._session = Session(per_block=per_block)  # type: ignore[assignment]
        host._connect = network(answer)
        of = host._session.server_of
        arguments = host._connect, host._layout, "w", host._slab.vectors, peers, of, host._background
        host._pushes = Pushes(*arguments)
        return host

    return make


def asked(worker: WorkerHost) -> list[str]:
    """List who was asked to take a gradient, in order."""
    return [actor for _, actor, _ in worker._connect.calls]  # type: ignore[attr-defined]


def slowly(answer: Callable[..., Any], seconds: float = 0.1) -> Callable[..., Any]:
    async def wait(*arguments: Any) -> Any:
        await asyncio.sleep(seconds)
        return answer(*arguments)

    return wait


@pytest.mark.parametrize("server_is", ["full", "gone"])
def test_a_worker_that_has_left_pushes_no_more(worker: MakeWorker, jump: Jump, server_is: str) -> None:
    """Its Dask worker outlives the run: it would ask a server that is not there any more for ever."""

    def answer(*_arguments: Any) -> bool:
        if server_is == "gone":
            raise OSError
        return False

    async def leave() -> tuple[int, int]:
        one = worker(slowly(answer))
        one._line = Closable()  # type: ignore[assignment]
        one._expose(1)
        await asyncio.sleep(2.0)
        one._depart("the run is over")
        await asyncio.sleep(0.0)
        before = len(asked(one))
        await asyncio.sleep(60.0)
        assert one._loop.time() >= 62.0
        return before, len(asked(one))

    before, after = jump(leave())
    assert before == after > 1


@pytest.mark.parametrize("attach_s", [0.0, 0.5])
@pytest.mark.parametrize("moved_at", [0.0, 0.25, 0.75, 1.25])
@pytest.mark.parametrize("per_block", [False, True])
def test_whenever_its_server_is_replaced_a_gradient_is_pushed_to_the_new_one_and_announced_once(
    worker: MakeWorker, jump: Jump, attach_s: float, moved_at: float, per_block: bool
) -> None:
    """While the new server is asked whether it sees the slab, while the gradient is pushed, or afterwards."""
    under_way = most = 0

    async def answer(*_: Any) -> bool:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            await asyncio.sleep(0.5)
        finally:
            under_way -= 1
        return True

    async def replace_server() -> WorkerHost:
        one = worker(answer, attach_s=attach_s, per_block=per_block)
        for repetition in (0.0, 0.2, 10.0):  # whoever takes the coordinator over says it again
            one._loop.call_later(moved_at + repetition, one._do, one._follow_server(MOVED))
        one._expose(1)
        await asyncio.sleep(60.0)
        return one

    one = jump(replace_server())
    first = ["server-0"] if moved_at > attach_s else []
    assert asked(one) == [*first, "replica-0-0"]
    assert most == 1
    assert one._session.reachable == [Reachable(1, (0,)) if per_block else Reachable(1)]  # type: ignore[attr-defined]


def test_what_the_former_server_took_last_of_all_is_pushed_again(worker: MakeWorker, jump: Jump) -> None:
    """Its answer comes after the news of its successor."""

    async def replace_server() -> WorkerHost:
        one = worker(slowly(lambda *_: True, 0.5))
        one._loop.call_at(0.4, one._feed, MOVED)
        one._expose(1)
        await asyncio.sleep(60.0)
        return one

    assert asked(jump(replace_server())) == ["server-0", "replica-0-0"]


def test_nobody_waits_for_a_server_that_was_replaced(worker: MakeWorker, jump: Jump) -> None:
    """One that was stopped lets a call wait until its deadline."""

    async def replace_server() -> WorkerHost:
        one = worker(slowly(lambda *_: True, 30.0))
        one._loop.call_at(2.0, one._do, one._follow_server(MOVED))
        one._expose(1)
        await asyncio.sleep(3.0)
        return one

    assert asked(jump(replace_server())) == ["server-0", "replica-0-0"]


def test_two_servers_may_be_replaced_in_the_same_moment(worker: MakeWorker, jump: Jump) -> None:
    """A call that is being given up is not given up again."""

    async def replace_servers() -> WorkerHost:
        one = worker(slowly(lambda *_: True, 30.0))
        one._expose(1)
        await asyncio.sleep(2.0)
        one._feed(MOVED)
        asking = one._pushes._asking[0]
        for _ in range(10):
            if not asking.expired():
                await asyncio.sleep(0.0)
            one._pushes.redirect(0)
        assert asking.expired()
        await asyncio.sleep(60.0)
        return one

    assert asked(jump(replace_servers())) == ["server-0", "replica-0-0"]


def test_what_only_the_former_server_saw_is_pushed_to_one_that_does_not(worker: MakeWorker, jump: Jump) -> None:
    async def replace_server() -> WorkerHost:
        one = worker(lambda *_: True, seeing={"server-0"})
        one._expose(1)
        assert asked(one) == []
        await one._follow_server(MOVED)
        await asyncio.sleep(1.0)
        return one

    one = jump(replace_server())
    assert asked(one) == ["replica-0-0"]
    assert one._session.reachable == [Reachable(1)]  # type: ignore[attr-defined]


def test_what_is_about_to_be_written_over_is_not_pushed_any_more(worker: MakeWorker, jump: Jump) -> None:
    """Half of it would be another gradient."""
    whole: list[str] = []

    async def compute() -> WorkerHost:
        one = worker(slowly(lambda *_: whole.append("pushed"), 2.0), seeing={"server-0"})
        one._expose(1)
        await one._follow_server(MOVED)
        await asyncio.sleep(1.0)
        one._execute(Compute(0, 2, 0))
        await asyncio.sleep(60.0)
        return one

    assert asked(jump(compute())) == ["replica-0-0"]
    assert whole == []


def test_who_has_left_pushes_to_no_new_server(worker: MakeWorker, jump: Jump) -> None:
    """The news of it may come later than the order to leave."""

    async def leave() -> WorkerHost:
        one = worker(lambda *_: True, seeing={"server-0"})
        one._line = Closable()  # type: ignore[assignment]
        one._expose(1)
        one._depart("the run is over")
        await one.deliver("coordinator", encode([MOVED]))
        await asyncio.sleep(60.0)
        return one

    assert asked(jump(leave())) == []


def test_a_copy_that_is_made_before_a_worker_is_open_is_attached_to_with_the_others(
    worker: MakeWorker, peer: Peer, jump: Jump
) -> None:
    """A worker may need seconds to load its data, and a coordinator may be replaced meanwhile."""

    async def introduce() -> WorkerHost:
        one = worker(lambda *_: True)
        del one._fetcher
        place = {"address": peer.address, "key": "key"}
        await one.deliver("coordinator", encode([{"peer": "replica-0-7", "shard": 0, **place}, {"lead": 2, **place}]))
        return one

    one = jump(introduce())
    assert one._copies == {"replica-0-7": (0, Peer(peer.address, "key"))}
    assert one._coordinator == Peer(peer.address, "key")


def test_a_server_that_is_not_known_yet_is_pushed_to_as_soon_as_it_is(
    worker: MakeWorker, peer: Peer, jump: Jump
) -> None:
    async def wait() -> WorkerHost:
        one = worker(lambda *_: True)
        known = one._fetcher.peers.pop("server-0")
        one._expose(1)
        await asyncio.sleep(1.0)
        assert asked(one) == []
        one._fetcher.peers["server-0"] = known
        await asyncio.sleep(1.0)
        return one

    assert asked(jump(wait())) == ["server-0"]


def test_a_timer_of_the_same_name_replaces_the_one_before(worker: MakeWorker, jump: Jump) -> None:
    """Each pull sets one: with a long patience they would pile up."""
    fired: list[float] = []

    async def wait() -> None:
        one = worker(lambda *_: True)
        one._feed = lambda event: fired.append(one._loop.time())  # type: ignore[method-assign]
        for at in (1.0, 3.0, 2.0):
            one._execute(SetTimer("pull", at))
        await asyncio.sleep(9.0)

    jump(wait())
    assert fired == [2.0]
