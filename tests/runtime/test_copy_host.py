"""A server's host: whom it makes wait, what it waits for itself, and what it lets go of."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from psplatform.core.protocol.effects import Archive, Gather, Load, Send, Skip, Transmit
from psplatform.core.protocol.messages import (
    STATE,
    Applied,
    Commit,
    Contribution,
    Exclude,
    Include,
    Outdated,
    Promoted,
    Pull,
    Pulled,
    Transfer,
)
from psplatform.core.protocol.names import COORDINATOR
from psplatform.core.protocol.wire import decode, encode
from psplatform.core.shards.replica import Replica
from psplatform.core.shards.server import MOST_AHEAD, Server
from psplatform.errors import ClusterError
from psplatform.jobs.replication import Chain
from psplatform.replication.accounts import account_factory
from psplatform.runtime.actors.copy_host import CopyHost
from psplatform.runtime.dataplane.gradients.gradient_buffers import Slab
from psplatform.runtime.dataplane.pulls.content import Content
from psplatform.runtime.dataplane.pulls.serving import PullServer
from psplatform.runtime.timeouts import TIMEOUTS
from psplatform.tensors.layout import Layout
from psplatform.tensors.vectors import shard_vectors

Jump = Callable[[Any], Any]
Make = Callable[[], CopyHost]
AHEAD = MOST_AHEAD + 1
PULL = Pull("w", 0, 1, 7)
LIMIT_S = 180.0


@pytest.fixture
def make(make_host: Callable[[Server], CopyHost]) -> Make:
    """Make the host of shard 0's server."""
    return lambda: make_host(Server(0, name="server-0", make_account=account_factory(Chain(), 1)))


@pytest.fixture
def pieces(layout: Layout) -> list[Any]:
    slab = Slab.create(layout, "none", shared=False)
    return [piece.numpy() for piece in shard_vectors(layout, 0, slab.vectors).values()]


def show(server: CopyHost, version: int) -> None:
    server._node.control.part.version = version
    server._node.state.skip(Skip(version, version))


def test_a_copy_that_has_failed_refuses_whatever_it_is_told(make: Make, jump: Jump) -> None:
    """Repeated, the message would be ignored as a duplicate where what follows from it has failed."""
    told: list[Exception] = []

    async def fail() -> None:
        server = make()
        handle = server._node.control.handle

        def fail_afterwards(event: Any, now: float) -> Any:
            if event == "what follows":
                raise ValueError("no room for that")
            server._node.feed("what follows")
            return handle(event, now)

        server._node.control.handle = fail_afterwards  # type: ignore[method-assign]
        server._node._on_failure = told.append
        for said in ((Include(1, 1, "replica-0-0"),), ()):
            with pytest.raises(ClusterError, match=r"server-0 has failed \(ValueError: no room for that\)"):
                server.take("coordinator-1", said)

    jump(fail())
    assert [str(one) for one in told] == ["no room for that"]


@pytest.mark.parametrize("is_within", [True, False])
def test_what_a_server_applies_at_once_is_its_answer(make: Make, jump: Jump, is_within: bool) -> None:
    """Repeated, for an answer may be lost, and as it is within a process."""

    async def commit() -> list[Any]:
        server = make()
        messages = (Commit(1, 1, 1, 1, (), 1.0),)
        said = messages if is_within else encode(messages)
        return [server.take("coordinator-1", said) for _ in range(2)]

    first, again = jump(commit())
    assert isinstance(first, tuple if is_within else bytes)
    answer = first if is_within else decode(first)
    assert [type(one) for one in answer] == [Applied]
    assert (answer[0].position, answer[0].version) == (1, 1)
    assert list(again if is_within else decode(again)) == list(answer)


def test_a_replica_lets_go_of_what_no_step_after_a_transfer_refers_to(
    make_host: Callable[[Replica], CopyHost], jump: Jump
) -> None:
    async def load() -> tuple[set[str], set[str]]:
        state = make_host(Replica(0, "replica-0-0", 0))._node.state
        state.receiver.load = lambda transfer, begin_writing: True  # type: ignore[method-assign]
        for member, last in (("a", 5), ("b", 6)):
            state.gradient_buffers.dismiss(member, last)
        before = set(state.gradient_buffers._dismissed)
        state.load(Load(Transfer("server-0", 0, 1, 1, STATE, 5, 5, 1.0, ())))
        return before, set(state.gradient_buffers._dismissed)

    assert jump(load()) == ({"a", "b"}, {"b"})


def test_a_push_that_is_far_ahead_is_taken_as_soon_as_the_server_has_room(
    make: Make, pieces: list[Any], jump: Jump
) -> None:
    async def push() -> None:
        server, loop = make(), asyncio.get_running_loop()
        loop.call_later(1.0, show, server, 1)
        assert await server.push("w", 9, pieces, AHEAD)
        assert loop.time() == 1.0
        assert server._node.state.gradient_buffers.find("w", 9) is not None

    jump(push())


