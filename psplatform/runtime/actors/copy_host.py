"""One copy of a shard as a Dask actor: its node on the event loop, arithmetic in a thread of its own.

A replica has everything that a server has, the segment its content will be published in included, so that becoming the
server takes no more than a message.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar

from distributed import get_worker
from numpy.typing import NDArray

from psplatform.core.protocol.effects import Effect, Send
from psplatform.core.protocol.events import Tick
from psplatform.core.protocol.messages import (
    GRADIENTS,
    Assemble,
    Bundle,
    Exclude,
    InSync,
    Promoted,
    Pulled,
    Retiring,
)
from psplatform.core.protocol.place_messages import ActorAt, CoordinatorAt
from psplatform.core.protocol.wire import decode, encode
from psplatform.core.shards.replica import ShardCopy
from psplatform.errors import ClusterError
from psplatform.nodes.shard import ShardNode
from psplatform.replication.accounts import account_factory
from psplatform.runtime.actor_log import ActorLog
from psplatform.runtime.actors.initial_role import InitialRole
from psplatform.runtime.actors.retirement import Retirement, before_the_end, begin_to_forget_the_end
from psplatform.runtime.comms.answering import Listening
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.bulk import Outgoing
from psplatform.runtime.comms.calls import Peer, PeerLost
from psplatform.runtime.comms.coordinator_line import CoordinatorLine
from psplatform.runtime.comms.lines import Line, Said, messages_of
from psplatform.runtime.comms.processes import process_at
from psplatform.runtime.dataplane.carriers import REPLICA_PLACES
from psplatform.runtime.dataplane.gradients.packing import unpacked
from psplatform.runtime.dataplane.pulls.content import Answer
from psplatform.runtime.dataplane.pulls.serving import PullServer
from psplatform.runtime.dataplane.replicas.feed_reader import MOST_KEPT
from psplatform.runtime.dataplane.replicas.parcel import Parcel
from psplatform.runtime.dataplane.segments import SegmentName, sweep
from psplatform.runtime.dataplane.shard_state import SharedShardState
from psplatform.runtime.dataplane.transports import TRANSPORTS
from psplatform.runtime.program import Program
from psplatform.runtime.timeouts import TIMEOUTS
from psplatform.tensors.compression import UNPACKED, Packing, packing_of


class CopyHost(Listening):
    """Makes the node of a copy, and hands it what comes through Dask.

    All methods that Dask calls are coroutines, so that it runs them on the event loop of the worker, never one behind
    the other.
    """

    PLAIN: ClassVar[Mapping[str, str]] = {**Listening.PLAIN, "pull": "answer", "transfer": "receive"}

    def __init__(self, run: str, name: str, shard: int, coordinator: Peer, initial_role: InitialRole) -> None:
        self._run, self._name, self._index = run, name, shard
        self._coordinator = CoordinatorLine(coordinator)
        self._initial_role = initial_role
        self._told_epoch = 0
        self._packing: Packing = UNPACKED
        self._arithmetic = ThreadPoolExecutor(1, thread_name_prefix=f"psplatform-{name}")
        self._built = asyncio.Event()
        self._closed = False
        self._log = ActorLog(run, name)
        self._background = Background(partial(self._report, "on_copy_failed"), self._log)
        self._retirement = Retirement(self._say_retiring)
        self._begun = contextlib.ExitStack()  # what is to be ended on the event loop
        self._made = contextlib.ExitStack()  # what is to be given back in the thread that computes, which made it
        self._made.callback(sweep, run)
        self._given_back: Future[None] | None = None

    async def open(self, program: Program, initial: bytes = b"") -> str:
        """Build the shard at its initial state; must be called once, before anything else.  Return where that is.

        Without `initial` that is what the task makes.

        Raises `PeerLost` if it was closed or retired before it was open.
        """
        try:
            return await self._open(program, initial)
        except BaseException:
            self._close("could not be opened")
            self._begun.close()  # it may have been closed before
            raise

    async def _open(self, program: Program, initial: bytes) -> str:
        self._worker = get_worker()
        self._require_wanted()
        self._program, self._packing = program, packing_of(program.compression)
        self._connect = await TRANSPORTS[program.transport].connections(self._worker, self._begun)
        loop = asyncio.get_running_loop()
        make_account = account_factory(program.replication, program.plan.shards)
        archives_itself = not REPLICA_PLACES[program.replication_target].replicas_archive
        place = program, self._index, self._name, make_account, loop.time()
        control = ShardCopy(
            self._initial_role.part(*place, archives_itself=archives_itself),
            make_account,
            archives_itself=archives_itself,
            from_workers=program.plan.from_workers,
        )
        arguments = (
            self._initial_role,
            initial,
            self._connect,
            loop,
            self._arithmetic,
            self._background,
            self._made,
            self._report,
        )
        make_state = partial(SharedShardState, program, control, *arguments)
        says = self._send, make_state, self._tell_readers, self._background.tell_of
        make_node = partial(ShardNode, control, loop.time, *says)
        self._node = await loop.run_in_executor(self._arithmetic, make_node)
        self._require_wanted()
        self._begun.callback(self._node.close)
        self._begun.callback(self._node.state.close)
        self._begun.callback(self._node.state.content.answer_until, -math.inf, 0)
        self._pulls = PullServer(program, self._index, self._node)
        line = Line(
            self._connect,
            self._coordinator.peer,
            self._name,
            Background(partial(self._report, "on_copy_failed"), self._log),
            patience_s=max(program.patience_s, program.server_lease_s),
            on_lost=self._close,
            on_refused=lambda: self._close("the coordinator no longer knows this copy"),
            on_answer=self._node.feed,
            beat_s=program.server_lease_s / 4,
        )
        self._coordinator.open(line)
        self._begun.callback(line.close)
        self._background.keep(self._tick)
        plugin = f"{self._run}-{self._name}"
        self._begun.callback(begin_to_forget_the_end, self._worker, plugin)
        await before_the_end(self._worker, plugin, self._retire)
        self._built.set()
        part = "the server" if self._node.server is not None else "a replica"
        self._log.info("%s of shard %d is ready at %s", part, self._index, self._worker.address)
        return process_at(self._worker.address)

    def _require_wanted(self) -> None:
        if self._closed or self._retirement.is_over:
            raise PeerLost(f"{self._name} was given up before it was open", peer=self._worker.address)

    # --- what peers call ---

    def take(self, sender: str, said: Said) -> bool | Said:
        """Take messages of the coordinator; return what has been applied at once, or that they were heard.

        Raises
        ------
        ClusterError
            If the node has failed, at that or before: then the coordinator gives this copy up.
        """
        with self._coordinator.answering(sender, said) as answers:
            for message in messages_of(said):
                self._hear(message)
        if (failure := self._node.failure) is not None:
            raise ClusterError(f"{self._name} has failed ({type(failure).__name__}: {failure})") from failure
        if not answers:
            return True
        return encode(tuple(answers)) if isinstance(said, bytes) else tuple(answers)

    def _hear(self, message: Any) -> None:
        if isinstance(message, ActorAt):
            self._node.state.carrier.know(message.name, Peer(message.address, message.key))
        elif isinstance(message, CoordinatorAt):
            if not self._closed and self._coordinator.turn_to(message) and self._retirement.has_begun:
                self._background.do(self._say_retiring())
        else:
            self._node.feed(message)
            if isinstance(message, Exclude):
                self._let_go(message.replica)

    def _let_go(self, replica: str) -> None:
        server = self._node.server
        if server is not None and replica not in server.links.replicas and not self._closed:
            self._background.do(self._node.state.forget(replica))

    async def attach(self, member: str, slab: SegmentName | None) -> tuple[bool, SegmentName]:
        """Try to map a worker's slab; return whether that worked, and the name of this copy's segment."""
        await self._built.wait()  # the caller has a deadline
        state = self._node.state
        sees = state.gradient_buffers.attach(member, slab)
        state.feed_reader.note_arrival()
        return sees, state.content.name

    async def push(self, member: str, sequence: int, arrays: list[NDArray[Any]], counter: int | None = None) -> bool:
        """Take a gradient that cannot be read where it lies; return whether there was room for it.

        Where blocks are merged one by one, `counter` is the version that it contributes to: one that is over is not
        kept, and one too far ahead must be pushed again.  A replica makes nobody wait.
        """
        node, buffers = self._node, self._node.state.gradient_buffers
        if counter is not None and node.server is not None and not await self._waits_for_room(counter):
            return False
        if not buffers.keeps(member, sequence):  # else it is pushed again, perhaps while it is read
            vectors = await unpacked(self._packing, arrays, buffers.wanted)
            if counter is None or counter >= node.control.part.version:
                buffers.keep(member, sequence, vectors, counter, None if node.server is not None else MOST_KEPT)
        node.state.feed_reader.note_arrival()
        return True

    async def keeps(self, term: int, member: str, sequence: int) -> bool:
        """Return whether a gradient that was pushed is kept for the coordinator of `term`, who dropped it or not."""
        await self._built.wait()  # the caller has a deadline
        buffers = self._node.state.gradient_buffers
        buffers.heed(term)
        return buffers.keeps(member, sequence)

    async def push_sum(self, aggregator: str, order: bytes, arrays: list[NDArray[Any]]) -> bool:
        """Take the sum of gradients that `aggregator` was ordered to make; return that it was taken."""
        await self._built.wait()  # the caller has a deadline
        assemble: Assemble = decode(order)
        bundle = Bundle(aggregator, assemble.term, assemble.number)
        buffers = self._node.state.gradient_buffers
        buffers.keep_sum(bundle, assemble.gradients, UNPACKED.unpack(arrays, buffers.wanted))
        self._node.state.feed_reader.note_arrival()
        return True

    async def _waits_for_room(self, counter: int) -> bool:
        try:
            async with asyncio.timeout(TIMEOUTS.not_yet_s):
                while not self._node.has_room_for(counter):
                    await self._node.state.wait_for_version()
        except TimeoutError:
            return False
        return True

    def answer(self, data: bytes, with_content: bool) -> asyncio.Future[Answer]:
        """Answer with the version asked for or a newer one as soon as it is visible, or "not yet"."""
        return self._pulls.answer(data, with_content)

    async def pull(self, data: bytes, with_content: bool) -> Answer:
        """Do what `answer` does."""
        return await self._pulls.answer(data, with_content)

    async def send_content(self, data: bytes, settled: bool) -> Outgoing:
        """Answer a pull with the content, as `PullServer.send_content` does."""
        return await self._pulls.send_content(data, settled)

    async def transfer(self, parcel: Parcel) -> bytes | None:
        """Take what brings this replica to its server's position; return its answer, ``None`` for "send it whole"."""
        await self._built.wait()
        if parcel.transfer.kind == GRADIENTS:
            self._attach_all(parcel)
            await self._node.state.feed_reader.wait_for(parcel.transfer.contributions)
        answer = self._accept(parcel)
        return await answer if answer is not None else None

    def receive(self, parcel: Parcel) -> asyncio.Future[bytes] | asyncio.Task[bytes | None] | None:
        """Do what `transfer` does, in a task only where there is something to wait for first."""
        if self._built.is_set() and parcel.transfer.kind != GRADIENTS:
            return self._accept(parcel)
        return asyncio.get_running_loop().create_task(self.transfer(parcel))

    def _accept(self, parcel: Parcel) -> asyncio.Future[bytes] | None:
        self._attach_all(parcel)
        answer = self._node.state.receiver.expect(parcel)
        if answer is not None:
            self._node.feed(parcel.transfer)
        return answer

    def _attach_all(self, parcel: Parcel) -> None:
        buffers = self._node.state.gradient_buffers
        for member in parcel.slabs.keys() - buffers.slabs.keys():
            buffers.attach(member, parcel.slabs[member])

    async def forget(self, term: int, member: str, position: int) -> None:
        """Drop what a member exposed that the coordinator has dismissed, once every commit up to `position` is visible.

        One that was replaced, and wakes up, takes everybody for lost: it is not heeded.
        """
        await self._built.wait()  # the caller has a deadline
        if term >= max(self._coordinator.term, self._node.control.part.term):
            self._node.state.gradient_buffers.dismiss(member, position, term)
            self._node.state.feed_reader.note_arrival()  # nobody need wait for it

    async def retire(self) -> None:
        """Let the process of this copy end: it is not needed any more."""
        self._retirement.end()

    async def close(self) -> None:
        """Give up the shard, and the memory that it lies in; of one that is still being opened, when it is."""
        self._close("closed")
        if self._given_back is not None and self._built.is_set():
            await asyncio.wrap_future(self._given_back)  # the caller has a deadline

    def _tell_readers(self, event: Any, effects: list[Effect]) -> None:
        """Let those that see the content know whether what it shows answers pulls."""
        server = self._node.server
        answers = (server.answers_until, server.decided_in) if server is not None else (-math.inf, 0)
        self._node.state.content.answer_until(*answers)

    def _send(self, effect: Send) -> None:
        if isinstance(effect.message, Pulled):
            self._pulls.give(effect.to.name, effect.message)
        elif effect.to.kind == "copy":
            self._node.state.receiver.answer(effect.to.name, effect.message)
        else:
            if isinstance(effect.message, InSync):
                self._node.state.diverge()
            elif isinstance(effect.message, Promoted) and effect.message.epoch > self._told_epoch:
                self._told_epoch = effect.message.epoch  # it is said again to each coordinator that takes over
                served = self._index, self._told_epoch, effect.message.version
                self._log.info("serves shard %d under epoch %d from version %d", *served)
            self._coordinator.send(effect.message)

    def _report(self, method: str, text: str) -> None:
        if not self._closed:
            told = self._coordinator.tell(self._connect, method, self._name, text, deadline_s=TIMEOUTS.report_s)
            self._background.do(told)

    # --- the end ---

    async def _tick(self) -> None:
        while self._program.plan.protection is not None:
            self._node.feed(Tick())
            await asyncio.sleep(TIMEOUTS.beat_s)

    async def _retire(self) -> None:
        """Let the process end only when another copy has taken over, or after a while."""
        if self._closed:
            return
        await self._retirement.take_place()
        self._close("its process ends")

    async def _say_retiring(self) -> None:
        # Not by the line: where a signal ends the process, Dask has cancelled it.
        what = "deliver", self._name, encode([Retiring(self._name)])
        await self._coordinator.tell(self._connect, *what, deadline_s=TIMEOUTS.retirement_s)

    def _close(self, reason: str) -> None:
        if self._closed:
            return
        self._closed = True
        self._log.info("ends: %s", reason)
        self._retirement.end()
        self._begun.close()
        self._background.close()
        # After what is under way there: what that makes would be left behind else.
        self._given_back = self._arithmetic.submit(self._made.close)
        self._arithmetic.shutdown(wait=False)
