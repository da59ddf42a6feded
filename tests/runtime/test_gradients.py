"""A gradient on its way: whoever serves the shard in the end has it, and a worker that has left asks no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from psplatform.core.protocol.effects import Compute, Expose
from psplatform.core.protocol.events import Reachable
from psplatform.core.protocol.messages import Moved
from psplatform.core.protocol.place_messages import ActorAt, CoordinatorAt
from psplatform.core.protocol.wire import encode
from psplatform.runtime.actors.worker.gradients import SlabGradients
from psplatform.runtime.actors.worker.host import WorkerHost
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import Peer
from psplatform.runtime.dataplane.gradients.gradient_buffers import Slab
from psplatform.runtime.dataplane.gradients.pushing import Pushes
from psplatform.runtime.dataplane.replicas.replica_feed import NoReplicaFeed
from psplatform.tensors.layout import Layout, TensorSpec

Jump = Callable[[Any], Any]


class Computing:
    """Stands for the thread: is told to begin, and computes nothing."""

    def start(self, effect: Any) -> None:
        """Nothing is computed."""

    def close(self) -> None:
        """Nothing is open."""


class Places:
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


class Server:
    """Names the server of shard 0."""

    name = "server-0"

    def server_of(self, shard: int) -> str:
        return self.name


class Worker:
    """The gradients of a worker with one shard, what becomes of them, and who was asked to take one, in order."""

    def __init__(self, connect: Any, peers: dict[str, Peer], seeing: set[str], attach_s: float, counter: int) -> None:
        layout = Layout.of([TensorSpec("weight", (5,), "float32", "parameter")], shards=1)
        slab = Slab.create(layout, "none", shared=False)
        self.background, self.peers, self._connect = Background(), peers, connect
        self.server, self.told, self._counter = Server(), list[Any](), counter
        self.pushes = Pushes(connect, layout, "w", slab.vectors, peers, self.server.server_of, self.background)
        parts: Any = self.server, slab, Computing(), Places(peers, seeing, attach_s), self.pushes, NoReplicaFeed()
        of_blocks = {"shards": 1, "per_block": counter >= 0}
        self.gradients = SlabGradients(*parts, self.background, self.told.append, **of_blocks)

    def expose(self) -> None:
        self.gradients.expose(Expose(0, 1), self._counter)

    async def move(self) -> None:
        """Hear that the shard is served by its replica now, as often as that is said."""
        before, self.server.name = self.server.name, "replica-0-0"
        if before != self.server.name:
            await self.gradients.redirect(0, before)

    def leave(self) -> None:
        self.gradients.close()
        self.background.close()

    @property
    def asked(self) -> list[str]:
        return [actor for _, actor, _ in self._connect.calls]


MakeWorker = Callable[..., Worker]


@pytest.fixture
def worker(peer: Peer, network: Any) -> MakeWorker:
    """Make a worker's gradients without a process; call it where the loop runs."""

    def make(
        answer: Callable[..., Any], seeing: set[str] | None = None, attach_s: float = 0.0, *, per_block: bool = False
    ) -> Worker:
        peers = {name: replace(peer, key=name) for name in ("server-0", "replica-0-0")}
        return Worker(network(answer), peers, seeing or set(), attach_s, 3 if per_block else -1)

    return make


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
        one.expose()
        await asyncio.sleep(2.0)
        one.leave()
        await asyncio.sleep(0.0)
        before = len(one.asked)
        await asyncio.sleep(60.0)
        return before, len(one.asked)

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

    async def replace_server() -> Worker:
        one = worker(answer, attach_s=attach_s, per_block=per_block)
        for repetition in (0.0, 0.2, 10.0):  # whoever takes the coordinator over says it again
            asyncio.get_running_loop().call_later(moved_at + repetition, one.background.do, one.move())
        one.expose()
        await asyncio.sleep(60.0)
        return one

    one = jump(replace_server())
    first = ["server-0"] if moved_at > attach_s else []
    assert one.asked == [*first, "replica-0-0"]
    assert most == 1
    assert one.told == [Reachable(1, (0,)) if per_block else Reachable(1)]


def test_what_the_former_server_took_last_of_all_is_pushed_again(worker: MakeWorker, jump: Jump) -> None:
    """Its answer comes after the news of its successor."""

    async def replace_server() -> Worker:
        one = worker(slowly(lambda *_: True, 0.5))
        asyncio.get_running_loop().call_at(0.4, setattr, one.server, "name", "replica-0-0")
        one.expose()
        await asyncio.sleep(60.0)
        return one

    assert jump(replace_server()).asked == ["server-0", "replica-0-0"]


def test_nobody_waits_for_a_server_that_was_replaced(worker: MakeWorker, jump: Jump) -> None:
    """One that was stopped lets a call wait until its deadline."""

    async def replace_server() -> Worker:
        one = worker(slowly(lambda *_: True, 30.0))
        asyncio.get_running_loop().call_at(2.0, one.background.do, one.move())
        one.expose()
        await asyncio.sleep(3.0)
        return one

    assert jump(replace_server()).asked == ["server-0", "replica-0-0"]