def test_a_push_that_finds_no_room_in_time_is_sent_back(make: Make, pieces: list[Any], jump: Jump) -> None:
    async def push() -> None:
        server = make()
        assert not await server.push("w", 9, pieces, AHEAD)
        assert asyncio.get_running_loop().time() == TIMEOUTS.not_yet_s
        assert server._node.state.gradient_buffers.find("w", 9) is None

    jump(push())


def test_a_push_whose_version_is_over_is_taken_and_not_kept(make: Make, pieces: list[Any], jump: Jump) -> None:
    async def push() -> None:
        server = make()
        show(server, 3)
        assert await server.push("w", 1, pieces, 2)
        assert server._node.state.gradient_buffers.find("w", 1) is None

    jump(push())


def test_nothing_is_left_of_a_worker_whose_pushes_are_all_over(make: Make, pieces: list[Any], jump: Jump) -> None:
    """One that was dismissed may push once more: its name would be kept for ever."""

    async def push() -> None:
        server = make()
        await server.push("w", 1, pieces, 0)
        show(server, 1)
        assert server._node.state.gradient_buffers._pushed == {}

    jump(push())


def test_who_was_excluded_is_forgotten_when_what_is_captured_for_it_has_been(make: Make) -> None:
    happened: list[str] = []

    async def exclude() -> None:
        server, forgotten = make(), asyncio.Event()

        def forget(replica: str) -> None:
            happened.append(replica)
            forgotten.set()

        server._node.state.carrier = SimpleNamespace(forget=forget)  # type: ignore[assignment]
        for replica in ("replica-0-0", "replica-0-1"):
            server._node.control.handle(Include(1, 1, replica), 0.0)
        capturing = Event()
        server._arithmetic.submit(lambda: (capturing.wait(LIMIT_S), happened.append("captured")))
        await server.deliver("coordinator", encode([Exclude(0, 1, "replica-0-0"), Exclude(1, 1, "replica-0-1")]))
        await asyncio.sleep(0.0)
        assert happened == []
        capturing.set()
        async with asyncio.timeout(LIMIT_S):
            await forgotten.wait()

    asyncio.run(exclude())
    assert happened == ["captured", "replica-0-1"], "an order of a lower term is not obeyed"


def test_who_is_closed_takes_orders_and_does_nothing(make: Make, jump: Jump) -> None:
    """Its thread has ended, and the coordinator may not know that yet."""

    async def exclude() -> None:
        server = make()
        server._close("closed")
        assert await server.deliver("coordinator", encode([Include(1, 1, "replica-0-0"), Exclude(1, 1, "replica-0-0")]))
        assert server._node.control.part.term == 0, "it has heard nothing"

    jump(exclude())


def test_readers_are_told_until_when_what_is_shown_answers_pulls(make: Make, layout: Layout, jump: Jump) -> None:
    """Those of this host take it without asking."""

    async def serve() -> None:
        server = make()
        show(server, 7)
        reader = Content.open(layout, 0, server._node.state.content.name)
        assert reader is not None
        assert reader.answer(PULL, 0.0) is None, "nothing was said yet"
        await server.deliver("coordinator", encode([Include(1, 1, "replica-0-0")]))
        assert reader.answer(PULL, math.inf) is not None, "without leases it always answers"
        await server.deliver("coordinator", encode([Outdated(0, 2)]))
        assert reader.answer(PULL, 0.0) is None, "another one serves"

    jump(serve())


def test_readers_take_nothing_of_a_copy_that_was_closed(make: Make, layout: Layout, jump: Jump) -> None:
    async def serve() -> None:
        server = make()
        show(server, 7)
        reader = Content.open(layout, 0, server._node.state.content.name)
        assert reader is not None
        await server.deliver("coordinator", encode([Include(1, 1, "replica-0-0")]))
        server._close("the coordinator no longer knows this copy")
        assert reader.answer(PULL, 0.0) is None, "at once, whatever is still being computed"

    jump(serve())


def test_that_it_serves_is_said_once_under_each_epoch(make: Make, jump: Jump, caplog: pytest.LogCaptureFixture) -> None:
    """To the coordinator it is said again whenever one takes over."""
    caplog.set_level(logging.INFO, "psplatform")

    async def serve() -> None:
        server = make()
        for term, epoch in ((1, 2), (2, 2), (3, 3)):
            server._send(Send(COORDINATOR, Promoted(0, "server-0", epoch, 4, 4, term)))

    jump(serve())
    said = [one.getMessage().partition(": ")[2] for one in caplog.records if one.name == "psplatform.runtime"]
    assert said == ["serves shard 0 under epoch 2 from version 4", "serves shard 0 under epoch 3 from version 4"]


