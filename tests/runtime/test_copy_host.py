"""A server's host: whom it makes wait, what it waits for itself, and what it lets go of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from psplatform.core.effects import Archive, Gather, Publish, Stage
from psplatform.core.messages import Contribution, Exclude, Include
from psplatform.core.server import MOST_AHEAD, Server
from psplatform.core.shard_copy import ShardCopy
from psplatform.core.wire import encode
from psplatform.jobs.replication import Chain
from psplatform.replication.accounts import account_factory
from psplatform.runtime.answering import POLL_S
from psplatform.runtime.beginning import Beginning
from psplatform.runtime.calls import Peer
from psplatform.runtime.copy_host import CopyHost
from psplatform.runtime.exposure import Exposures, Slab
from psplatform.runtime.following import PUSH_WAIT_S, Follower
from psplatform.tensors.layout import Layout
from psplatform.tensors.vectors import shard_vectors

Jump = Callable[[Any], Any]
AHEAD = MOST_AHEAD + 1
LIMIT_S = 60.0


@pytest.fixture
def server(layout: Layout, peer: Peer) -> CopyHost:
    """Make a server's host without a process: its arithmetic is not there."""
    make_account = account_factory(Chain(), 1)
    host = CopyHost("run", "server-0", 0, peer, Beginning(serving=True))
    host._control = ShardCopy(Server(0, name="server-0", make_account=make_account), make_account)
    host._exposures = Exposures(layout, 0)
    host._shard = SimpleNamespace(publish=lambda version: None)  # type: ignore[assignment]
    host._follower = Follower(host._exposures, host._shard)
    host._built.set()
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


def test_who_was_excluded_is_forgotten_when_what_is_captured_for_it_has_been(server: CopyHost) -> None:
    happened: list[str] = []
    server._carrier = SimpleNamespace(forget=happened.append)  # type: ignore[assignment]
    server._line = SimpleNamespace(send=lambda message: None)  # type: ignore[assignment]
    for replica in ("replica-0-0", "replica-0-1"):
        server._control.handle(Include(1, 1, replica), 0.0)

    async def exclude() -> None:
        server._loop = asyncio.get_running_loop()
        capturing = Event()
        server._arithmetic.submit(lambda: (capturing.wait(LIMIT_S), happened.append("captured")))
        await server.deliver("coordinator", encode([Exclude(0, 1, "replica-0-0"), Exclude(1, 1, "replica-0-1")]))
        assert happened == []
        capturing.set()
        await server._loop.run_in_executor(server._arithmetic, lambda: None)
        await asyncio.sleep(0.0)

    asyncio.run(exclude())
    assert happened == ["captured", "replica-0-1"], "an order of a lower term is not obeyed"


def test_who_is_closed_takes_orders_and_does_nothing(server: CopyHost, jump: Jump) -> None:
    """Its thread has ended, and the coordinator may not know that yet."""
    server._closed = True
    server._arithmetic.shutdown()

    async def exclude() -> bool:
        server._loop = asyncio.get_running_loop()
        return await server.deliver("coordinator", encode([Exclude(1, 1, "replica-0-0")]))

    assert jump(exclude())


def test_what_is_sent_to_many_is_copied_once(server: CopyHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """All workers ask for a version at the same time."""
    copies: list[Any] = []

    def copy(vectors: Any) -> dict[str, torch.Tensor]:
        copies.append(vectors)
        return {"all": torch.zeros(3)}

    monkeypatch.setattr("psplatform.runtime.content.private_copy", copy)
    server.content = SimpleNamespace(copies=({}, {}), holds=lambda copy, version, epoch: True)  # type: ignore[assignment]
    server._control.part.version = 7

    async def ask() -> list[Any]:
        server._loop = asyncio.get_running_loop()
        return await asyncio.gather(*(server._copied.newest(server.content, server._shown) for _ in range(5)))

    answers = asyncio.run(ask())
    assert [version for version, _ in answers] == [7] * 5
    assert len(copies) == 1


async def push_late(server: CopyHost, pieces: list[Any]) -> None:
    await asyncio.sleep(0.2)
    await server.push("w", 9, pieces)


async def push_another(server: CopyHost, pieces: list[Any]) -> None:
    await asyncio.sleep(0.3)
    await server.push("w", 10, pieces)


async def dismiss(server: CopyHost, pieces: list[Any]) -> None:
    await asyncio.sleep(0.4)
    await server.forget(1, "w", 1)


async def do_nothing(server: CopyHost, pieces: list[Any]) -> None:
    """Let it wait."""


@pytest.mark.parametrize("careful", [False, True])
@pytest.mark.parametrize(
    ("happening", "expected"),
    [
        (push_late, ("begun", 0.2)),
        (push_another, ("failed", 0.3)),
        (dismiss, ("failed", 0.4)),
        (do_nothing, ("failed", PUSH_WAIT_S)),
    ],
)
def test_who_became_the_server_waits_for_what_is_pushed_again(
    server: CopyHost,
    pieces: list[Any],
    jump: Jump,
    careful: bool,
    happening: Callable[..., Coroutine[Any, Any, None]],
    expected: tuple[str, float],
) -> None:
    """It may be told of a position before the workers hear of it; what cannot come any more is not waited for."""
    seen: list[tuple[str, float]] = []
    gather = Gather(1, (Contribution("w", 0, 9),), norms=False, careful=careful)
    archive = Archive(1, 0, 0, ())

    async def execute() -> None:
        loop = asyncio.get_running_loop()
        server._begin = lambda work: seen.append(("archived" if archive in work else "begun", loop.time()))  # type: ignore[method-assign]
        server._feed = lambda event: seen.append(("failed", loop.time()))  # type: ignore[method-assign]
        server._execute([archive, gather, Stage(1, 1.0, 0.1)])
        await happening(server, pieces)
        await asyncio.sleep(60.0)

    jump(execute())
    assert seen == [("archived", 0.0), expected]
