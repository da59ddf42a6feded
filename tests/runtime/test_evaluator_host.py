"""An evaluator's actor: what it measures when it is stopped is given up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from psplatform.core.policy import Scope
from psplatform.core.quality import Watch
from psplatform.runtime.actors import evaluator_host
from psplatform.runtime.actors.evaluator_host import EvaluatorHost
from psplatform.runtime.comms.calls import Peer
from psplatform.tasks.cancellation import Cancellation
from psplatform.tensors.layout import Layout

LIMIT_S = 180.0


class Endless:
    """A workspace whose held-out data have no end before that of the test."""

    def __init__(self) -> None:
        self.begins, self.ends, self.test_is_over = Event(), Event(), Event()
        self.cancel = Cancellation()

    def bind(self, *bound: Any) -> None: ...

    def evaluate(self, cancel: Cancellation) -> None:
        self.cancel = cancel
        self.begins.set()
        try:
            while not self.test_is_over.wait(0.001):
                cancel.check()
        finally:
            self.ends.set()


async def _connections(*_: Any) -> None:
    return None


async def _add(**_: Any) -> None:
    return None


@pytest.fixture
def program(tmp_path: Path, layout: Layout, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a program whose evaluator needs no Dask worker and no coordinator; its workspace is `Endless`."""
    worker = SimpleNamespace(address="tcp://127.0.0.1:2", plugin_add=_add)
    monkeypatch.setattr(evaluator_host, "get_worker", lambda: worker)
    monkeypatch.setattr(evaluator_host, "TRANSPORTS", {"auto": SimpleNamespace(connections=_connections)})
    monkeypatch.setattr(EvaluatorHost, "_make_line", lambda self, program: None)
    workspace = Endless()
    return SimpleNamespace(
        run="run",
        store=str(tmp_path),
        term=1,
        device="cpu",
        transport="auto",
        plan=SimpleNamespace(watch=Watch()),
        policy=SimpleNamespace(traits=SimpleNamespace(scope=Scope.MODEL)),
        slow_s=0.0,
        workspace=workspace,
        open=lambda device: (workspace, layout),
    )


def test_a_measurement_ends_when_its_evaluator_is_stopped(program: Any) -> None:
    """Its thread would go through all held-out data, and the end of the process would wait for it."""
    workspace: Endless = program.workspace

    async def measure_and_stop() -> None:
        servers = [("server-0", 1), ("server-1", 1)]
        evaluator: Any = EvaluatorHost("run", "evaluator-1", Peer("tcp://127.0.0.1:1", "coordinator"), servers, {})
        await evaluator.open(program)
        evaluator._node._evaluation.measure(3)
        try:
            assert await asyncio.to_thread(workspace.begins.wait, LIMIT_S)
            assert not workspace.cancel.cancelled
            await evaluator.close()
            assert workspace.cancel.cancelled
            assert await asyncio.to_thread(workspace.ends.wait, LIMIT_S)
        finally:
            workspace.test_is_over.set()

    asyncio.run(measure_and_stop())
