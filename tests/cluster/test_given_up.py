"""Copies that are given up while they are being made: their process lives on, and nothing of them is left in it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from distributed import Client
from torch import nn

import psplatform as ps
from psplatform.client.starting.prepared import prepare, program_of
from psplatform.errors import StoreError
from psplatform.runtime.actors.copy_host import CopyHost
from psplatform.runtime.actors.initial_role import InitialRole
from psplatform.runtime.comms.calls import Peer, PeerLost, call, connections_of
from psplatform.runtime.program import Program, Resume
from psplatform.runtime.trial import Trial

Until = Callable[..., None]
Segments = Callable[[str], list[Path]]
Make = Callable[[str, InitialRole], "Copy"]
LIMIT_S = 180.0
SERVING = InitialRole(serving=True, replicas=("replica-0-0",))
NOWHERE = Peer("tcp://127.0.0.1:1", "psplatform-none")


@pytest.fixture
def here(start_here: Callable[..., AbstractContextManager[Client]]) -> Iterator[Client]:
    """Start a Dask worker in this process."""
    with start_here() as client:
        yield client


def network(gate: Path) -> nn.Module:
    """Make a model as soon as a file is there."""
    gate.with_suffix(".reached").touch()
    give_up_at = time.monotonic() + LIMIT_S
    while not gate.exists():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)
    return nn.Linear(2, 2)


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """Name the file without which no copy is opened."""
    return tmp_path / "gate"


@pytest.fixture
def program(small: dict[str, Any], gate: Path, tmp_path: Path) -> Program:
    """Make the program of a run with a server and a replica."""
    fields = {**small, "model": partial(network, gate), "shards": 1, "replication": ps.Bounded()}
    prepared = prepare(ps.Job(**fields, store=str(tmp_path / "run.zarr")))
    return program_of(
        prepared, Trial(samples=240, parameters=6, evaluates=False, gradient_bytes=(24,)), 2, prepared.job.replication
    )


class Copy:
    """A copy in the Dask worker of this process, asked as other processes ask it."""

    def __init__(self, client: Client, program: Program, name: str, initial_role: InitialRole) -> None:
        arguments = program.run, name, 0, NOWHERE, initial_role
        actor = client.submit(CopyHost, *arguments, actor=True, key=name, pure=False)
        assert actor.exception(LIMIT_S) is None
        (self._worker,) = client.cluster.workers.values()
        self._client, self._made, self._name = client, actor, name
        self.host: CopyHost = self._worker.state.actors[name]

    def ask(self, method: str, *arguments: Any) -> Future[Any]:
        peer = Peer(self._worker.address, self._name)
        calling = call(connections_of(self._worker), peer, method, *arguments, deadline_s=LIMIT_S)
        return asyncio.run_coroutine_threadsafe(calling, self._client.loop.asyncio_loop)


@pytest.fixture
def copy(here: Client, program: Program) -> Make:
    """Make a copy that is not open yet."""
    return partial(Copy, here, program)


def test_a_copy_that_was_given_up_before_it_was_opened_cannot_be(copy: Make, program: Program) -> None:
    """The coordinator that asks for it may not know yet."""
    server = copy("server-0", SERVING)
    server.ask("close").result(LIMIT_S)
    with pytest.raises(PeerLost, match="server-0 was given up before it was open"):
        server.ask("open", program).result(LIMIT_S)


@pytest.mark.parametrize("way", ["close", "retire"])
def test_a_copy_that_is_given_up_while_it_is_opened_leaves_nothing(
    copy: Make, program: Program, gate: Path, until: Until, segments: Segments, way: str
) -> None:
    """A run may end, or go on without it."""
    server = copy("server-0", SERVING)
    opening = server.ask("open", program)
    until(gate.with_suffix(".reached").exists, "it is being opened")
    server.ask(way).result(LIMIT_S)
    gate.touch()
    with pytest.raises(PeerLost, match="server-0 was given up before it was open"):
        opening.result(LIMIT_S)
    until(lambda: segments(program.run) == [], "nothing is left in shared memory", LIMIT_S)


def test_a_copy_that_cannot_be_opened_leaves_nothing(
    copy: Make, program: Program, gate: Path, until: Until, segments: Segments
) -> None:
    """Here the checkpoint that it is to begin with is not there."""
    gate.touch()
    state = {"newest": [], "positions": [3], "version": 3}
    resumed = replace(program, resume=Resume(number=7, term=2, state=state, succeeds=1))
    with pytest.raises(StoreError):
        copy("server-0", SERVING).ask("open", resumed).result(LIMIT_S)
    until(lambda: segments(program.run) == [], "nothing is left in shared memory", LIMIT_S)


def test_a_copy_that_is_closed_while_it_computes_leaves_nothing(
    copy: Make, program: Program, gate: Path, until: Until, segments: Segments
) -> None:
    """A replica may have been made known to it in the run's last moment."""
    gate.touch()
    server = copy("server-0", SERVING)
    server.ask("open", program).result(LIMIT_S)
    computing, closed = Event(), Event()

    def compute() -> None:
        computing.set()
        assert closed.wait(LIMIT_S)
        server.host._node.state.carrier.prepare("replica-0-1")

    work = server.host._arithmetic.submit(compute)
    assert computing.wait(LIMIT_S)
    closing = server.ask("close")
    until(lambda: server.host._closed, "it is closed")
    closed.set()
    work.result(LIMIT_S)
    closing.result(LIMIT_S)
    assert segments(program.run) == [], "who asked for that has waited for it"
