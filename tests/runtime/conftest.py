"""A process that is not there: remote calls answered by a function, on a clock that jumps."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast
from uuid import uuid4

import pytest
from distributed.protocol.serialize import Serialize

from psplatform.core.shards.replica import Replica, ShardCopy
from psplatform.core.shards.server import Server
from psplatform.jobs.compression import Compression
from psplatform.jobs.optimizers import SGD
from psplatform.jobs.replication import Chain
from psplatform.nodes.shard import ShardNode
from psplatform.replication.accounts import account_factory
from psplatform.runtime.actors.copy_host import CopyHost
from psplatform.runtime.actors.initial_role import InitialRole
from psplatform.runtime.comms.calls import Peer
from psplatform.runtime.comms.processes import ProcessId
from psplatform.runtime.dataplane import segments
from psplatform.runtime.dataplane.shard_state import SharedShardState
from psplatform.tensors.layout import Layout, TensorSpec
from psplatform.tensors.vectors import allocate, named_views
from psplatform.testing import JumpingLoop

T = TypeVar("T")

A_PROCESS = """
import sys, threading
from psplatform.runtime.comms.processes import this_process
leave = [threading.Event() for _ in range(int(sys.argv[1]))]
for event in leave:
    threading.Thread(target=event.wait, daemon=True).start()
process = this_process()
print(process.host, process.began, sep="|", flush=True)
for line in sys.stdin:
    if line.strip() == "end":
        break
    leave[int(line)].set()
    print("a thread has ended", flush=True)
"""

# What the function that stands for a peer gets: the method called, and its arguments.
Answer = Callable[..., Any]


@pytest.fixture
def jump() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Run a coroutine to its end on a clock that jumps."""

    def run(coroutine: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner(loop_factory=JumpingLoop) as runner:
            return runner.run(coroutine)

    return run


class NoActor(Exception):
    """What Dask itself raises, not the method: it has no such actor."""


class FakeNetwork:
    """Stands for ``worker.rpc``: every call goes to one function, which returns, waits or raises.

    An `OSError` it raises is the network's, what a `NoActor` holds is Dask's; other exceptions are the method's own.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.calls: list[tuple[str, str, str]] = []

    def __call__(self, address: str) -> Any:
        network = self

        class Remote:
            async def actor_execute(self, actor: str, function: str, args: list[Any], kwargs: Any) -> Any:
                network.calls.append((address, actor, function))
                try:
                    given = [one.data if isinstance(one, Serialize) else one for one in args]
                    result = network._answer(function, *given)
                    return {"status": "OK", "result": await result if asyncio.iscoroutine(result) else result}
                except OSError:
                    raise
                except NoActor as error:
                    raise error.args[0] from None
                except Exception as error:  # noqa: BLE001  what a remote method raises comes back as a value
                    return {"status": "error", "exception": error}

        return Remote()


@pytest.fixture
def network() -> Callable[[Answer], FakeNetwork]:
    """Make a network out of a function."""
    return FakeNetwork


@pytest.fixture
def without_actor() -> Callable[[Exception], Exception]:
    """Make an error that Dask raises instead of calling the method."""
    return NoActor


@pytest.fixture
def peer() -> Peer:
    return Peer("tcp://10.0.0.1:1234", "psplatform-run-somebody")


@pytest.fixture
def run_id() -> Iterator[str]:
    """Name a run whose segments, whatever becomes of the test, are gone after it."""
    run = f"test-{uuid4().hex[:8]}"
    yield run
    for folder in segments._folders():
        for path in folder.glob(f"*psplatform-{run}-*"):
            path.unlink(missing_ok=True)  # another process may sweep it meanwhile


@pytest.fixture
def files_of() -> Callable[[str], list[Path]]:
    """List whatever lies in shared memory under a run's id, hidden or not."""

    def find(run: str) -> list[Path]:
        return sorted(path for folder in segments._folders() for path in folder.glob(f"*psplatform-{run}-*"))

    return find


@pytest.fixture
def layout() -> Layout:
    """Lay out two parameters and a counter on two shards."""
    return Layout.of(
        [
            TensorSpec("weight", (3, 5), "float32", "parameter"),
            TensorSpec("bias", (3,), "float32", "parameter"),
            TensorSpec("seen", (), "int64", "buffer"),
        ],
        shards=2,
    )


@pytest.fixture
def make_host(layout: Layout, peer: Peer, run_id: str) -> Iterator[Callable[[Server | Replica], CopyHost]]:
    """Make the host of a copy of shard 0 as it is once it is open, on the running loop, without a Dask worker.

    What it sends to the coordinator goes nowhere.
    """
    opened: list[CopyHost] = []

    def make(part: Server | Replica) -> CopyHost:
        loop = asyncio.get_running_loop()
        plan = SimpleNamespace(workers=2, shards=2, protection=None, clip_norm=None, from_workers=False)
        program: Any = SimpleNamespace(
            run=run_id,
            plan=plan,
            cold=False,
            replication_target="replica",
            transport="auto",
            term=1,
            store="",
            optimizer=SGD(lr=1.0, momentum=0.9),
            checkpoints=SimpleNamespace(written=False),
            compression=Compression(),
            open=lambda device: (SimpleNamespace(initial=lambda: named_views(layout, allocate(layout))), layout),
            restore=lambda shard: None,
        )
        host = CopyHost(run_id, part.name, 0, peer, InitialRole(serving=isinstance(part, Server)))
        control = ShardCopy(part, account_factory(Chain(), 1))
        opened.append(host)
        host._connect = lambda address: pytest.fail("nobody is to be called")
        arguments = (
            host._initial_role,
            b"",
            host._connect,
            loop,
            host._arithmetic,
            host._background,
            host._made,
            host._report,
        )
        make_state = partial(SharedShardState, program, control, *arguments)
        host._node = ShardNode(control, loop.time, host._send, make_state, host._tell_readers, host._background.tell_of)
        host._begun.callback(host._node.close)
        host._begun.callback(host._node.state.close)
        host._begun.callback(host._node.state.content.answer_until, -math.inf, 0)
        host._coordinator.open(cast(Any, SimpleNamespace(send=lambda message: None, is_idle=True)))
        host._built.set()
        return host

    yield make
    for host in opened:
        host._made.close()
        host._arithmetic.shutdown()


@pytest.fixture
def begin(told_of_threads: None) -> Iterator[Callable[[int], tuple[subprocess.Popen[str], ProcessId]]]:
    """Start a process with so many threads besides its first, of which it ends those that it is told."""
    started = []

    def make(threads: int) -> tuple[subprocess.Popen[str], ProcessId]:
        command = [sys.executable, "-c", A_PROCESS, str(threads)]
        running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(running)
        assert running.stdout is not None
        host, began = running.stdout.readline().strip().split("|")
        return running, ProcessId(host, running.pid, int(began))

    yield make
    for running in started:
        running.kill()
        running.communicate()
