"""Measuring and saving versions: in threads, on the device of the task, into the store of the run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from psplatform.core.protocol.events import Evaluated, EvaluationFailed, ModelSaved, SaveFailed
from psplatform.errors import StoreError
from psplatform.replication.stores.guard import StoreGone, StoreGuard
from psplatform.replication.stores.models import save_best, save_model
from psplatform.runtime.allocation import keep_freed_memory
from psplatform.runtime.comms.background import Background
from psplatform.runtime.program import Program, choose_device
from psplatform.runtime.timeouts import TIMEOUTS
from psplatform.tasks.cancellation import Cancellation
from psplatform.tasks.foreign import describe
from psplatform.tensors.vectors import allocate, named_views

_Made = TypeVar("_Made")

_TRIES: Final = 20


class ThreadedEvaluation:
    """Measures and saves what lies in `values`.

    Making one builds the task, which may take long and raise what the user's code raises.

    Parameters
    ----------
    background
        Does what is awaited.

    Attributes
    ----------
    layout, values
        Where a version is to be put before it is measured or saved, on the CPU.
    feed
        Takes the answers; it must be set before anything is asked for.
    """

    def __init__(self, program: Program, background: Background) -> None:
        self.feed: Callable[[Any], None] = lambda answer: None
        self._store, self._watch = program.store, program.plan.watch
        self._guard = StoreGuard(program.store, program.run, program.term)
        self._background = background
        self._cancellation = Cancellation()
        device = choose_device(program.device)
        self._workspace, self.layout = program.open(device)
        self.values = allocate(self.layout)
        # A GPU keeps its own vectors; on the CPU they are the ones that pulls are copied into.
        on_cpu = device.type == "cpu"
        self._near = self.values if on_cpu else allocate(self.layout, device=device)
        self._workspace.bind(self.layout, self._near, None)

    def measure(self, version: int) -> None:
        """Measure the version that lies here."""
        self._background.do(self._measure(version))

    def keep(self, found: Evaluated) -> None:
        """Save the version that lies here as the best so far."""
        self._background.do(self._keep(found))

    def save(self, version: int) -> None:
        """Save the version that lies here as the result."""
        self._background.do(self._save(version))

    def close(self) -> None:
        """Interrupt what is being measured; nothing can be measured any more."""
        self._cancellation.cancel()

    async def _measure(self, version: int) -> None:
        try:
            evaluation = await asyncio.get_running_loop().run_in_executor(None, self._evaluate)
        except Exception as error:  # noqa: BLE001  the seam where whatever the user's code raises becomes an event
            self.feed(EvaluationFailed(*describe(error)))
            return
        if evaluation is None:
            self.feed(Evaluated(version, None, None))
        else:
            self.feed(Evaluated(version, evaluation.loss, evaluation.accuracy, dict(evaluation.metrics)))

    def _evaluate(self) -> Any:
        keep_freed_memory()
        if self._near is not self.values:
            for key, vector in self.values.items():
                self._near[key].copy_(vector)
        return self._workspace.evaluate(self._cancellation)

    async def _keep(self, found: Evaluated) -> None:
        watch = self._watch
        value = found.values[watch.metric]
        save = partial(save_best, self._store, self._arrays(), version=found.version, watch=watch, value=value)
        try:
            answer = replace(found, kept=await keep_in_store(self._guard, save))
        except StoreError as error:
            answer = replace(found, trouble=str(error))
        self.feed(answer)

    async def _save(self, version: int) -> None:
        answer: ModelSaved | SaveFailed = ModelSaved(version)
        try:
            await keep_in_store(self._guard, partial(save_model, self._store, self._arrays(), version=version))
        except StoreError as error:
            answer = SaveFailed(str(error), error.store)
        self.feed(answer)

    def _arrays(self) -> dict[str, Any]:
        return {name: view.numpy() for name, view in named_views(self.layout, self.values).items()}


async def keep_in_store(guard: StoreGuard, save: Callable[[], _Made]) -> _Made:
    """Save in a run's own store; one that was removed is waited for: the coordinator's process makes it anew.

    Raises
    ------
    StoreError
        If it cannot be saved there, or the store was removed and is not made anew within ten seconds.
    """
    for _ in range(_TRIES):
        with suppress(StoreGone):
            return await asyncio.to_thread(guard.within, save)
        await asyncio.sleep(TIMEOUTS.store_retry_s)
    return await asyncio.to_thread(guard.within, save)
