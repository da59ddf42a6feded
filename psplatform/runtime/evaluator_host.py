"""Measures versions on held-out data and saves them, as a Dask actor beside the training.

It pulls one published version like any worker and measures it in a thread of its own: nobody waits for it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from distributed import get_worker

from psplatform.core.effects import Evaluate, SaveModel
from psplatform.core.events import Evaluated, EvaluationFailed, ModelSaved, SaveFailed
from psplatform.core.messages import Pull, Pulled
from psplatform.core.policy import Scope
from psplatform.core.pulling import Pulling
from psplatform.core.wire import decode
from psplatform.errors import StoreError
from psplatform.replication.store import save_model
from psplatform.runtime.calls import Peer, call
from psplatform.runtime.fetching import Fetcher
from psplatform.runtime.lines import Line
from psplatform.runtime.program import Program, choose_device
from psplatform.runtime.worker_host import ATTACH_DEADLINE_S
from psplatform.tasks.cancellation import Cancellation
from psplatform.tasks.foreign import describe
from psplatform.tensors.vectors import allocate, named_views


class EvaluatorHost:
    """Answers `Evaluate` and `SaveModel` of the coordinator, one after the other."""

    def __init__(self, run: str, name: str, coordinator: Peer, servers: tuple[Peer, ...]) -> None:
        self._run, self._name = run, name
        self._coordinator, self._servers = coordinator, servers
        self._pulling = Pulling(name, len(servers), exact=True)
        self._arrived = asyncio.Event()
        self._work: asyncio.Queue[Evaluate | SaveModel] = asyncio.Queue()

    async def open(self, program: Program) -> None:
        """Build the task and begin to answer; must be called once, before anything else."""
        self._program = program
        # Blocks with versions of their own have none in common.
        self._pulling.exact = program.policy.traits.scope is Scope.MODEL
        self._connect = get_worker().rpc
        self._loop = asyncio.get_running_loop()
        await self._loop.run_in_executor(None, self._build)
        self._fetcher = Fetcher(
            self._connect,
            self._layout,
            self._servers,
            self._values,
            self._pulling.expects,
            self._on_pulled,
            slow_s=self._program.slow_s,
        )
        for shard, server in enumerate(self._servers):
            _, segment = await call(self._connect, server, "attach", self._name, None, deadline_s=ATTACH_DEADLINE_S)
            if program.transport != "comms":
                self._fetcher.attach(shard, segment)
        self._line = Line(
            self._connect,
            self._coordinator,
            self._name,
            patience_s=program.worker_lease_s,
            on_lost=lambda reason: self._stop(),
            on_refused=self._stop,
            beat_s=program.worker_lease_s / 8,
        )
        self._working = self._loop.create_task(self._work_off())

    def _build(self) -> None:
        device = choose_device(self._program.device)
        self._workspace, self._layout = self._program.open(device)
        self._values = allocate(self._layout)
        # A GPU keeps its own vectors; on the CPU they are the ones that pulls are copied into.
        on_cpu = device.type == "cpu"
        self._near = self._values if on_cpu else allocate(self._layout, device=device)
        self._workspace.bind(self._layout, self._near, allocate(self._layout, device=device))

    async def deliver(self, sender: str, data: bytes) -> bool:
        """Take orders of the coordinator."""
        for message in decode(data):
            self._work.put_nowait(message)
        return True

    async def close(self) -> None:
        """Stop answering."""
        self._stop()

    async def _work_off(self) -> None:
        while True:
            order = await self._work.get()
            self._line.send(await (self._evaluate(order) if isinstance(order, Evaluate) else self._save(order)))

    async def _evaluate(self, order: Evaluate) -> Evaluated | EvaluationFailed:
        version = await self._fetch(order.version)
        if not order.measure:
            return Evaluated(version, None, None)
        try:
            found = await self._loop.run_in_executor(None, self._measure)
        except Exception as error:  # noqa: BLE001  the seam where whatever the user's code raises becomes an event
            return EvaluationFailed(*describe(error))
        if found is None:
            return Evaluated(version, None, None)
        return Evaluated(version, found.loss, found.accuracy)

    def _measure(self) -> Any:
        if self._near is not self._values:
            for key, vector in self._values.items():
                self._near[key].copy_(vector)
        return self._workspace.evaluate(Cancellation())

    async def _fetch(self, version: int) -> int:
        self._arrived.clear()
        self._ask(self._pulling.begin(version))
        await self._arrived.wait()
        label = self._pulling.label
        return label.version if label is not None else version

    def _ask(self, pulls: list[Pull]) -> None:
        for pull in pulls:
            self._fetcher.pull(pull)

    def _on_pulled(self, pulled: Pulled) -> None:
        self._ask(self._pulling.on_pulled(pulled))
        if self._pulling.label is not None:
            self._arrived.set()

    async def _save(self, order: SaveModel) -> ModelSaved | SaveFailed:
        views = named_views(self._layout, self._values)
        arrays = {name: view.numpy() for name, view in views.items()}
        try:
            await asyncio.to_thread(save_model, self._program.store, arrays, version=order.version)
        except StoreError as error:
            return SaveFailed(str(error), error.store)
        return ModelSaved(order.version)

    def _stop(self) -> None:
        self._working.cancel()
        self._line.close()
        self._fetcher.close()
