"""The state of a copy of a shard on a cluster: parameters in shared memory, arithmetic in a thread of its own."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

import torch
from numpy.typing import NDArray

from psplatform.core.protocol.effects import Archive, Gather, Load, Publish, Serve, Skip, Stage, Transmit
from psplatform.core.protocol.events import Captured, GatherDone, GatherFailed, Loaded, StageDone
from psplatform.core.protocol.messages import Contribution, Pulled, Transfer
from psplatform.core.shards.replica import Replica, ShardCopy
from psplatform.core.shards.server import Server
from psplatform.nodes.ports import Work
from psplatform.runtime.actors.initial_role import InitialRole
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import Connect
from psplatform.runtime.dataplane.carriers import REPLICA_PLACES, KeepsTheBeginning, OffersRoom, ReadInPlace
from psplatform.runtime.dataplane.gradients.gradient_buffers import GradientBuffers
from psplatform.runtime.dataplane.pulls.content import Copied
from psplatform.runtime.dataplane.replicas.cold_storage import awaken
from psplatform.runtime.dataplane.replicas.feed_reader import FeedReader
from psplatform.runtime.dataplane.replicas.receiver import Receiver
from psplatform.runtime.dataplane.segments import sweep
from psplatform.runtime.dataplane.transports import TRANSPORTS
from psplatform.runtime.initial import initial_tensors
from psplatform.runtime.program import Program
from psplatform.runtime.store.archiving import Archiver
from psplatform.runtime.store.recording import CopyHistory
from psplatform.runtime.timeouts import TIMEOUTS
from psplatform.tensors.compression import packing_of
from psplatform.tensors.shard import Shard
from psplatform.tensors.vectors import allocate, bytes_in, fill, shard_vectors

_SMALL_BYTES: Final = 1 << 21
"""The most that a commit reads, a shard's state and a gradient of each of the job's workers, where its arithmetic takes
about as long as handing it to another thread and back: 0.1 ms."""


class SharedShardState:
    """`psplatform.nodes.ports.ShardState` of one copy, built where it computes.

    Parameters
    ----------
    control
        Whose state it is.
    initial
        What it starts from, where the task does not make that; see `psplatform.runtime.initial`.
    loop
        Of the node.
    thread
        Where everything is computed; it calls this.
    made
        Gives everything back that is made here, in the reverse order.
    report
        Takes words about what went wrong, and the coordinator's method that is told of it.
    feed
        Takes what comes of the work.

    Attributes
    ----------
    content
        What others read.
    front
        Which copy of the content is visible.
    gradient_buffers, feed_reader, carrier, receiver
        Gradients, and transfers to and from other copies.
    """

    def __init__(  # noqa: PLR0913, PLR0917  what every copy needs of its process and of the run, each a different thing
        self,
        program: Program,
        control: ShardCopy,
        initial_role: InitialRole,
        initial: bytes,
        connect: Connect,
        loop: asyncio.AbstractEventLoop,
        thread: Executor,
        background: Background,
        made: ExitStack,
        report: Callable[[str, str], None],
        feed: Callable[[Any], None],
    ) -> None:
        self._program, self._control = program, control
        self._connect, self._loop, self._thread = connect, loop, thread
        self._background, self._report, self._feed = background, report, feed
        self._copied, self._shown = Copied(), asyncio.Event()
        self._closed = False
        # What was gathered last, and its updates.
        self._gathered: tuple[Contribution, ...] = ()
        self._updates = 1
        workspace, layout = program.open(torch.device("cpu"))
        sweep()
        whole = allocate(layout)
        fill(layout, whole, initial_tensors(workspace, initial))
        index, name = control.shard, control.name
        self.content = TRANSPORTS[program.transport].publisher(layout, index, program.run, control.part.epoch)
        made.callback(self.content.remove)
        first, second = (dict(vectors) for vectors in self.content.copies)
        self.shard = shard = Shard(
            layout, index, program.optimizer, shard_vectors(layout, index, whole), (first, second)
        )
        self._is_small = bytes_in(shard.state()) + program.plan.workers * bytes_in(first) <= _SMALL_BYTES
        # A replica must not begin with that when it becomes the server.
        shard.touch(merged=program.plan.from_workers or program.plan.clip_norm is not None)
        if initial_role.fresh:
            program.restore(shard)
        if initial_role.cold and isinstance(control.part, Replica):
            awaken(program, control.part, shard)
        key = next(iter(first))
        self.front = 0 if shard.front[key] is first[key] else 1
        self.content.show(self.front, shard.version)
        self._history = CopyHistory()
        made.callback(self._history.close)
        self._history.begin(program, name, shard, control.part)
        self.gradient_buffers = GradientBuffers(layout, index)
        self._gradient_bytes = packing_of(program.compression).size_bytes(self.gradient_buffers.wanted)
        self.feed_reader = FeedReader(self.gradient_buffers, shard)
        self.receiver = Receiver(shard, self.feed_reader)
        self.carrier = REPLICA_PLACES[program.replication_target].make(
            program, name, shard, background, partial(report, "on_cold_trouble")
        )
        self._offers_room = self.carrier if isinstance(self.carrier, OffersRoom) else None
        made.callback(self.carrier.close)
        self._archiver = Archiver(program, layout, shard, background)
        made.callback(self._archiver.close)
        if program.checkpoints.written and not initial_role.serving:
            self._archiver.prepare()  # replicas write where there are any
        self._prepare(initial_role.replicas)

    def _prepare(self, replicas: Sequence[str]) -> None:
        """Prepare for the replicas that the server has from the beginning, or will have once this copy is promoted."""
        if isinstance(self.carrier, ReadInPlace):
            self.carrier.read_in_place(self.content.place_of)
        for replica in replicas:
            self.carrier.prepare(replica)
        if isinstance(self.carrier, KeepsTheBeginning) and isinstance(self._control.part, Server):
            self.carrier.keep(self._control.part)

    # --- in the node's thread ---

    def publish(self, effect: Publish) -> None:
        """Make the staged state visible."""
        self.shard.publish(effect.version)
        self.front = 1 - self.front
        self._show(effect, effect.position)
        self.gradient_buffers.forget_sums(self._gathered)

    def skip(self, effect: Skip) -> None:
        """Show what is visible under another version."""
        self._show(effect, effect.position)

    def serve(self, effect: Serve) -> None:
        """Show what is visible under another epoch, and give up soon what the server before has sent."""
        self.content.belong_to(effect.epoch)
        self._loop.call_later(TIMEOUTS.forget_s, self.receiver.forget)
        self._show(effect, -1)

    def refer(self, effect: Transmit) -> None:
        """Send a transfer that names gradients."""
        self._carry(effect)
        size_bytes = self._gradient_bytes * len({each.source for each in effect.transfer.contributions})
        self._loop.call_soon(self._feed, Captured(effect.replica, effect.transfer.number, size_bytes))

    def has_all(self, effect: Gather) -> bool:
        """Whether all gradients can be read, or were pushed."""
        self.gradient_buffers.heed(self._control.part.term)
        return self.gradient_buffers.has_all(effect.contributions, careful=effect.careful)

    def when_there(self, effect: Gather, then: Callable[[], None]) -> None:
        """Wait for what is still to be pushed: after a promotion, what was pushed to the former server is so again."""
        self._background.keep(partial(self._wait_for, effect, then))

    async def _wait_for(self, effect: Gather, then: Callable[[], None]) -> None:
        await self.feed_reader.wait_for(effect.contributions, late=effect.careful)
        then()

    def run(self, work: Sequence[Work], compute: Callable[[Sequence[Work]], list[Any]]) -> None:
        """Compute in the thread, or here what takes less time than getting there."""
        if self._is_small:
            try:
                events = compute(work)
            except Exception as error:  # noqa: BLE001  as of the thread
                self._fail(error)
            else:
                self._feed_all(events)
            return
        done = self._loop.run_in_executor(self._thread, compute, work)
        done.add_done_callback(self._on_computed)

    def _on_computed(self, done: asyncio.Future[list[Any]]) -> None:
        if done.cancelled():
            return
        if (error := done.exception()) is not None:
            self._fail(error)
        else:
            self._feed_all(done.result())

    def _fail(self, error: BaseException) -> None:
        self._report("on_copy_failed", f"{type(error).__name__}: {error}")

    def _feed_all(self, events: list[Any]) -> None:
        for event in events:
            self._feed(event)

    def _let_go_of(self, transfer: Transfer) -> None:
        """Drop what a transfer has carried, and the gradients that no later step refers to."""
        self.receiver.drop(transfer)
        self.gradient_buffers.release(transfer.position, transfer.version, self._control.part.term)

    def _next(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Call in the node's thread what was asked for where it is computed, unless the copy is given up by then."""
        if self._is_small:
            call(*arguments)
        else:
            self._loop.call_soon_threadsafe(lambda: None if self._closed else call(*arguments))

    def close(self) -> None:
        """Begin nothing more that would go on after what is being computed: no transfer, no part of a checkpoint."""
        self._closed = True

    def diverge(self) -> None:
        """Publish how far replicas in sync can be from what is visible: from now on one of them may be promoted."""
        self.content.diverge(self._divergence)

    def answered(self, member: str, pulled: Pulled, at: float) -> None:
        """Record that a pull was answered."""
        self._history.answered(member, pulled, at)

    async def newest(self) -> tuple[int, tuple[NDArray[Any], ...]]:
        """Return the visible version and a copy of its vectors."""
        return await self._copied.newest(
            self.content, lambda: (self.front, self._control.part.version, self._control.part.epoch)
        )

    def lying(self) -> tuple[int, tuple[NDArray[Any], ...], Callable[[], bool]]:
        """Return the visible version, its vectors where they lie, and what tells whether they still do, whole."""
        place = self.front, self._control.part.version, self._control.part.epoch
        return self._control.part.version, self.content.arrays(self.front), partial(self.content.holds, *place)

    async def wait_for_version(self) -> None:
        """Wait until another version is visible."""
        await self._shown.wait()

    async def forget(self, replica: str) -> None:
        """Give up what transfers to a replica took, once what is captured for it now has been sent."""
        await self._loop.run_in_executor(self._thread, lambda: None)
        self.carrier.forget(replica)

    @property
    def _divergence(self) -> float:
        part = self._control.part
        return part.links.distance if isinstance(part, Server) and part.links.in_sync else math.inf

    def _show(self, effect: Publish | Skip | Serve, position: int) -> None:
        self._history.shown(effect, self._control.part)
        self.shard.version = effect.version
        self.content.show(self.front, effect.version, self._divergence)
        self.gradient_buffers.release(position, effect.version, self._control.part.term)
        # Those that wait for room look again, once; a new event is for those who wait from now on.
        self._shown.set()
        self._shown = asyncio.Event()

    def _carry(self, effect: Transmit) -> None:
        self.carrier.send(self._connect, effect, self.gradient_buffers.slabs, self._feed)

    # --- in the thread that computes ---

    def gather(self, effect: Gather) -> GatherDone | GatherFailed:
        """Average gradients, or add them up, and measure their mean where that is asked for."""
        room = self._offers_room.room() if self._offers_room is not None else None
        gather = partial(self.gradient_buffers.gather, self.shard, effect.contributions, updates=effect.updates)
        if not gather(careful=effect.careful, into=room):
            return GatherFailed(effect.position)
        self._gathered, self._updates = effect.contributions, effect.updates
        self._history.gathered(effect.contributions)
        times = effect.updates if self.shard.adds_up else 1
        norms = (square / (times * times) for square in self.shard.squared_norms()) if effect.norms else ()
        return GatherDone(effect.position, tuple(norms))

    def stage(self, effect: Stage) -> StageDone:
        """Compute the next state where nobody reads."""
        self.content.begin_writing(1 - self.front)
        if effect.factor != 1.0:
            self.shard.scale(effect.factor)
        rate = self.shard.rate_of(effect.rate, self._updates)
        step = self.shard.stage(rate, measure=self._program.plan.protection is not None)
        self._history.staged(self._control.part.epoch, effect.position)
        return StageDone(effect.position, step)

    def load(self, effect: Load) -> Loaded:
        """Take the state, or the step, of a transfer; nothing is changed where its gradients are gone."""
        transfer, back = effect.transfer, 1 - self.front
        if not self.receiver.load(transfer, partial(self.content.begin_writing, back)):
            return Loaded(transfer.number, whole=False)
        self._next(self._let_go_of, transfer)
        self.shard.version = transfer.version
        self.front = back
        self.content.show(self.front, transfer.version)
        self._history.loaded(transfer)
        return Loaded(transfer.number)

    def capture(self, effect: Transmit) -> Captured:
        """Copy what a transfer carries, or what of it cannot be read in place."""
        size_bytes = self.carrier.capture(effect)
        self._next(self._carry, effect)
        return Captured(effect.replica, effect.transfer.number, size_bytes)

    def archive(self, effect: Archive) -> None:
        """Keep the state; it is written while training goes on."""
        self._archiver.keep(effect)
        self._history.archived(effect, self._control.part.epoch)
        self._next(self._archiver.write, effect, self._feed)
