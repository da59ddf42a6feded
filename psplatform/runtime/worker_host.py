"""One gradient worker as a Dask actor: the session on the event loop, gradients in a thread of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

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
    first_server,
)
from psplatform.core.events import Begin, Reachable, TimerFired
from psplatform.core.messages import Leave, Moved, Pull, Pulled
from psplatform.core.policy import Scope
from psplatform.core.session import WorkerSession
from psplatform.core.wire import decode
from psplatform.runtime.background import Background
from psplatform.runtime.calls import Peer, PeerLost, connections_of
from psplatform.runtime.computing import Computing
from psplatform.runtime.exposure import Slab
from psplatform.runtime.fetching import Fetcher
from psplatform.runtime.lines import Line
from psplatform.runtime.processes import Locatable, process_at
from psplatform.runtime.program import Program, choose_device
from psplatform.runtime.pushing import Exposed, Pushes
from psplatform.runtime.recording import WorkerHistory
from psplatform.runtime.retirement import PROCESS_ENDS, before_the_end, not_before_the_end
from psplatform.runtime.segments import sweep
from psplatform.runtime.supplying import Supply
from psplatform.tensors.vectors import allocate


class WorkerHost(Locatable):
    """Hosts `psplatform.core.session.WorkerSession` and computes its gradients.

    Parameters
    ----------
    member
        The name this process joins under, never used before in the run.
    copies
        The copies of shards by name, with the shard of each.
    """

    def __init__(self, run: str, member: str, coordinator: Peer, copies: Mapping[str, tuple[int, Peer]]) -> None:
        self._run, self._member = run, member
        self._coordinator, self._copies = coordinator, dict(copies)
        self._term = 0
        self._exposed: Exposed | None = None
        self._attaching = self._closed = False
        self._line: Line | None = None
        self._supply: Supply | None = None
        self._opening: asyncio.Task[None] | None = None
        self._background = Background(self._on_mishap)
        self._history = WorkerHistory()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    async def open(self, program: Program) -> None:
        """Build the task, attach to the servers and join; must be called before anything else.

        Whoever calls again, because the one who did is lost, waits for the same.

        Raises
        ------
        UserCodeError
            If the user's code raises while the task is opened.
        """
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open(program))
        await asyncio.shield(self._opening)

    async def _open(self, program: Program) -> None:
        self._program = program
        self._per_block = program.policy.traits.scope is Scope.BLOCK
        worker = self._worker = get_worker()
        self._connect = connections_of(worker)
        self._loop = asyncio.get_running_loop()
        await self._loop.run_in_executor(None, self._build)
        process, traits = process_at(worker.address), program.policy.traits
        self._session = WorkerSession(self._member, process, program.plan.shards, traits, seed=program.seed)
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
            patience_s=program.patience_s,
            on_lost=self._depart,
            on_refused=lambda: self._depart("the coordinator no longer knows this worker"),
            beat_s=program.worker_lease_s / 8,
        )
        await before_the_end(worker, f"{self._run}-{self._member}", self._retire)
        self._feed(Begin())

    def _build(self) -> None:
        program = self._program
        if program.torch_threads is not None:
            torch.set_num_threads(program.torch_threads)
        device = choose_device(program.device)
        workspace, self._layout = program.open(device)
        sweep(self._run, "slab")
        # Block by block a worker goes on before every server has read the slab: each gets a copy of its own.
        shared = program.transport != "comms" and not self._per_block
        # Where nothing may be lacking, servers wait for their replicas, and the slab is not written over before.
        late = program.plan.protection is not None and program.plan.from_workers and program.plan.protection.bound > 0
        self._slab = Slab.create(self._layout, self._run, shared=shared, with_copy=late)
        self._values = allocate(self._layout)
        self._history.begin(program, self._member, self._layout, self._values)
        deliver: Callable[[Any], None] = self._feed_from_thread
        self._computing = Computing(program, workspace, self._layout, device, self._values, self._slab.vectors, deliver)

    async def _attach(self) -> None:
        self._fetcher = Fetcher(
            self._connect,
            self._layout,
            self._member,
            self._slab.name,
            {name: peer for name, (_, peer) in self._copies.items()},
            self._values,
            self._expects,
            self._feed,
            shared=self._program.transport != "comms",
            slow_s=self._program.slow_s,
            on_failure=self._on_mishap,
        )
        self._pushes = Pushes(
            self._connect,
            self._layout,
            self._member,
            self._slab.vectors,
            self._fetcher.peers,
            self._session.server_of,
            self._background,
        )
        if self._program.plan.from_workers:
            arguments = self._connect, self._layout, self._member, self._slab, self._fetcher, self._background
            self._supply = Supply(*arguments)
        self._attaching = True
        for name, (shard, _) in self._copies.items():
            if self._supply is not None:
                self._supply.know(name, shard)
            if name == first_server(shard):
                await self._fetcher.attach(name, shard)
            else:  # it may not answer for long, and nobody needs it yet
                self._do(self._prepare_for(name, shard))

    # --- what peers call ---

    async def deliver(self, sender: str, data: bytes) -> bool:
        """Take messages of the coordinator."""
        if self._closed:
            return True
        for message in decode(data):
            if isinstance(message, dict):
                self._take_note(message)
            elif isinstance(message, Moved):
                self._do(self._follow_server(message))
            else:
                self._feed(message)
        return True

    def _take_note(self, message: dict[str, Any]) -> None:
        peer = Peer(message["address"], message["key"])
        if "peer" in message:
            self._meet(message["peer"], peer, message.get("shard"))
        elif message["lead"] > self._term:
            self._term, self._coordinator = message["lead"], peer
            if self._line is not None:
                self._line.retarget(peer)

    def _meet(self, copy: str, peer: Peer, shard: int | None) -> None:
        if not self._attaching and shard is not None:
            self._copies[copy] = shard, peer  # and attach to it with the others
        if not self._attaching:
            return
        self._fetcher.peers[copy] = peer
        if shard is not None:
            if self._supply is not None:
                self._supply.know(copy, shard)
            self._do(self._prepare_for(copy, shard))

    async def _follow_server(self, moved: Moved) -> None:
        before = self._session.server_of(moved.shard)
        self._feed(moved)
        if self._session.server_of(moved.shard) == before:
            return  # it is said again whenever the coordinator is taken over
        if self._supply is not None:
            self._supply.forget(before)
        self._pushes.redirect(moved.shard)
        if not await self._sees_slab(moved.copy, moved.shard) and self._exposed is not None:
            # What was pushed to the server before, or what only that one saw, is gone with it.
            self._pushes.start(moved.shard, self._exposed)

    async def _prepare_for(self, copy: str, shard: int) -> None:
        await self._sees_slab(copy, shard)  # what comes later, when it takes over, then takes no time

    async def _sees_slab(self, copy: str, shard: int) -> bool:
        try:
            return await self._fetcher.attach(copy, shard)
        except PeerLost:
            return False

    async def _retire(self) -> None:
        if self._line is not None and not self._closed:
            await self._leave(PROCESS_ENDS, 1.0)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        self._background.do(work)

    def _on_mishap(self, text: str) -> None:
        # It would wait for ever for what failed; another takes its place.
        if self._line is not None and not self._closed:
            self._leaving = self._loop.create_task(self._leave(text, self._program.worker_lease_s))

    async def close(self) -> None:
        """End at once; one that is still being opened ends when it is."""
        self._depart("closed")

    # --- effects ---

    def _feed_from_thread(self, event: Any) -> None:
        self._loop.call_soon_threadsafe(self._feed, event)

    def _expects(self, pulled: Pulled) -> bool:
        return self._session.expects(pulled)

    def _feed(self, event: Any) -> None:
        if isinstance(event, Pulled) and self._session.expects(event):
            self._history.pulled(event)
        for effect in self._session.handle(event, self._loop.time()):
            self._history.does(effect)
            self._execute(effect)

    def _execute(self, effect: Effect) -> None:
        if isinstance(effect, Send) and effect.to == COORDINATOR:
            self._say(effect.message)
        elif isinstance(effect, Send) and isinstance(effect.message, Pull):
            self._fetcher.pull(effect.message, effect.to.name)
        elif isinstance(effect, Compute):
            self._slab.begin()
            self._exposed = None
            self._pushes.end()
            self._computing.start(effect)
        elif isinstance(effect, CancelCompute):
            self._computing.cancel(effect.sequence)
        elif isinstance(effect, Expose):
            self._expose(effect.sequence)
        elif isinstance(effect, SetTimer):
            self._set_timer(effect)
        elif isinstance(effect, Depart):
            self._leaving = self._loop.create_task(self._leave(effect.reason, self._program.worker_lease_s))

    def _set_timer(self, effect: SetTimer) -> None:
        before = self._timers.pop(effect.tag, None)
        if before is not None:
            before.cancel()
        self._timers[effect.tag] = self._loop.call_at(effect.at, self._feed, TimerFired(effect.tag))

    def _expose(self, sequence: int) -> None:
        self._slab.hold(sequence)
        self._exposed = gradient = Exposed(sequence, self._session.counter if self._per_block else None)
        servers = [self._session.server_of(shard) for shard in range(self._layout.shards)]
        if self._supply is not None:
            self._supply.offer(gradient, servers, lambda: self._exposed == gradient)
        if all(self._fetcher.sees(copy) for copy in servers):
            self._feed(Reachable(sequence))
        else:
            self._do(self._reach_all(gradient))

    async def _reach_all(self, gradient: Exposed) -> None:
        shards = range(self._layout.shards)
        seen = [await self._sees_slab(self._session.server_of(shard), shard) for shard in shards]
        await asyncio.gather(*(self._reach(shard, gradient) for shard in shards if not seen[shard]))
        if not self._per_block:
            self._feed(Reachable(gradient.sequence))

    async def _reach(self, shard: int, gradient: Exposed) -> None:
        await self._pushes.start(shard, gradient)
        if self._per_block:
            self._feed(Reachable(gradient.sequence, (shard,)))

    def _say(self, message: Any) -> None:
        if self._line is not None:
            self._line.send(message)

    async def _leave(self, reason: str, limit_s: float) -> None:
        self._say(Leave(self._member, reason))
        if self._line is not None:
            await self._line.flush(limit_s)
        self._depart(reason)

    def _depart(self, reason: str) -> None:
        self._closed = True
        if self._line is not None:
            self._line.close()
            self._clean_up()

    def _clean_up(self) -> None:
        # A server without room, or one that has ended with the run, would be asked for ever.
        for timer in self._timers.values():
            timer.cancel()
        self._background.close()
        self._loop.create_task(not_before_the_end(self._worker, f"{self._run}-{self._member}"))
        self._fetcher.close()
        self._computing.close()
        self._history.close()
        self._slab.remove()
        sweep(self._run)
