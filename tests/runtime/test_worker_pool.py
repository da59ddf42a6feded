"""What an evaluator is told of the servers that it asks, and where gradient workers are made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from psplatform.core.coordination.shards import ShardState
from psplatform.core.protocol.effects import Redirect
from psplatform.core.protocol.messages import Moved
from psplatform.core.protocol.place_messages import ActorAt
from psplatform.core.supervision.placement import Process
from psplatform.runtime.comms.calls import Peer
from psplatform.runtime.pools.worker_actor import WorkerActor
from psplatform.runtime.pools.worker_pool import DaskWorkerPool

Jump = Callable[[Any], Any]
COPY = "tcp://10.0.0.1:1"
PLACE = ActorAt("replica-1-0", "tcp://10.0.0.1:1", "b", 1)


def test_a_shard_whose_server_is_no_process_yet_is_no_hindrance_to_others(jump: Jump) -> None:
    """Whoever takes over while a process is made of what the store keeps of one shard may have to move another."""

    async def redirect() -> list[Any]:
        sent: list[Any] = []
        program = SimpleNamespace(worker_lease_s=1.0, plan=SimpleNamespace(workers=1))
        copies = SimpleNamespace(place_of={"replica-1-0": PLACE}.get, addresses=set())
        host = SimpleNamespace(program=program, on_mishap=sent.append, copies=copies)
        worker_pool = DaskWorkerPool(cast(Any, host), cast(Any, SimpleNamespace(cluster=lambda: asyncio.sleep(99))))
        shards = [ShardState(0, server="replica-0-0"), ShardState(1, server="server-1")]
        worker_pool.adopt({}, shards, set())
        line = cast(Any, SimpleNamespace(send=sent.append, close=lambda: None))
        worker_pool._evaluator = WorkerActor("evaluator-1", "tcp://10.0.0.1:2", Peer("tcp://10.0.0.1:2", "c"), line)
        for one in (Redirect(0, 2, "replica-0-0"), Redirect(1, 3, "replica-1-0")):
            worker_pool.redirect(one)
        worker_pool.close()
        return sent

    assert jump(redirect()) == [PLACE, Moved(0, 1, 3, "replica-1-0")]


def test_an_evaluator_is_placed_twice_a_second_while_the_scheduler_cannot_be_asked(jump: Jump) -> None:
    """Each question fails at once then: without a pause, nothing else would get to run."""

    async def place() -> int:
        asked: list[str] = []

        async def lack(address: str) -> str:
            asked.append(address)
            await asyncio.sleep(0.001)
            return "could not be asked what it can import (no scheduler)"

        program = SimpleNamespace(worker_lease_s=1.0, plan=SimpleNamespace(workers=1))
        unavailable = SimpleNamespace(addresses=set())
        copies = SimpleNamespace(addresses=set())
        host = SimpleNamespace(
            program=program, on_mishap=None, copies=copies, unavailable=unavailable, peer=Peer("tcp://10.0.0.1:1", "a")
        )
        worker_pool = DaskWorkerPool(cast(Any, host), cast(Any, SimpleNamespace(lack=lack, left_out={})))
        actor = worker_pool._evaluator = WorkerActor("evaluator-1", "tcp://10.0.0.1:2")
        opening = asyncio.create_task(worker_pool._open_evaluator(actor))
        await asyncio.sleep(10)
        worker_pool._evaluator = None
        await opening
        return len(asked)

    assert 10 <= jump(place()) <= 21


@pytest.mark.parametrize(("deserted", "made"), [(False, []), (True, [COPY])], ids=["one is left", "none is left"])
def test_a_worker_is_made_beside_a_copy_when_there_would_be_none(
    jump: Jump, monkeypatch: pytest.MonkeyPatch, *, deserted: bool, made: list[str]
) -> None:
    """Where the host of all gradient workers is lost, and every other process has a copy, the run would end."""

    async def watch() -> list[str]:
        started: list[str] = []
        processes = [Process(COPY, "10.0.0.1", {})]

        async def cluster() -> Any:
            return processes, {COPY}

        async def fits(process: Process) -> bool:
            return True

        program = SimpleNamespace(worker_lease_s=99.0, plan=SimpleNamespace(workers=2))
        copies = SimpleNamespace(addresses={COPY})
        unavailable = SimpleNamespace(addresses=set())
        host = SimpleNamespace(
            program=program, on_mishap=started.append, copies=copies, unavailable=unavailable, runs=True
        )
        worker_pool = DaskWorkerPool(
            cast(Any, host), cast(Any, SimpleNamespace(cluster=cluster, fits=fits, left_out={}))
        )
        monkeypatch.setattr(worker_pool, "_start_worker", started.append)
        worker_pool._seen = {COPY}
        worker_pool._evaluator = WorkerActor("evaluator-1", COPY)
        if not deserted:
            worker_pool._workers["worker-1"] = WorkerActor("worker-1", "tcp://10.0.0.2:1")
        watching = asyncio.create_task(worker_pool._watch_cluster())
        await asyncio.sleep(8)
        assert started == [], "nannies may start others first"
        await asyncio.sleep(4)
        watching.cancel()
        worker_pool.close()
        return started[:1]

    assert jump(watch()) == made