def test_what_is_sent_to_many_is_copied_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """All workers ask for a version at the same time."""
    copies: list[Any] = []

    def copy(vectors: Any) -> dict[str, torch.Tensor]:
        copies.append(vectors)
        return {"all": torch.zeros(3)}

    monkeypatch.setattr("psplatform.runtime.dataplane.pulls.content.private_copy", copy)

    async def ask() -> list[Any]:
        server = make()
        show(server, 7)
        return await asyncio.gather(*(server._node.state.newest() for _ in range(5)))

    answers = asyncio.run(ask())
    assert [version for version, _ in answers] == [7] * 5
    assert len(copies) == 1


def test_who_asks_after_a_push_hears_whether_it_is_kept_and_no_older_coordinator_drops_it_then(
    make: Make, pieces: list[Any], jump: Jump
) -> None:
    async def ask() -> list[bool]:
        server = make()
        await server.push("w", 9, pieces)
        kept = [await server.keeps(2, "w", sequence) for sequence in (9, 10)]
        await server.forget(1, "w", 0)
        show(server, 1)
        return [*kept, await server.keeps(2, "w", 9)]

    assert jump(ask()) == [True, False, True]


@pytest.mark.parametrize("awaits_all", [True, False])
@pytest.mark.parametrize("settled", [True, False])
def test_content_is_sent_from_where_it_lies_unless_it_is_to_be_settled_or_workers_are_not_waited_for(
    make: Make, awaits_all: bool, settled: bool
) -> None:
    """What is written over meanwhile is found out once it is sent."""

    async def answer(pull: Pull, finish: Callable[[Pulled], Any]) -> Any:
        return finish(Pulled(pull.shard, pull.request, 6, 1))

    async def pull() -> Any:
        server = make()
        traits = SimpleNamespace(awaits_all=awaits_all)
        program: Any = SimpleNamespace(slow_servers=None, policy=SimpleNamespace(traits=traits))
        server._pulls = PullServer(program, 0, server._node)
        server._pulls._answering = SimpleNamespace(answer_to=answer)  # type: ignore[assignment]
        show(server, 7)
        outgoing = await server.send_content(encode(PULL), settled)
        state = server._node.state
        shown = state.content.arrays(state.front)
        held = outgoing.holds()
        state.content.begin_writing(state.front)
        there = any(np.shares_memory(sent, lies) for sent, lies in zip(outgoing.arrays, shown, strict=True))
        return decode(outgoing.answer), there, held, outgoing.holds()

    in_place = awaits_all and not settled
    assert asyncio.run(pull()) == (Pulled(0, 1, 7, 1), in_place, True, not in_place)


@pytest.mark.parametrize("what", ["capture", "archive"])
def test_a_copy_that_is_given_up_while_it_computes_begins_nothing_more(make: Make, what: str) -> None:
    """Nobody could end that any more: its task would call a replica that is gone, again and again."""
    begun: list[str] = []
    transfer = Transfer("server-0", 0, 1, 1, STATE, 1, 1, 0.0, ())
    effect = Transmit("replica-0-0", transfer) if what == "capture" else Archive(1, 1, 1, ())

    async def give_up() -> None:
        server, loop = make(), asyncio.get_running_loop()
        state, computing, go_on = server._node.state, Event(), Event()
        state._is_small = False
        state._history = cast(Any, SimpleNamespace(archived=lambda *_: None, close=lambda: None))
        state._archiver.write = lambda *_: begun.append("archive")  # type: ignore[method-assign]
        state.carrier.send = lambda *_: begun.append("capture")  # type: ignore[method-assign]

        def compute() -> None:
            computing.set()
            assert go_on.wait(LIMIT_S)
            getattr(state, what)(effect)

        computed = loop.run_in_executor(server._arithmetic, compute)
        await asyncio.to_thread(computing.wait, LIMIT_S)
        server._close("closed")
        go_on.set()
        await computed
        assert server._given_back is not None
        await asyncio.wrap_future(server._given_back)
        await asyncio.sleep(0.01)

    asyncio.run(give_up())
    assert begun == []


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
        (push_late, (True, 0.2)),
        (push_another, (False, 0.3)),
        (dismiss, (False, 0.4)),
        (do_nothing, (False, TIMEOUTS.awaited_push_s)),
    ],
)
def test_who_became_the_server_waits_for_what_is_pushed_again(
    make: Make,
    pieces: list[Any],
    jump: Jump,
    careful: bool,
    happening: Callable[..., Coroutine[Any, Any, None]],
    expected: tuple[bool, float],
) -> None:
    """It may be told of a position before the workers hear of it; what cannot come any more is not waited for."""
    gather = Gather(1, (Contribution("w", 0, 9),), norms=False, careful=careful)

    async def execute() -> None:
        server, loop = make(), asyncio.get_running_loop()
        state, seen = server._node.state, []
        assert not state.has_all(gather)
        state.when_there(gather, lambda: seen.append((state.has_all(gather), loop.time())))
        await happening(server, pieces)
        await asyncio.sleep(60.0)
        assert seen == [expected]

    jump(execute())
