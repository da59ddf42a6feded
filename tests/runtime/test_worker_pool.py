"""What an evaluator is told of the servers that it asks, and what becomes of what is decided of processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from psplatform.core.coordination.shards.state import ShardState
from psplatform.core.protocol.effects import Redirect
from psplatform.core.protocol.messages import Moved
from psplatform.core.protocol.place_messages import ActorAt
from psplatform.core.supervision.placement import Placement, Process
from psplatform.core.supervision.unavailable import UnavailableProcesses
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import Peer
from psplatform.runtime.pools.worker_pool import DaskWorkerPool

Jump = Callable[[Any], Any]
COPY = "tcp://10.0.0.1:1"
PLACE = ActorAt("replica-1-0", COPY, "b", 1)


class Ground:
    """A cluster of one process, in which nothing can be made, and which has `lacks`."""

    def __init__(self, lacks: str = "") -> None:
        self.left_out: dict[str, str] = {}
        self.asked: list[str] = []
        self.made: list[str] = []
        self._lacks = lacks

    def next_name(self, role: str) -> str:
        return f"{role}-9"

    async def cluster(self) -> Any:
        return [Process(COPY, "10.0.0.1", {})], {COPY}

    async def lack(self, address: str) -> str:
        self.asked.append(address)
        await asyncio.sleep(0.001)
        return self._lacks

    async def fits(self, process: Process) -> bool:
        return True

    async def meet(self, peer: Peer) -> None: ...

    async def create(self, actor: type, name: str, address: str, *arguments: Any) -> Peer:
        self.made.append(f"{name} {address}")
        return await asyncio.get_running_loop().create_future()


MISHAPS: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_goes_wrong() -> Iterator[None]:
    """Fail where a task in the background has raised anything."""
    MISHAPS.clear()
    yield
    assert MISHAPS == []


def host(**fields: Any) -> Any:
    program = SimpleNamespace(worker_lease_s=99.0, plan=SimpleNamespace(workers=1, max_workers=None))
    copies = SimpleNamespace(addresses={COPY}, place_of={"replica-1-0": PLACE}.get, directory=dict)
    known = {"program": program, "copies": copies, "unavailable": UnavailableProcesses()}
    told = partial(Background, MISHAPS.append)
    return SimpleNamespace(**{**known, "runs": True, "peer": Peer(COPY, "a"), "new_background": told, **fields})


def test_a_shard_whose_server_is_no_process_yet_is_no_hindrance_to_others(
    jump: Jump, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever takes over while a process is made of what the store keeps of one shard may have to move another."""

    async def redirect() -> list[Any]:
        sent: list[Any] = []
        shards = [ShardState(0, server="replica-0-0"), ShardState(1, server="server-1")]
        line = SimpleNamespace(send=sent.append, close=lambda: None)
        monkeypatch.setattr("psplatform.runtime.pools.worker_actor.Line", lambda *_, **__: line)
        where = {"connect": None, "sender": "", "on_refused": None, "whereabouts": lambda: "here"}
        worker_pool = DaskWorkerPool(host(**where), cast(Any, Ground()))
        worker_pool.adopt({"evaluator-1": ("evaluator", Peer("tcp://10.0.0.1:2", "c"))}, shards, set())
        for one in (Redirect(0, 2, "replica-0-0"), Redirect(1, 3, "replica-1-0")):
            worker_pool.redirect(one)
        worker_pool.close()
        return sent

    assert jump(redirect()) == ["here", PLACE, Moved(0, 1, 3, "replica-1-0")]


def test_an_evaluator_is_placed_twice_a_second_while_the_scheduler_cannot_be_asked(jump: Jump) -> None:
    """Each question fails at once then: without a pause, nothing else would get to run."""

    async def place() -> int:
        ground = Ground("could not be asked what it can import (no scheduler)")
        worker_pool = DaskWorkerPool(host(), cast(Any, ground))
        worker_pool.begin(Placement(COPY, COPY, (COPY,), ()))
        await asyncio.sleep(10)
        worker_pool.close()
        return len(ground.asked)

    assert 10 <= jump(place()) <= 21


def test_a_worker_is_made_beside_a_copy_when_there_would_be_none(jump: Jump) -> None:
    """Where the host of all gradient workers is lost, and every other process has a copy, the run would end."""

    async def watch() -> list[str]:
        ground = Ground()
        worker_pool = DaskWorkerPool(host(standbys=SimpleNamespace()), cast(Any, ground))
        worker_pool.begin(Placement(COPY, COPY, (COPY,), ()))
        await asyncio.sleep(8)
        assert ground.made == [f"evaluator-9 {COPY}"], "nannies may start others first"
        await asyncio.sleep(4)
        worker_pool.close()
        return ground.made

    assert jump(watch()) == [f"evaluator-9 {COPY}", f"worker-9 {COPY}"]


def test_the_last_answer_of_a_worker_is_kept_until_it_says_something_else(jump: Jump) -> None:
    """A release is said once: who asks again did not hear it."""

    async def ask() -> list[bytes]:
        worker_pool = DaskWorkerPool(host(standbys=SimpleNamespace()), cast(Any, Ground()))
        worker_pool.begin(Placement(COPY, COPY, (COPY,), (COPY,)))
        await asyncio.sleep(1)
        (name,) = (name for name in worker_pool._actors if name.startswith("worker"))
        worker_pool.note_answer(name, b"first", b"released")
        answers = [worker_pool.answer_again(*asked) for asked in ((name, b"first"), (name, b"x"), ("", b"first"))]
        worker_pool.note_answer(name, b"second", b"again")
        answers.append(worker_pool.answer_again(name, b"first"))
        worker_pool.close()
        return answers

    assert jump(ask()) == [b"released", b"", b"", b""]
