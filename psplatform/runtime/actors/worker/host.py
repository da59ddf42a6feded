"""One gradient worker as a Dask actor: its node on the event loop, gradients in a thread of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from distributed import get_worker
from numpy.typing import NDArray

from psplatform.core.addresses import host_of
from psplatform.core.protocol.effects import Send
from psplatform.core.protocol.events import Begin, PartArrived
from psplatform.core.protocol.messages import JOIN_AGAIN, PROCESS_ENDS, Bundle, Leave, Moved, Pulled
from psplatform.core.protocol.names import COORDINATOR
from psplatform.core.protocol.place_messages import ActorAt, CoordinatorAt
from psplatform.core.protocol.wire import decode
from psplatform.core.supervision.decisions import WORKER
from psplatform.core.workers.counting import Counting
from psplatform.core.workers.session import WorkerSession
from psplatform.nodes.worker import WorkerNode
from psplatform.runtime.actor_log import ActorLog
from psplatform.runtime.actors.retirement import before_the_end, begin_to_forget_the_end
from psplatform.runtime.actors.worker.computing_thread import call_in_loop
from psplatform.runtime.actors.worker.exchange import Workbench, WorkerExchange
from psplatform.runtime.comms.answering import Listening
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import Peer, PeerLost
from psplatform.runtime.comms.coordinator_line import CoordinatorLine
from psplatform.runtime.comms.interfaces import counter_of
from psplatform.runtime.comms.lines import Line, Said, messages_of
from psplatform.runtime.comms.processes import process_at
from psplatform.runtime.comms.timers import LoopTimers
from psplatform.runtime.dataplane.pulls.content import Answer
from psplatform.runtime.dataplane.segments import SegmentName
from psplatform.runtime.dataplane.transports import TRANSPORTS
from psplatform.runtime.program import Program
from psplatform.runtime.store.recording import WorkerHistory


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
        self._coordinator, self._copies = CoordinatorLine(coordinator), dict(copies)
        self._workers: dict[str, Peer] = {}
        self._closed = False
        self._exchange: WorkerExchange | None = None
        self._node: WorkerNode | None = None
        self._opening: asyncio.Task[None] | None = None
        self._attaching: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._log = ActorLog(run, member)
        self._background = self._new_background()
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
            node, exchange = self._make_node(process_at(worker.address))
            await self._attach(exchange)
        except BaseException:
            self._closing.close()
            raise
        if self._closed:
            self._closing.close()
            return
        line = Line(
            self._connect,
            self._coordinator.peer,
            self._member,
            self._new_background(),
            patience_s=program.patience_s,
            on_lost=self._depart,
            on_refused=lambda: self._depart("the coordinator no longer knows this worker"),
            on_answer=self._feed,
            beat_s=program.worker_lease_s / 8,
        )
        self._coordinator.open(line)
        await before_the_end(worker, f"{self._run}-{self._member}", self._retire)
        self._log.info("a gradient worker is ready at %s", worker.address)
        node.feed(Begin())

    async def _attach(self, exchange: WorkerExchange) -> None:
        """Attach to the servers, until that is done or this is closed: one that is silent may never answer."""
        if self._closed:  # while the task was built
            return
        self._attaching = self._loop.create_task(exchange.attach(self._copies))
        try:
            await self._attaching
        except asyncio.CancelledError:
            if not self._closed:
                raise

    def _build(self) -> None:
        self._bench = bench = Workbench.build(self._program, self._feed_from_thread, self._closing)
        self._history.begin(self._program, self._member, bench.layout.shards, bench.parameters)
        self._closing.callback(self._history.close)

    def _make_node(self, process: str) -> tuple[WorkerNode, WorkerExchange]:
        program, clock = self._program, self._loop.time
        host = host_of(process) if program.fabric is not None else ""
        read = counter_of(host) if host else None
        session = WorkerSession(
            self._member,
            process,
            self._bench.layout.shards,
            program.policy.traits,
            seed=program.seed,
            host=host,
            is_sent=lambda: not exchange.seen,
        )
        self._exchange = exchange = WorkerExchange(
            program,
            self._connect,
            self._bench,
            session,
            peers={name: peer for name, (_, peer) in self._copies.items()},
            workers=self._workers,
            deliver=self._on_pulled,
            feed=self._feed,
            new_background=self._new_background,
            closing=self._closing,
        )
        sums, relaying = exchange.sums, exchange.relaying
        self._node = node = WorkerNode(
            session,
            clock,
            self._send,
            lambda fire: LoopTimers(clock, partial(self._try, fire)),
            exchange.make_gradients,
            self._begin_to_leave,
            self._history.does,
            make_sums=None if sums is None else lambda feed: sums,
            relay=None if relaying is None else (relaying.relay, relaying),
            counting=None if read is None else Counting(self._member, host, read),
        )
        exchange.serve(node)
        exchange.note_taken(self._history.took)
        self._closing.callback(node.close)
        self._closing.callback(begin_to_forget_the_end, self._worker, f"{self._run}-{self._member}")
        return node, exchange

    # --- what peers call ---

    def take(self, sender: str, said: Said) -> bool:
        """Take messages of the coordinator."""
        for message in messages_of(said) if not self._closed else ():
            if isinstance(message, ActorAt) and message.part == WORKER:
                self._workers[message.name] = Peer(message.address, message.key)
            elif isinstance(message, ActorAt):
                self._meet(message.name, Peer(message.address, message.key), message.shard)
            elif isinstance(message, CoordinatorAt):
                if self._coordinator.turn_to(message) and self._exchange is not None:
                    self._background.do(self._exchange.push_again(message.term))
            elif isinstance(message, Moved):
                self._background.do(self._follow_server(message))
            else:
                self._feed(message)
        return True

    def _meet(self, copy: str, peer: Peer, shard: int) -> None:
        if self._exchange is None:
            self._copies[copy] = shard, peer  # and attach to it with the others
        else:
            self._exchange.meet(copy, peer, shard)

    async def _follow_server(self, moved: Moved) -> None:
        if self._node is None or self._exchange is None:
            return
        before = self._node.session.server_of(moved.shard)
        self._node.feed(moved)
        if self._node.session.server_of(moved.shard) != before:  # it is said again whenever a coordinator takes over
            await self._exchange.redirect(moved.shard, before)

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
        sums = self._exchange.sums if self._exchange is not None and not self._closed else None
        if sums is None:
            raise PeerLost(f"{self._member} sums nothing now")
        arrived = PartArrived(Bundle(self._member, *bundle), *part)
        return sums.take_part(arrived, name, arrays)

    async def relay_pull(self, data: bytes) -> Answer:
        """Answer another worker's pull as soon as there is an answer, or "not yet"; raise `PeerLost` once it leaves."""
        if self._exchange is None or self._exchange.relaying is None:
            raise PeerLost(f"{self._member} hands nothing on")
        return await self._exchange.relaying.answer(decode(data))

    async def _retire(self) -> None:
        if self._coordinator.is_open and not self._closed:
            await self._leave(PROCESS_ENDS, 1.0)

    async def close(self) -> None:
        """End at once; one that is still being built ends when it is."""
        self._depart("closed")

    # --- what its node asks for ---

    def _send(self, effect: Send) -> None:
        if effect.to == COORDINATOR:
            self._coordinator.send(effect.message)
        elif self._exchange is not None:
            self._exchange.pull(effect)

    def _on_pulled(self, answer: Pulled) -> None:
        if self._node is not None:
            if self._node.expects(answer):
                self._history.pulled(answer)
            self._feed(answer)

    def _feed(self, event: Any) -> None:
        if self._node is not None:
            self._try(self._node.feed, event)

    def _try(self, handle: Callable[[Any], None], event: Any) -> None:
        try:
            handle(event)
        except Exception as error:  # noqa: BLE001  the worker leaves because of it, and says so
            self._background.tell_of(error)

    def _feed_from_thread(self, event: Any) -> None:
        call_in_loop(self._loop, self._feed, event)

    # --- leaving ---

    def _new_background(self) -> Background:
        return Background(self._on_mishap, self._log)

    def _on_mishap(self, text: str) -> None:
        # It would wait for ever for what failed; another takes its place.
        if self._coordinator.is_open and not self._closed and self._leaving is None:
            self._leaving = self._loop.create_task(self._make_room(text))

    def _begin_to_leave(self, reason: str) -> None:
        leaving = self._make_room(reason) if reason == JOIN_AGAIN else self._leave(reason, self._limit_s)
        self._leaving = self._loop.create_task(leaving)

    async def _make_room(self, reason: str) -> None:
        """Leave once nothing is computed here any more: another may begin in this process then."""
        await self._bench.computing.come_to_rest(self._limit_s)
        if not self._closed:
            await self._leave(reason, self._limit_s)

    @property
    def _limit_s(self) -> float:
        return self._program.worker_lease_s

    async def _leave(self, reason: str, limit_s: float) -> None:
        self._coordinator.send(Leave(self._member, reason))
        await self._coordinator.flush(limit_s)
        self._depart(reason)

    def _depart(self, reason: str) -> None:
        if not self._closed:
            self._log.info("ends: %s", reason)
        self._closed = True
        if self._attaching is not None:
            self._attaching.cancel()
        if self._coordinator.is_open:
            self._coordinator.close()
            self._closing.close()
