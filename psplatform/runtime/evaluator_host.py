"""Measures versions on held-out data and saves them, as a Dask actor beside the training.

It pulls one published version like any worker and measures it in a thread of its own: nobody waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from distributed import get_worker

from psplatform.core.effects import Evaluate, SaveModel
from psplatform.core.events import Evaluated, EvaluationFailed, ModelSaved, SaveFailed
from psplatform.core.messages import Moved, Pull, Pulled
from psplatform.core.policy import Scope
from psplatform.core.pulling import Pulling
from psplatform.core.wire import decode
from psplatform.errors import StoreError
from psplatform.replication.guard import StoreGone, StoreGuard
from psplatform.replication.store import save_best, save_model
from psplatform.runtime.background import Background
from psplatform.runtime.calls import Peer, connections_of
from psplatform.runtime.fetching import Fetcher
from psplatform.runtime.lines import Line
from psplatform.runtime.processes import Locatable
from psplatform.runtime.program import Program, choose_device
from psplatform.runtime.retirement import before_the_end, not_before_the_end
from psplatform.tasks.cancellation import Cancellation
from psplatform.tasks.foreign import describe
from psplatform.tensors.vectors import allocate, named_views

_Made = TypeVar("_Made")

_TRIES: Final = 20
_PAUSE_S: Final = 0.5
"""A store that was removed is made anew within a second; so often and so far apart it is looked for."""


class EvaluatorHost(Locatable):
    """Answers `Evaluate` and `SaveModel` of the coordinator, one after the other."""

    def __init__(
        self,
        run: str,
        name: str,
        coordinator: Peer,
        servers: Sequence[tuple[str, int]],
        copies: Mapping[str, tuple[int, Peer]],
    ) -> None:
        self._run, self._name = run, name
        self._coordinator, self._term = coordinator, 0
        self._copies = {copy: peer for copy, (_, peer) in copies.items()}
        self._serving = [copy for copy, _ in servers]
        self._epochs = [epoch for _, epoch in servers]
        self._pulling = Pulling(name, len(servers), exact=True)
        self._arrived = asyncio.Event()
        self._fetching = False
        # An evaluator that fails falls silent, and another takes its place.
        self._background = Background(lambda text: self._stop())
        self._work: asyncio.Queue[Evaluate | SaveModel] = asyncio.Queue()

    async def open(self, program: Program) -> None:
        """Build the task and begin to answer; must be called once, before anything else."""
        self._program = program
        self._guard = StoreGuard(program.store, program.run, program.term)
        # Blocks with versions of their own have none in common.
        self._pulling.exact = program.policy.traits.scope is Scope.MODEL
        self._worker = get_worker()
        self._connect = connections_of(self._worker)
        self._loop = asyncio.get_running_loop()
        await self._loop.run_in_executor(None, self._build)
        self._fetcher = Fetcher(
            self._connect,
            self._layout,
            self._name,
            None,
            self._copies,
            self._values,
            self._pulling.expects,
            self._on_pulled,
            shared=program.transport != "comms",
            slow_s=self._program.slow_s,
        )
        for shard, epoch in enumerate(self._epochs):
            self._pulling.moved(shard, epoch, pulling=False)
        self._line = Line(
            self._connect,
            self._coordinator,
            self._name,
            patience_s=program.patience_s,
            on_lost=lambda reason: self._stop(),
            on_refused=self._stop,
            beat_s=program.worker_lease_s / 8,
        )
        self._background.do(self._work_off())
        await before_the_end(self._worker, f"{self._run}-{self._name}", self.close)

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
            if isinstance(message, dict):
                self._take_note(message)
            elif isinstance(message, Moved):
                self._follow_server(message)
            else:
                self._work.put_nowait(message)
        return True

    def _take_note(self, message: dict[str, Any]) -> None:
        peer = Peer(message["address"], message["key"])
        if "peer" in message:
            self._fetcher.peers[message["peer"]] = peer
        elif message["lead"] > self._term:
            self._term = message["lead"]
            self._line.retarget(peer)

    def _follow_server(self, moved: Moved) -> None:
        if moved.epoch >= self._epochs[moved.shard]:
            self._serving[moved.shard], self._epochs[moved.shard] = moved.copy, moved.epoch
        self._ask(self._pulling.moved(moved.shard, moved.epoch, pulling=self._fetching))

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
            evaluation = await self._loop.run_in_executor(None, self._measure)
        except Exception as error:  # noqa: BLE001  the seam where whatever the user's code raises becomes an event
            return EvaluationFailed(*describe(error))
        if evaluation is None:
            return Evaluated(version, None, None)
        found = Evaluated(version, evaluation.loss, evaluation.accuracy, dict(evaluation.metrics))
        return await self._kept(found) if self._program.plan.watch.keeps(found, order.best) else found

    async def _kept(self, found: Evaluated) -> Evaluated:
        """Save the best version before it is known as such: one that is known can be loaded."""
        watch, store = self._program.plan.watch, self._program.store
        value = found.values[watch.metric]
        save = partial(save_best, store, self._arrays(), version=found.version, watch=watch, value=value)
        try:
            kept = await self._kept_in_store(save)
        except StoreError as error:
            return replace(found, trouble=str(error))
        return replace(found, kept=kept)

    def _arrays(self) -> dict[str, Any]:
        return {name: view.numpy() for name, view in named_views(self._layout, self._values).items()}

    def _measure(self) -> Any:
        if self._near is not self._values:
            for key, vector in self._values.items():
                self._near[key].copy_(vector)
        return self._workspace.evaluate(Cancellation())

    async def _fetch(self, version: int) -> int:
        self._arrived.clear()
        self._fetching = True
        self._ask(self._pulling.begin(version))
        await self._arrived.wait()
        self._fetching = False
        label = self._pulling.label
        return label.version if label is not None else version

    def _ask(self, pulls: list[Pull]) -> None:
        for pull in pulls:
            self._fetcher.pull(pull, self._serving[pull.shard])

    def _on_pulled(self, pulled: Pulled) -> None:
        self._ask(self._pulling.on_pulled(pulled))
        if self._pulling.label is not None:
            self._arrived.set()

    async def _save(self, order: SaveModel) -> ModelSaved | SaveFailed:
        try:
            save = partial(save_model, self._program.store, self._arrays(), version=order.version)
            await self._kept_in_store(save)
        except StoreError as error:
            return SaveFailed(str(error), error.store)
        return ModelSaved(order.version)

    async def _kept_in_store(self, save: Callable[[], _Made]) -> _Made:
        """Save in the run's own store; one that was removed is waited for: the coordinator's process makes it anew."""
        for _ in range(_TRIES):
            with suppress(StoreGone):
                return await asyncio.to_thread(self._guard.within, save)
            await asyncio.sleep(_PAUSE_S)
        return await asyncio.to_thread(self._guard.within, save)

    def _stop(self) -> None:
        self._background.close()
        self._line.close()
        self._fetcher.close()
        self._loop.create_task(not_before_the_end(self._worker, f"{self._run}-{self._name}"))
