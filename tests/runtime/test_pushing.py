"""Pushing a block: the server makes whoever is far ahead wait, and who has left asks no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.core import Status

from psplatform.core.effects import Publish, SetTimer
from psplatform.core.server import MOST_AHEAD, Server
from psplatform.core.shard_copy import ShardCopy
from psplatform.runtime.calls import Peer
from psplatform.runtime.copy_host import POLL_S, Beginning, CopyHost
from psplatform.runtime.exposure import Exposures, Slab
from psplatform.runtime.following import Follower
from psplatform.runtime.worker_host import WorkerHost
from psplatform.tensors.layout import Layout
from psplatform.tensors.vectors import shard_vectors

Jump = Callable[[Any], Any]
AHEAD = MOST_AHEAD + 1


@pytest.fixture
def server(layout: Layout, peer: Peer) -> CopyHost:
    """Make a server's host without a process: its arithmetic is not there."""
    host = CopyHost("run", "server-0", 0, peer, Beginning(serving=True))
    host._control = ShardCopy(Server(0, name="server-0"), SimpleNamespace)  # type: ignore[arg-type]
    host._exposures = Exposures(layout, 0)
    host._shard = SimpleNamespace(publish=lambda version: None)  # type: ignore[assignment]
    host._follower = Follower(host._exposures, host._shard)
    host.content = SimpleNamespace(show=lambda copy, version, divergence: None)  # type: ignore[assignment]
    return host


@pytest.fixture
def pieces(layout: Layout) -> list[Any]:
    slab = Slab.create(layout, "none", shared=False)
    return [piece.numpy() for piece in shard_vectors(layout, 0, slab.vectors).values()]


def show(server: CopyHost, version: int) -> None:
    server._control.part.version = version
    server._execute([Publish(version, version)])


def test_a_push_that_is_far_ahead_is_taken_as_soon_as_the_server_has_room(
    server: CopyHost, pieces: list[Any], jump: Jump
) -> None:
    async def push() -> tuple[bool, float]:
        loop = asyncio.get_running_loop()
        loop.call_later(1.0, show, server, 1)
        return await server.push("w", 9, pieces, AHEAD), loop.time()

    assert jump(push()) == (True, 1.0)
    assert server._exposures.find("w", 9) is not None


def test_a_push_that_finds_no_room_in_time_is_sent_back(server: CopyHost, pieces: list[Any], jump: Jump) -> None:
    async def push() -> tuple[bool, float]:
        return await server.push("w", 9, pieces, AHEAD), asyncio.get_running_loop().time()

    assert jump(push()) == (False, POLL_S)
    assert server._exposures.find("w", 9) is None


def test_a_push_whose_version_is_over_is_taken_and_not_kept(server: CopyHost, pieces: list[Any], jump: Jump) -> None:
    show(server, 3)
    assert jump(server.push("w", 1, pieces, 2))
    assert server._exposures.find("w", 1) is None


def test_nothing_is_left_of_a_worker_whose_pushes_are_all_over(server: CopyHost, pieces: list[Any], jump: Jump) -> None:
    """One that was dismissed may push once more: its name would be kept for ever."""
    jump(server.push("w", 1, pieces, 0))
    show(server, 1)
    assert server._exposures._pushed == {}


class Closable:
    """Stands for a part that is closed with the worker."""

    def close(self) -> None:
        """Nothing is open."""


class BlindFetcher(Closable):
    """Knows servers that do not see this worker's slab."""

    def __init__(self, peer: Peer) -> None:
        self.peers = {"server-0": peer}

    def sees(self, copy: str) -> bool:
        return False

    async def attach(self, copy: str, shard: int) -> bool:
        return False


@pytest.fixture
def worker(layout: Layout, peer: Peer) -> WorkerHost:
    """Make a worker's host without a process, all of whose gradients are pushed."""
    host = WorkerHost("run", "w", peer, {"server-0": (0, peer)})
    host._layout, host._slab = layout, Slab.create(layout, "none", shared=False)
    host._per_block, host._worker = True, SimpleNamespace(plugins={}, status=Status.running)
    host._computing = host._line = Closable()  # type: ignore[assignment]
    host._fetcher = BlindFetcher(peer)  # type: ignore[assignment]
    return host


@pytest.mark.parametrize("server_is", ["full", "gone"])
def test_a_worker_that_has_left_pushes_no_more(worker: WorkerHost, network: Any, jump: Jump, server_is: str) -> None:
    """Its Dask worker outlives the run: it would ask a server that is not there any more for ever."""

    def answer(*_arguments: Any) -> bool:
        if server_is == "gone":
            raise OSError
        return False

    async def leave() -> tuple[int, int]:
        loop = worker._loop = asyncio.get_running_loop()
        worker._session = SimpleNamespace(counter=0, server_of=lambda shard: "server-0")  # type: ignore[assignment]
        connection = worker._connect = network(slowly(answer))
        worker._expose(1)
        await asyncio.sleep(2.0)
        worker._depart("the run is over")
        await asyncio.sleep(0.0)
        before = len(connection.calls)
        await asyncio.sleep(60.0)
        assert loop.time() >= 62.0
        return before, len(connection.calls)

    before, after = jump(leave())
    assert before == after > 1


def slowly(answer: Callable[..., Any]) -> Callable[..., Any]:
    async def wait(*arguments: Any) -> Any:
        await asyncio.sleep(0.1)
        return answer(*arguments)

    return wait


def test_a_timer_of_the_same_name_replaces_the_one_before(worker: WorkerHost, jump: Jump) -> None:
    """Each pull sets one: with a long patience they would pile up."""
    fired: list[float] = []

    async def wait() -> None:
        loop = worker._loop = asyncio.get_running_loop()
        worker._feed = lambda event: fired.append(loop.time())  # type: ignore[method-assign]
        for at in (1.0, 3.0, 2.0):
            worker._execute(SetTimer("pull", at))
        await asyncio.sleep(9.0)

    jump(wait())
    assert fired == [2.0]