def test_two_servers_may_be_replaced_in_the_same_moment(worker: MakeWorker, jump: Jump) -> None:
    """A call that is being given up is not given up again."""

    async def replace_servers() -> Worker:
        one = worker(slowly(lambda *_: True, 30.0))
        one.expose()
        await asyncio.sleep(2.0)
        one.server.name = "replica-0-0"
        asking = one.pushes._asking[0]
        for _ in range(10):
            if not asking.expired():
                await asyncio.sleep(0.0)
            one.pushes.redirect(0)
        assert asking.expired()
        await asyncio.sleep(60.0)
        return one

    assert jump(replace_servers()).asked == ["server-0", "replica-0-0"]


def test_what_only_the_former_server_saw_is_pushed_to_one_that_does_not(worker: MakeWorker, jump: Jump) -> None:
    async def replace_server() -> Worker:
        one = worker(lambda *_: True, seeing={"server-0"})
        one.expose()
        assert one.asked == []
        await one.move()
        await asyncio.sleep(1.0)
        return one

    one = jump(replace_server())
    assert one.asked == ["replica-0-0"]
    assert one.told == [Reachable(1)]


def test_what_is_about_to_be_written_over_is_not_pushed_any_more(worker: MakeWorker, jump: Jump) -> None:
    """Half of it would be another gradient."""
    whole: list[str] = []

    async def compute() -> Worker:
        one = worker(slowly(lambda *_: whole.append("pushed"), 2.0), seeing={"server-0"})
        one.expose()
        await one.move()
        await asyncio.sleep(1.0)
        one.gradients.compute(Compute(0, 2, None))
        await asyncio.sleep(60.0)
        return one

    assert jump(compute()).asked == ["replica-0-0"]
    assert whole == []


@pytest.mark.parametrize("kept", [True, False])
def test_what_the_server_dropped_for_a_coordinator_that_was_replaced_is_pushed_again(
    worker: MakeWorker, jump: Jump, kept: bool
) -> None:
    """The server may have been told that the worker is lost, by one that was cut off itself."""
    methods: list[str] = []

    def answer(method: str, *_: Any) -> bool:
        methods.append(method)
        return kept if method == "keeps" else True

    async def be_dismissed_in_vain() -> Worker:
        one = worker(answer)
        await one.gradients.push_again(2)
        one.expose()
        await asyncio.sleep(1.0)
        await one.gradients.push_again(2)
        await asyncio.sleep(1.0)
        one.gradients.compute(Compute(0, 2, None))
        await one.gradients.push_again(3)
        return one

    assert jump(be_dismissed_in_vain()).told == [Reachable(1)]
    assert methods == ["push", "keeps", *(["push"] if not kept else [])]


def test_whether_a_gradient_is_kept_that_is_under_way_is_asked_once_it_is_there(worker: MakeWorker, jump: Jump) -> None:
    async def hear_of_a_coordinator() -> Worker:
        one = worker(slowly(lambda *_: True, 1.0))
        one.expose()
        await asyncio.sleep(0.5)
        await one.gradients.push_again(2)
        await asyncio.sleep(60.0)
        return one

    assert len(jump(hear_of_a_coordinator()).asked) == 2


def test_a_server_that_is_gone_is_not_pushed_to_again_before_another_is_named(worker: MakeWorker, jump: Jump) -> None:
    def answer(method: str, *_: Any) -> bool:
        if method == "keeps":
            raise OSError
        return True

    async def hear_of_a_coordinator() -> Worker:
        one = worker(answer)
        one.expose()
        await asyncio.sleep(1.0)
        await one.gradients.push_again(2)
        await asyncio.sleep(60.0)
        return one

    assert len(jump(hear_of_a_coordinator()).asked) == 2


def test_a_worker_that_has_left_follows_no_new_server(peer: Peer, jump: Jump) -> None:
    """The news of it may come later than the order to leave."""

    async def leave() -> bool:
        one = WorkerHost("run", "w", peer, {})
        await one.close()
        followed = asyncio.all_tasks()
        await one.deliver("coordinator", encode([Moved(term=1, shard=0, copy="replica-0-0", epoch=2)]))
        return asyncio.all_tasks() == followed

    assert jump(leave())


def test_a_copy_that_is_made_before_a_worker_is_open_is_attached_to_with_the_others(peer: Peer, jump: Jump) -> None:
    """A worker may need seconds to load its data, and a coordinator may be replaced meanwhile."""

    async def introduce() -> WorkerHost:
        one = WorkerHost("run", "w", peer, {})
        told = [ActorAt("replica-0-7", peer.address, "key", 0), CoordinatorAt(2, peer.address, "key")]
        await one.deliver("coordinator", encode(told))
        return one

    one = jump(introduce())
    assert one._copies == {"replica-0-7": (0, Peer(peer.address, "key"))}
    assert one._coordinator.peer == Peer(peer.address, "key")


def test_a_server_that_is_not_known_yet_is_pushed_to_as_soon_as_it_is(
    worker: MakeWorker, peer: Peer, jump: Jump
) -> None:
    async def wait() -> Worker:
        one = worker(lambda *_: True)
        known = one.peers.pop("server-0")
        one.expose()
        await asyncio.sleep(1.0)
        assert one.asked == []
        one.peers["server-0"] = known
        await asyncio.sleep(1.0)
        return one

    assert jump(wait()).asked == ["server-0"]
