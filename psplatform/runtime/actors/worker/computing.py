"""A worker's computing thread: gradients one after the other, interruptible, with the slowness the job asks for."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable
from functools import partial

from psplatform.core.protocol.effects import Compute
from psplatform.core.protocol.events import ComputeAborted, Computed, ComputeFailed, Overwritten
from psplatform.runtime.actors.worker.computing_thread import ComputingThread, call_in_loop
from psplatform.runtime.allocation import keep_freed_memory
from psplatform.runtime.dataplane.pulls.devices import Updates
from psplatform.runtime.dataplane.pulls.parameters import Parameters
from psplatform.runtime.program import Program
from psplatform.tasks.cancellation import Cancellation, Cancelled
from psplatform.tasks.data.batches import batch_of
from psplatform.tasks.flaws import find_flaw
from psplatform.tasks.foreign import describe
from psplatform.tasks.seam import Workspace
from psplatform.tensors.compression import Compressor
from psplatform.tensors.layout import Layout

Outcome = Computed | ComputeAborted | ComputeFailed | Overwritten


class _Overwritten(Exception):
    """What a gradient was computed on was written over meanwhile."""


class Computing:
    """Computes gradients on `parameters` into `updates`.

    Parameters
    ----------
    deliver
        Takes the outcome, in the computing thread.
    """

    def __init__(
        self,
        program: Program,
        workspace: Workspace,
        layout: Layout,
        parameters: Parameters,
        updates: Updates,
        deliver: Callable[[Outcome], None],
    ) -> None:
        self._program = program
        self._workspace = workspace
        self._parameters, self._updates = parameters, updates
        self._compressor = Compressor(program.compression)
        self._deliver = deliver
        self._thread = ComputingThread("psplatform-compute")
        self._rests = asyncio.Event()
        self._cancellation = Cancellation()
        self._sequence = -1
        self._at_hand = parameters.vectors
        workspace.bind(layout, self._at_hand, updates.vectors, updates.ready)
        keep_freed_memory()  # from here on: what building has taken is not needed again

    def start(self, effect: Compute) -> None:
        """Compute a gradient; the outcome is delivered."""
        self._sequence, self._cancellation = effect.sequence, Cancellation()
        self._thread.submit(partial(self._run, effect, self._cancellation))

    def cancel(self, sequence: int) -> None:
        """Interrupt gradient `sequence` if it is the one at hand."""
        if sequence == self._sequence:
            self._cancellation.cancel()

    async def come_to_rest(self, limit_s: float) -> None:
        """Interrupt what is at hand, and wait until that is over or this is closed, for at most `limit_s`."""
        self._cancellation.cancel()
        if not self._thread.has_begun:
            return
        self._rests.clear()
        self._thread.submit(partial(call_in_loop, asyncio.get_running_loop(), self._rests.set))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._rests.wait()

    def close(self) -> None:
        """Interrupt what is at hand and compute nothing more."""
        self._cancellation.cancel()
        self._thread.close()
        self._rests.set()

    def _run(self, effect: Compute, cancellation: Cancellation) -> None:
        try:
            outcome: Outcome = self._compute(effect, cancellation)
        except Cancelled:
            outcome = ComputeAborted(effect.sequence)
        except BaseException as error:  # noqa: BLE001  the seam where whatever the user's code raises becomes an event
            overwritten = self._parameters.has_changed()  # then it may be no fault of that code
            outcome = Overwritten(effect.sequence) if overwritten else ComputeFailed(effect.sequence, *describe(error))
        self._deliver(outcome)

    def _compute(self, effect: Compute, cancellation: Cancellation) -> Computed:
        started = time.perf_counter()
        plan = self._program.plan
        key = self._program.seed, effect.slot, effect.sequence, effect.assignment
        batch = batch_of(*key, samples=plan.samples, batch_size=plan.batch_size)
        self._turn_to_parameters()
        self._updates.begin()
        try:
            computed = self._workspace.compute(batch, cancellation, self._program.micro_batches)
        finally:
            self._parameters.look_after()
        cancellation.check()
        if self._parameters.has_changed():
            raise _Overwritten
        squared = self._updates.complete()
        cancellation.check()
        sent = self._compressor.compress(self._updates.shown, squared if math.isfinite(computed.loss) else math.nan)
        try:
            self._be_slow(effect, time.perf_counter() - started, cancellation)
        except Cancelled:
            self._compressor.take_back(self._updates.shown)
            raise
        seconds = time.perf_counter() - started
        flaw = find_flaw(self._workspace, batch, computed.loss, squared)
        if flaw is not None and self._parameters.has_changed():
            raise _Overwritten
        squared = squared if flaw is not None else sent
        return Computed(effect.sequence, computed.samples, computed.loss, squared, seconds, flaw)

    def _turn_to_parameters(self) -> None:
        vectors = self._parameters.vectors
        if vectors is not self._at_hand:
            self._workspace.compute_from(vectors, alone=not self._parameters.is_lent)
            self._at_hand = vectors

    def _be_slow(self, effect: Compute, own_s: float, cancellation: Cancellation) -> None:
        stragglers = self._program.stragglers
        if stragglers is None:
            return
        key = self._program.seed, effect.slot, effect.sequence - 1  # sequences count from 1, traces from 0
        target_s = stragglers.iteration_seconds(*key)
        wanted_s = stragglers.slow_down(*key) * (own_s if target_s is None else target_s)
        if wanted_s > own_s and cancellation.wait(wanted_s - own_s):
            raise Cancelled
