"""One gradient worker as a Dask actor: its node on the event loop, gradients in a thread of their own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

import torch
from distributed import get_worker
from numpy.typing import NDArray

from psplatform.core.addresses import host_of
from psplatform.core.policy import Scope
from psplatform.core.protocol.effects import COORDINATOR, Send, first_server
from psplatform.core.protocol.events import Begin, PartArrived
from psplatform.core.protocol.messages import JOIN_AGAIN, PROCESS_ENDS, Bundle, Leave, Moved, Pulled
from psplatform.core.protocol.place_messages import ActorAt, CoordinatorAt
from psplatform.core.protocol.wire import decode
from psplatform.core.supervision.workers import WORKER
from psplatform.core.workers.session import WorkerSession
from psplatform.errors import ConfigurationError
from psplatform.nodes.worker import WorkerNode
from psplatform.runtime.actor_log import ActorLog
from psplatform.runtime.actors.computing import Computing
from psplatform.runtime.actors.gradients import SlabGradients
from psplatform.runtime.actors.retirement import before_the_end, not_before_the_end
from psplatform.runtime.actors.sums import SlabSums
from psplatform.runtime.comms.answering import Listening
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import Peer, PeerLost
from psplatform.runtime.comms.lines import Line
from psplatform.runtime.comms.processes import process_at
from psplatform.runtime.comms.timers import LoopTimers
from psplatform.runtime.dataplane.content import Answer, Vectors
from psplatform.runtime.dataplane.devices import DeviceParameters, updates_on
from psplatform.runtime.dataplane.fetching import Fetcher
from psplatform.runtime.dataplane.parameters import BorrowedParameters, Parameters
from psplatform.runtime.dataplane.pushing import Pushes
from psplatform.runtime.dataplane.relaying import ProcessRelaying
from psplatform.runtime.dataplane.replica_feed import NoReplicaFeed, ReplicaFeed
from psplatform.runtime.dataplane.segments import SegmentName, sweep
from psplatform.runtime.dataplane.transports import COMMS, TRANSPORTS
from psplatform.runtime.program import Program, choose_device
from psplatform.runtime.store.recording import WorkerHistory
from psplatform.tasks.randomness import OWN_PROCESS, belong_to_tasks
from psplatform.tensors.compression import packing_of
from psplatform.tensors.vectors import size_bytes

_LARGE_BYTES: Final = 1 << 20
"""Of a model that takes longer to copy than it takes to look whether the copy may be left out."""


class WorkerHost(Listening):
    """Hosts `psplatform.nodes.worker.WorkerNode` and computes its gradients.

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
        self._workers: dict[str, Peer] = {}
        self._sums: SlabSums | None = None
        self._relaying: ProcessRelaying | None = None
        self._term = 0
        self._closed = False
        self._node: WorkerNode | None = None
        self._line: Line | None = None
        self._opening: asyncio.Task[None] | None = None
        self._log = ActorLog(run, member)
        self._background = Background(self._on_mishap, self._log)
        self._history = WorkerHistory()
        self._closing = ExitStack()
        self._closing.callback(self._background.close)

    async def open(self, program: Program) -> None:
        """Build the task, attach to the servers and join; must be called before anything else.

        A coordinator that calls again, because the one before is lost, waits for the same.

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
        worker = self._worker = get_worker()
        self._connect = await TRANSPORTS[program.transport].connections(worker, self._closing)
        self._loop = asyncio.get_running_loop()
        try:
            await self._loop.run_in_executor(None, self._build)
            node = self._make_node(process_at(worker.address))
            await self._attach()
        except BaseException:
            self._closing.close()
            raise
        if self._closed:
            self._closing.close()
            return
        self._line = Line(
            self._connect,
            self._coordinator,
            self._member,
            Background(self._on_mishap, self._log),
            patience_s=program.patience_s,
            on_lost=self._depart,
            on_refused=lambda: self._depart("the coordinator no longer knows this worker"),
            on_answer=self._on_answer,
            beat_s=program.worker_lease_s / 8,
        )
        await before_the_end(worker, f"{self._run}-{self._member}", self._retire)
        self._log.info("a gradient worker is ready at %s", worker.address)
        node.feed(Begin())

    def _build(self) -> None:
        program = self._program
        if program.torch_threads is not None:
            torch.set_num_threads(program.torch_threads)
        if OWN_PROCESS in os.environ:
            belong_to_tasks()
        device = self._device = choose_device(program.device)
        workspace, self._layout = program.open(device)
        sweep(self._run, "slab")
        self._per_block = program.policy.traits.scope is Scope.BLOCK
        self._transport = TRANSPORTS[program.transport]
        # Block by block a worker goes on before every server has read the slab: each gets a copy of its own.
        transport = COMMS if self._per_block else self._transport
        # Where nothing may be lacking, servers wait for their replicas, and the slab is not written over before.
        late = program.plan.protection is not None and program.plan.from_workers and program.plan.protection.bound > 0
        self._slab = transport.slab(self._layout, self._run, with_copy=late)
        self._closing.callback(sweep, self._run)
        self._closing.callback(self._slab.remove)
        try:
            self._parameters = self._make_parameters()
            self._closing.callback(self._parameters.close)
            updates = updates_on(self._layout, device, self._slab.vectors)
        except torch.OutOfMemoryError as error:
            text = f"parameters and gradients find no room on {device}, beside what is there already"
            remedy = "let fewer workers share it, take a smaller model, or the device cpu"
            raise ConfigurationError(f"{text}; {remedy}", field="device") from error
        self._closing.callback(updates.close)
        self._history.begin(program, self._member, self._layout.shards, self._parameters)
        self._closing.callback(self._history.close)
        deliver: Callable[[Any], None] = self._feed_from_thread
        self._computing = Computing(program, workspace, self._layout, self._parameters, updates, deliver)

    def _make_parameters(self) -> Parameters:
        layout = self._layout
        if self._device.type != "cpu":
            return DeviceParameters(layout, self._device)
        stays = self._program.policy.traits.awaits_all and self._transport.lends
        if stays and layout.shards == 1 and size_bytes(layout) >= _LARGE_BYTES:
            return BorrowedParameters(layout)
        return Parameters(layout)

    def _make_node(self, process: str) -> WorkerNode:
        program, shards = self._program, self._layout.shards
        session = WorkerSession(
            self._member,
            process,
            shards,
            program.policy.traits,
            seed=program.seed,
            host=host_of(process) if program.fabric is not None else "",
            is_sent=lambda: not self._gradients.seen,
        )
        self._fetcher = fetcher = Fetcher(
            self._connect,
            self._layout,
            self._member,
            self._slab.name,
            {name: peer for name, (_, peer) in self._copies.items()},
            self._parameters,
            session.expects,
            self._on_pulled,
            self._transport,
            Background(self._on_mishap, self._log),
            slow_s=program.slow_s,
        )
        self._closing.callback(fetcher.close)
        places = self._connect, self._layout, self._member

        packing = packing_of(program.compression)

        def make_pushes(vectors: Vectors) -> Pushes:
            return Pushes(*places, vectors, fetcher.peers, session.server_of, self._background, packing=packing)

        self._replica_feed = (
            ReplicaFeed(*places, self._slab, fetcher, self._background, packing=packing)
            if program.plan.from_workers
            else NoReplicaFeed()
        )
        pushes = make_pushes(self._slab.vectors)
        parts = session, self._slab, self._computing, fetcher, pushes, self._replica_feed, self._background
        if program.fabric is not None and program.fabric.aggregators:
            kept = self._layout, self._slab, self._replica_feed, self._connect, self._workers
            self._sums = SlabSums(self._member, *kept, make_pushes, self._background, feed=self._feed)
        sums = self._sums

        def make_gradients(feed: Callable[[Any], None]) -> SlabGradients:
            self._gradients = SlabGradients(*parts, feed, shards=shards, per_block=self._per_block, sums=sums)
            return self._gradients

        self._relaying = relaying = self._make_relaying(fetcher)
        self._node = node = WorkerNode(
            session,
            self._loop.time,
            self._send,
            partial(LoopTimers, self._loop.time),
            make_gradients,
            self._begin_to_leave,
            self._history.does,
            make_sums=None if sums is None else lambda feed: sums,
            relay=None if relaying is None else (relaying.relay, relaying),
        )
        if relaying is not None:
            relaying.serve(node)
        self._closing.callback(node.close)
        self._closing.callback(self._forget_the_end)
        return node

    def _make_relaying(self, fetcher: Fetcher) -> ProcessRelaying | None:
        program = self._program
        if program.fabric is None or not program.fabric.aggregators:
            return None
        ways = self._connect, self._layout, self._member, self._workers, fetcher, self._transport
        relaying = ProcessRelaying(*ways, Background(self._on_mishap, self._log), slow_s=program.slow_s)
        self._closing.callback(relaying.close)
        return relaying

    async def _attach(self) -> None:
        for name, (shard, peer) in list(self._copies.items()):
            if name == first_server(shard):
                self._replica_feed.know(name, shard)
                await self._fetcher.attach(name, shard)
            else:  # it may not answer for long, and nobody needs it yet
                self._meet(name, peer, shard)

    # --- what peers call ---

    def take(self, sender: str, data: bytes) -> bool:
        """Take messages of the coordinator."""
        for message in decode(data) if not self._closed else ():
            if isinstance(message, ActorAt) and message.part == WORKER:
                self._workers[message.name] = Peer(message.address, message.key)
            elif isinstance(message, ActorAt):
                self._meet(message.name, Peer(message.address, message.key), message.shard)
            elif isinstance(message, CoordinatorAt):
                self._turn_to(message)
            elif isinstance(message, Moved):
                self._background.do(self._follow_server(message))
            elif self._node is not None:
                self._node.feed(message)
        return True

    def _turn_to(self, coordinator: CoordinatorAt) -> None:
        if coordinator.term > self._term:
            self._term, self._coordinator = coordinator.term, Peer(coordinator.address, coordinator.key)
            if self._line is not None:
                self._line.retarget(self._coordinator)

    def _meet(self, copy: str, peer: Peer, shard: int) -> None:
        if self._node is None:
            self._copies[copy] = shard, peer  # and attach to it with the others
            return
        self._fetcher.peers[copy] = peer
        self._replica_feed.know(copy, shard)
        self._background.do(self._gradients.prepare_for(copy, shard))

    async def _follow_server(self, moved: Moved) -> None:
        if self._node is None:
            return
        before = self._node.session.server_of(moved.shard)
        self._node.feed(moved)
        if self._node.session.server_of(moved.shard) != before:  # it is said again whenever a coordinator takes over
            await self._gradients.redirect(moved.shard, before)

    async def take_part(
        self,
        part: tuple[str, int],
        bundle: tuple[int, int],
        name: SegmentName | None,
        arrays: list[NDArray[Any]] | None,
    ) -> bool:
        """Take a worker's gradient that is to be summed here, where it lies or as it was sent.

        Parameters
        ----------
        part, bundle
            The worker and the sequence; the coordinator's term and the bundle's number.

        Returns
        -------
        bool
            Whether it was to be had.

        Raises
        ------
        PeerLost
            If this worker sums nothing, or has left.
        """
        if self._closed or self._sums is None:
            raise PeerLost(f"{self._member} sums nothing now")
        arrived = PartArrived(Bundle(self._member, *bundle), *part)
        return self._sums.take_part(arrived, name, arrays)

    async def relay_pull(self, data: bytes) -> Answer:
        """Answer another worker's pull as soon as there is an answer, or "not yet"; raise `PeerLost` once it leaves."""
        if self._relaying is None:
            raise PeerLost(f"{self._member} hands nothing on")
        return await self._relaying.answer(decode(data))

    async def _retire(self) -> None:
        if self._line is not None and not self._closed:
            await self._leave(PROCESS_ENDS, 1.0)

    async def close(self) -> None:
        """End at once; one that is still being opened ends when it is."""
        self._depart("closed")

    # --- what its node asks for ---

    def _send(self, effect: Send) -> None:
        if effect.to == COORDINATOR:
            self._say(effect.message)
        elif effect.to.kind == "copy":
            self._fetcher.pull(effect.message, effect.to.name)
        elif self._relaying is not None:
            self._relaying.pull(effect.message, effect.to.name)

    def _on_pulled(self, answer: Pulled) -> None:
        if self._node is not None:
            if self._node.expects(answer):
                self._history.pulled(answer)
            self._node.feed(answer)

    def _feed(self, event: Any) -> None:
        if self._node is not None:
            self._node.feed(event)

    def _feed_from_thread(self, event: Any) -> None:
        if self._node is not None:
            self._loop.call_soon_threadsafe(self._node.feed, event)

    def _on_answer(self, message: Any) -> None:
        try:
            if self._node is not None:
                self._node.feed(message)
        except Exception as error:  # noqa: BLE001  the worker leaves because of it, and says so
            self._background.tell_of(error)

    def _say(self, message: Any) -> None:
        if self._line is not None:
            self._line.send(message)

    # --- leaving ---

    def _on_mishap(self, text: str) -> None:
        # It would wait for ever for what failed; another takes its place.
        if self._line is not None and not self._closed:
            self._leaving = self._loop.create_task(self._make_room(text))

    def _begin_to_leave(self, reason: str) -> None:
        leaving = self._make_room(reason) if reason == JOIN_AGAIN else self._leave(reason, self._limit_s)
        self._leaving = self._loop.create_task(leaving)

    async def _make_room(self, reason: str) -> None:
        """Leave once nothing is computed here any more: another may begin in this process then."""
        await self._computing.come_to_rest(self._limit_s)
        await self._leave(reason, self._limit_s)

    @property
    def _limit_s(self) -> float:
        return self._program.worker_lease_s

    async def _leave(self, reason: str, limit_s: float) -> None:
        self._say(Leave(self._member, reason))
        if self._line is not None:
            await self._line.flush(limit_s)
        self._depart(reason)

    def _depart(self, reason: str) -> None:
        if not self._closed:
            self._log.info("ends: %s", reason)
        self._closed = True
        if self._line is not None:
            self._line.close()
            self._closing.close()

    def _forget_the_end(self) -> None:
        self._loop.create_task(not_before_the_end(self._worker, f"{self._run}-{self._member}"))
