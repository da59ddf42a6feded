"""One gradient worker as a Dask actor: the session on the event loop, gradients in a thread of their own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any, Final

import torch
from distributed import get_worker

from psplatform.core.effects import (
    COORDINATOR,
    CancelCompute,
    Compute,
    Depart,
    Effect,
    Expose,
    Send,
    SetTimer,
)
from psplatform.core.events import Begin, Reachable, TimerFired
from psplatform.core.messages import Leave, Pull, Pulled
from psplatform.core.policy import Scope
from psplatform.core.session import WorkerSession
from psplatform.core.wire import decode
from psplatform.runtime.calls import Peer, PeerLost, call
from psplatform.runtime.computing import Computing
from psplatform.runtime.exposure import Slab
from psplatform.runtime.fetching import Fetcher
from psplatform.runtime.lines import Line
from psplatform.runtime.program import Program, choose_device
from psplatform.runtime.segments import SegmentName, sweep
from psplatform.tensors.vectors import allocate, shard_vectors

_PUSH_DEADLINE_S: Final = 60.0
ATTACH_DEADLINE_S: Final = 600.0
"""Servers may still be reading what their shard begins with."""

_PAUSE_S: Final = 0.1


class WorkerHost:
    """Hosts `psplatform.core.session.WorkerSession` and computes its gradients.

    Parameters
    ----------
    member
        The name this process joins under, never used before in the run.
    servers
        The servers by shard.
    """

    def __init__(self, run: str, member: str, coordinator: Peer, servers: tuple[Peer, ...]) -> None:
        self._run, self._member = run, member
        self._coordinator, self._servers = coordinator, servers
        self._closed = False
        self._line: Line | None = None
        self._pushing: asyncio.Task[None] | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}

    async def open(self, program: Program) -> None:
        """Build the task, attach to the servers and join; must be called once, before anything else.

        Raises
        ------
        UserCodeError
            If the user's code raises while the task is opened.
        """
        self._program = program
        self._per_block = program.policy.traits.scope is Scope.BLOCK
        worker = get_worker()
        self._connect = worker.rpc
        self._loop = asyncio.get_running_loop()
        await self._loop.run_in_executor(None, self._build)
        try:
            await self._attach()
        except BaseException:
            self._clean_up()
            raise
        if self._closed:
            self._clean_up()
            return
        self._line = Line(
            self._connect,
            self._coordinator,
            self._member,
            patience_s=program.worker_lease_s,
            on_lost=self._depart,
            on_refused=lambda: self._depart("the coordinator no longer knows this worker"),
            beat_s=program.worker_lease_s / 8,
        )
        process = f"{worker.address} pid {os.getpid()}"
        traits = program.policy.traits
        self._session = WorkerSession(self._member, process, program.plan.shards, traits, seed=program.seed)
        self._feed(Begin())

    def _build(self) -> None:
        program = self._program
        if program.torch_threads is not None:
            torch.set_num_threads(program.torch_threads)
        device = choose_device(program.device)
        workspace, self._layout = program.open(device)
        sweep(self._run, "slab")
        # Block by block a worker goes on before every server has read the slab: each gets a copy of its own.
        self._slab = Slab.create(self._layout, self._run, shared=program.transport != "comms" and not self._per_block)
        self._values = allocate(self._layout)
        deliver: Callable[[Any], None] = self._feed_from_thread
        self._computing = Computing(program, workspace, self._layout, device, self._values, self._slab.vectors, deliver)

    async def _attach(self) -> None:
        self._fetcher = Fetcher(
            self._connect,
            self._layout,
            self._servers,
            self._values,
            self._expects,
            self._feed,
            slow_s=self._program.slow_s,
        )
        self._remote: list[int] = []
        for shard, server in enumerate(self._servers):
            shared, segment = await call(
                self._connect, server, "attach", self._member, self._slab.name, deadline_s=ATTACH_DEADLINE_S
            )
            self._note_way(shard, segment, shared=shared)

    def _note_way(self, shard: int, segment: SegmentName, *, shared: bool) -> None:
        if not shared:
            self._remote.append(shard)
        if self._program.transport != "comms":
            self._fetcher.attach(shard, segment)

    # --- what peers call ---

    async def deliver(self, sender: str, data: bytes) -> bool:
        """Take messages of the coordinator."""
        for message in decode(data):
            self._feed(message)
        return True

    async def close(self) -> None:
        """End at once; one that is still being opened ends when it is."""
        self._depart("closed")

    # --- effects ---

    def _feed_from_thread(self, event: Any) -> None:
        self._loop.call_soon_threadsafe(self._feed, event)

    def _expects(self, pulled: Pulled) -> bool:
        return self._session.expects(pulled)

    def _feed(self, event: Any) -> None:
        for effect in self._session.handle(event, self._loop.time()):
            self._execute(effect)

    def _execute(self, effect: Effect) -> None:
        if isinstance(effect, Send) and effect.to == COORDINATOR:
            self._say(effect.message)
        elif isinstance(effect, Send) and isinstance(effect.message, Pull):
            self._fetcher.pull(effect.message)
        elif isinstance(effect, Compute):
            self._computing.start(effect)
        elif isinstance(effect, CancelCompute):
            self._computing.cancel(effect.sequence)
        elif isinstance(effect, Expose):
            self._expose(effect.sequence)
        elif isinstance(effect, SetTimer):
            self._set_timer(effect)
        elif isinstance(effect, Depart):
            self._leaving = self._loop.create_task(self._leave(effect.reason))

    def _set_timer(self, effect: SetTimer) -> None:
        before = self._timers.pop(effect.tag, None)
        if before is not None:
            before.cancel()
        self._timers[effect.tag] = self._loop.call_at(effect.at, self._feed, TimerFired(effect.tag))

    def _expose(self, sequence: int) -> None:
        if self._remote:
            self._pushing = self._loop.create_task(self._push_all(sequence))
        else:
            self._feed(Reachable(sequence))

    async def _push_all(self, sequence: int) -> None:
        counter = self._session.counter if self._per_block else None
        await asyncio.gather(*(self._push(shard, sequence, counter) for shard in self._remote))
        if not self._per_block:
            self._feed(Reachable(sequence))

    async def _push(self, shard: int, sequence: int, counter: int | None) -> None:
        pieces = shard_vectors(self._layout, shard, self._slab.vectors)
        arrays = [vector.numpy() for vector in pieces.values()]
        arguments = self._connect, self._servers[shard], "push", self._member, sequence, arrays, counter
        taken = False
        while not taken:
            try:
                taken = await call(*arguments, deadline_s=_PUSH_DEADLINE_S)
            except PeerLost:
                await asyncio.sleep(_PAUSE_S)  # until the coordinator, who watches the servers, ends the run
        if self._per_block:
            self._feed(Reachable(sequence, (shard,)))

    def _say(self, message: Any) -> None:
        if self._line is not None:
            self._line.send(message)

    async def _leave(self, reason: str) -> None:
        self._say(Leave(self._member, reason))
        if self._line is not None:
            await self._line.flush(self._program.worker_lease_s)
        self._depart(reason)

    def _depart(self, reason: str) -> None:
        self._closed = True
        if self._line is not None:
            self._line.close()
            self._clean_up()

    def _clean_up(self) -> None:
        # A server without room, or one that has ended with the run, would be asked for ever.
        for waiting in (self._pushing, *self._timers.values()):
            if waiting is not None:
                waiting.cancel()
        self._fetcher.close()
        self._computing.close()
        self._slab.remove()
        sweep(self._run)
