"""One copy of a shard as a Dask actor: the protocol on the event loop, arithmetic in a thread of its own.

A replica has everything that a server has, the segment its content will be published in included, so that becoming the
server takes no more than a message.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, Final

import torch
from distributed import get_worker
from numpy.typing import NDArray

from psplatform.core.effects import Archive, Effect, Gather, Load, Publish, Send, Serve, Skip, Stage, Transmit
from psplatform.core.events import Captured, GatherDone, GatherFailed, Loaded, StageDone, Tick
from psplatform.core.messages import GRADIENTS, Exclude, InSync, Pull, Pulled, Retiring, Transfer
from psplatform.core.replica import Replica
from psplatform.core.server import Server
from psplatform.core.shard_copy import ShardCopy
from psplatform.core.wire import decode, encode
from psplatform.replication.accounts import account_factory
from psplatform.runtime.answering import POLL_S, Answering
from psplatform.runtime.archiving import Archiver
from psplatform.runtime.background import Background
from psplatform.runtime.beginning import Beginning
from psplatform.runtime.calls import Peer, PeerLost, call, connections_of
from psplatform.runtime.cold_storage import StoreCarrier, awaken
from psplatform.runtime.content import Answer, Content, Copied
from psplatform.runtime.exposure import Exposures
from psplatform.runtime.following import MOST_KEPT, Follower
from psplatform.runtime.lines import Line
from psplatform.runtime.processes import Locatable, process_at
from psplatform.runtime.program import Program
from psplatform.runtime.recording import CopyHistory
from psplatform.runtime.retirement import before_the_end, not_before_the_end
from psplatform.runtime.segments import SegmentName, sweep
from psplatform.runtime.transfers import Carrier, Parcel, Receiver
from psplatform.tensors.shard import Shard
from psplatform.tensors.vectors import allocate, fill, shard_vectors

EVALUATOR: Final = "evaluator"
"""What the names of evaluators begin with."""

BEAT_S: Final = 0.25
"""Between the beats of who holds a lease: a small part of the shortest one."""

RETIREMENT_S: Final = 3.0
"""How long a process that ends in good order waits until its copies are not needed any more; Dask allows four."""

_REPORT_S: Final = 10.0

_FORGET_AFTER_S: Final = 1.0
"""After becoming the server, it gives up the memory of the one before: not at once, because that takes time."""

_Work = Gather | Stage | Load | Transmit | Archive
_Done = GatherDone | GatherFailed | StageDone | Loaded | Captured | None


class CopyHost(Locatable):
    """Hosts `psplatform.core.shard_copy.ShardCopy` and the shard's arithmetic.

    All methods are coroutines, so that Dask runs them on the event loop of the worker, never one behind the other.
    """

    def __init__(self, run: str, name: str, shard: int, coordinator: Peer, beginning: Beginning) -> None:
        self._run, self._name, self._index = run, name, shard
        self._coordinator, self._term = coordinator, 0
        self._beginning = beginning
        self._arithmetic = ThreadPoolExecutor(1, thread_name_prefix=f"psplatform-{name}")
        self._answering = Answering(self._feed)
        self._requests = count()
        self._copied = Copied()
        self._front = 0
        self._built = asyncio.Event()
        self._moved = asyncio.Event()
        self._retired = asyncio.Event()
        self._closed = self._retiring = False
        self._background = Background(self._report)
        self._begun = contextlib.ExitStack()  # what is to be ended on the event loop
        self._made = contextlib.ExitStack()  # what is to be given back in the thread that computes, which made it
        self._made.callback(sweep, run)
        self._history = CopyHistory()
        self._made.callback(self._history.close)
        self._given_back: Future[None] | None = None

    async def open(self, program: Program) -> str:
        """Build the shard at its initial state; must be called once, before anything else.  Return where that is.

        Raises `PeerLost` if it was closed or retired before it was open.
        """
        try:
            return await self._open(program)
        except BaseException:
            self._close()
            raise

    async def _open(self, program: Program) -> str:
        self._worker = get_worker()
        self._require_wanted()
        self._program = program
        self._connect = connections_of(self._worker)
        self._loop = asyncio.get_running_loop()
        make_account = account_factory(program.replication, program.plan.shards)
        self._control = ShardCopy(
            self._beginning.part(program, self._index, self._name, make_account, self._loop.time()),
            make_account,
            archives_itself=program.cold,
            from_workers=program.plan.from_workers,
        )
        await self._loop.run_in_executor(self._arithmetic, self._build)
        self._require_wanted()
        self._line = Line(
            self._connect,
            self._coordinator,
            self._name,
            patience_s=max(program.patience_s, program.server_lease_s),
            on_lost=lambda reason: self._close(),
            on_refused=self._close,
            on_answer=self._feed,
            beat_s=program.server_lease_s / 4,
        )
        self._begun.callback(self._line.close)
        self._background.keep(self._tick)
        plugin = f"{self._run}-{self._name}"
        self._begun.callback(lambda: self._loop.create_task(not_before_the_end(self._worker, plugin)))
        await before_the_end(self._worker, plugin, self._retire)
        self._built.set()
        return process_at(self._worker.address)

    def _require_wanted(self) -> None:
        if self._closed or self._retired.is_set():
            raise PeerLost(f"{self._name} was given up before it was open", peer=self._worker.address)

    def _build(self) -> None:
        workspace, layout = self._program.open(torch.device("cpu"))
        sweep()
        whole = allocate(layout)
        fill(layout, whole, workspace.initial())
        self.content = Content.create(layout, self._index, self._run, self._control.part.epoch)
        self._made.callback(self.content.remove)
        pieces = shard_vectors(layout, self._index, whole)
        storage = dict(self.content.copies[0]), dict(self.content.copies[1])
        self._shard = Shard(layout, self._index, self._program.optimizer, pieces, storage)
        self._shard.touch()  # a replica must not begin with that when it becomes the server
        if self._beginning.fresh:
            self._program.restore(self._shard)
        if self._beginning.cold and isinstance(self._control.part, Replica):
            awaken(self._program, self._control.part, self._shard)
        self._front = 0 if self._shard.front[next(iter(storage[0]))] is storage[0][next(iter(storage[0]))] else 1
        self.content.show(self._front, self._shard.version)
        self._history.begin(self._program, self._name, self._shard, self._control.part)
        self._exposures = Exposures(layout, self._index)
        shared = self._program.transport != "comms"
        self._carrier: Carrier | StoreCarrier = Carrier(
            self._run, self._name, self._shard, self._background, shared=shared
        )
        if self._program.cold:
            on_trouble = partial(self._report, method="on_cold_trouble")
            self._carrier = StoreCarrier(self._name, self._shard, self._background, self._program, on_trouble)
        self._made.callback(self._carrier.close)
        self._follower = Follower(self._exposures, self._shard)
        self._receiver = Receiver(self._shard, self._follower)
        self._archiver = Archiver(self._program, layout, self._shard, self._background)
        self._made.callback(self._archiver.close)
        if self._program.checkpoints.written and not self._beginning.serving:
            self._archiver.prepare()  # replicas write where there are any
        for name in self._beginning.replicas:
            self._carrier.prepare(name)

    # --- what peers call ---

    async def deliver(self, sender: str, data: bytes) -> bool:
        """Take messages of the coordinator."""
        for message in decode(data):
            if isinstance(message, dict):
                self._take_note(message)
            else:
                self._feed(message)
                if isinstance(message, Exclude):
                    self._let_go(message.replica)
        return True

    def _let_go(self, replica: str) -> None:
        part = self._control.part
        if isinstance(part, Server) and replica not in part.links.replicas and not self._closed:
            # What is captured for it now is sent before it is forgotten.
            captured = self._loop.run_in_executor(self._arithmetic, lambda: None)
            captured.add_done_callback(lambda done: self._carrier.forget(replica))

    def _take_note(self, message: dict[str, Any]) -> None:
        peer = Peer(message["address"], message["key"])
        if "peer" in message:
            self._carrier.know(message["peer"], peer)
        elif message["lead"] > self._term:
            self._term = message["lead"]
            self._line.retarget(peer)
            if self._retiring:
                self._background.do(self._say_retiring())

    async def attach(self, member: str, slab: SegmentName | None) -> tuple[bool, SegmentName]:
        """Try to map a worker's slab; return whether that worked, and the name of this copy's segment."""
        await self._built.wait()  # the caller has a deadline
        sees = self._exposures.attach(member, slab)
        self._follower.note_arrival()
        return sees, self.content.name

    async def push(self, member: str, sequence: int, arrays: list[NDArray[Any]], counter: int | None = None) -> bool:
        """Take a gradient that cannot be read where it lies; return whether there was room for it.

        Where blocks are merged one by one, `counter` is the version that it contributes to: one that is over is not
        kept, and one too far ahead must be pushed again.  A replica makes nobody wait.
        """
        part = self._control.part
        if counter is not None and isinstance(part, Server) and not await self._has_room_for(counter):
            return False
        if counter is None or counter >= part.version:
            most = MOST_KEPT if isinstance(part, Replica) else None
            self._exposures.keep(member, sequence, arrays, counter, most)
        self._follower.note_arrival()
        return True

    async def _has_room_for(self, counter: int) -> bool:
        try:
            async with asyncio.timeout(POLL_S):
                while not (isinstance(self._control.part, Server) and self._control.part.has_room_for(counter)):
                    await self._moved.wait()
        except TimeoutError:
            return False
        return True

    async def pull(self, data: bytes, with_content: bool) -> Answer:
        """Answer with the version asked for or a newer one as soon as it is visible, or "not yet"."""
        pull: Pull = decode(data)
        pulled = await self._answering.answer_to(pull)
        if pulled is None:
            return Answer(None)
        looks_on = pull.member.startswith(EVALUATOR)  # and is not held up
        if not looks_on and (late_s := self._program.answer_delay_s(self._index, next(self._requests))):
            await asyncio.sleep(late_s)  # it is the answer that is late, once
        if not with_content:  # newer versions may have become visible meanwhile; what is named is what is shown now
            return Answer(encode(replace(pulled, version=self._control.part.version)), self._front, ())
        version, arrays = await self._copied.newest(self.content, self._shown)
        return Answer(encode(replace(pulled, version=version)), self._front, arrays)

    async def transfer(self, parcel: Parcel) -> bytes | None:
        """Take what brings this replica to its server's position; return its answer, ``None`` for "send it whole"."""
        await self._built.wait()
        for member, slab in parcel.slabs.items():
            if member not in self._exposures.slabs:
                self._exposures.attach(member, slab)
        if not self._receiver.can_see(parcel):
            return None
        if parcel.transfer.kind == GRADIENTS:
            await self._follower.wait_for(parcel.transfer.contributions)
        answer = self._receiver.expect(parcel)
        self._feed(parcel.transfer)
        return encode(await answer)

    async def forget(self, term: int, member: str, position: int) -> None:
        """Drop what a member exposed that the coordinator has dismissed, once every commit up to `position` is visible.

        One that was replaced, and wakes up, takes everybody for lost: it is not heeded.
        """
        await self._built.wait()  # the caller has a deadline
        if term >= max(self._term, self._control.part.term):
            self._exposures.dismiss(member, position)
            self._follower.note_arrival()  # nobody need wait for it

    async def retire(self) -> None:
        """Note that nobody needs this copy any more."""
        self._retired.set()

    async def close(self) -> None:
        """Give up the shard, and the memory that it lies in; of one that is still being opened, when it is."""
        self._close()
        if self._given_back is not None and self._built.is_set():
            await asyncio.wrap_future(self._given_back)  # the caller has a deadline

    # --- effects ---

    def _feed(self, event: Any) -> None:
        if self._closed:
            return
        self._now = self._loop.time()
        self._execute(self._control.handle(event, self._now))

    def _execute(self, effects: list[Effect]) -> None:
        work: list[_Work] = []
        for effect in effects:
            if isinstance(effect, Send):
                self._send(effect)
            elif isinstance(effect, Publish):
                self._shard.publish(effect.version)
                self._front = 1 - self._front
                self._show(effect, effect.position)
            elif isinstance(effect, Skip):
                self._show(effect, effect.position)
            elif isinstance(effect, Serve):
                self.content.belong_to(effect.epoch)
                self._loop.call_later(_FORGET_AFTER_S, self._receiver.forget)
                self._show(effect, -1)
            elif isinstance(effect, Transmit) and effect.transfer.kind == GRADIENTS:
                self._name_gradients(effect)
            elif isinstance(effect, Gather | Stage | Load | Transmit | Archive):
                work.append(effect)
        if work:
            self._arrange(work)

    def _arrange(self, work: list[_Work]) -> None:
        gather = next((place for place, one in enumerate(work) if isinstance(one, Gather)), len(work))
        late = len(work) if self._can_begin(work[gather:]) else gather
        if work[:late]:
            self._begin(work[:late])
        if work[late:]:
            self._background.keep(partial(self._begin_late, work[late:]))

    def _can_begin(self, work: list[_Work]) -> bool:
        gather = work[0] if work else None
        return not isinstance(gather, Gather) or self._exposures.has_all(gather.contributions, careful=gather.careful)

    async def _begin_late(self, work: list[_Work]) -> None:
        # After a promotion, what was pushed to the former server is pushed to this one.
        gather = work[0]
        if isinstance(gather, Gather):
            await self._follower.wait_for(gather.contributions, late=gather.careful)
        if self._can_begin(work):
            self._begin(work)
        elif isinstance(gather, Gather):
            self._feed(GatherFailed(gather.position))  # there is nothing to stage

    def _begin(self, work: list[_Work]) -> None:
        done = self._loop.run_in_executor(self._arithmetic, self._compute, work)
        done.add_done_callback(self._on_computed)

    def _send(self, effect: Send) -> None:
        if isinstance(effect.message, Pulled):
            if self._answering.give(effect.to.name, effect.message):
                self._history.answered(effect.to.name, effect.message, self._now)
        elif effect.to.kind == "copy":
            self._receiver.answer(effect.to.name, effect.message)
        else:
            if isinstance(effect.message, InSync):
                self.content.diverge(self._divergence)  # from now on this replica may be promoted
            self._line.send(effect.message)

    @property
    def _divergence(self) -> float:
        part = self._control.part
        return part.links.distance if isinstance(part, Server) and part.links.in_sync else math.inf

    def _show(self, effect: Publish | Skip | Serve, position: int) -> None:
        self._history.shown(effect, self._control.part)
        self._shard.version = effect.version
        self.content.show(self._front, effect.version, self._divergence)
        self._exposures.release(position, effect.version)
        # Whoever waits for room looks again, once; a new event is for those who wait from now on.
        self._moved.set()
        self._moved = asyncio.Event()

    # --- in the arithmetic's thread ---

    def _compute(self, work: list[_Work]) -> list[_Done]:
        done: list[_Done] = []
        for one in work:
            done.append(self._do(one))
            if isinstance(done[-1], GatherFailed):
                break  # there is nothing to stage
        return done

    def _do(self, work: _Work) -> _Done:
        if isinstance(work, Gather):
            return self._gather(work)
        if isinstance(work, Stage):
            return self._stage(work)
        if isinstance(work, Load):
            return self._load(work.transfer)
        if isinstance(work, Archive):
            self._archiver.copy(work)
            self._history.archived(work, self._control.part.epoch)
            self._loop.call_soon_threadsafe(self._archive, work)
            return None
        size_bytes = self._carrier.capture(work)
        self._loop.call_soon_threadsafe(self._carry, work)
        return Captured(work.replica, work.transfer.number, size_bytes)

    def _gather(self, effect: Gather) -> GatherDone | GatherFailed:
        if not self._exposures.gather(self._shard, effect.contributions, careful=effect.careful):
            return GatherFailed(effect.position)
        self._history.gathered(effect.contributions)
        return GatherDone(effect.position, tuple(self._shard.squared_norms()) if effect.norms else ())

    def _stage(self, effect: Stage) -> StageDone:
        self.content.begin_writing(1 - self._front)
        if effect.factor != 1.0:
            self._shard.scale(effect.factor)
        measure = self._program.plan.protection is not None
        step = self._shard.stage(effect.rate, measure=measure)
        self._history.staged(self._control.part.epoch, effect.position)
        return StageDone(effect.position, step)

    def _load(self, transfer: Transfer) -> Loaded:
        back = 1 - self._front
        if not self._receiver.load(transfer, partial(self.content.begin_writing, back)):
            return Loaded(transfer.number, whole=False)
        self._loop.call_soon_threadsafe(self._receiver.drop, transfer)
        self._shard.version = transfer.version
        self._front = back
        self.content.show(self._front, transfer.version)
        self._history.loaded(transfer)
        return Loaded(transfer.number)

    def _on_computed(self, done: asyncio.Future[list[_Done]]) -> None:
        error = None if done.cancelled() else done.exception()
        if self._closed or done.cancelled():
            return
        if error is not None:
            self._report(f"{type(error).__name__}: {error}")
            return
        for event in done.result():
            if event is not None:
                self._feed(event)
            if isinstance(event, Loaded) and isinstance(self._control.part, Replica):
                self._follower.release(self._control.part)

    def _report(self, text: str, method: str = "on_copy_failed") -> None:
        if not self._closed:
            self._background.do(self._tell(method, text))

    async def _tell(self, method: str, text: str) -> None:
        with contextlib.suppress(PeerLost):  # then its successor is told by what this copy does not do
            arguments = self._name, text
            await call(self._connect, self._line.peer, method, *arguments, deadline_s=_REPORT_S)

    # --- replicas and checkpoints ---

    def _carry(self, effect: Transmit) -> None:
        self._carrier.send(self._connect, effect, self._exposures.slabs, self._feed)

    def _name_gradients(self, effect: Transmit) -> None:
        self._carry(effect)
        one = sum(vector.numel() * vector.element_size() for vector in self._shard.front.values())
        size_bytes = one * len(effect.transfer.contributions)
        self._loop.call_soon(self._feed, Captured(effect.replica, effect.transfer.number, size_bytes))

    def _archive(self, effect: Archive) -> None:
        self._archiver.write(effect, self._feed)

    # --- pulls ---

    def _shown(self) -> tuple[int, int, int]:
        return self._front, self._control.part.version, self._control.part.epoch

    # --- the end ---

    async def _tick(self) -> None:
        while self._program.plan.protection is not None:
            self._feed(Tick())
            await asyncio.sleep(BEAT_S)

    async def _retire(self) -> None:
        """Let the process end only when another copy has taken over, or after a while."""
        if self._closed:
            return
        self._retiring = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RETIREMENT_S):
                await self._say_retiring()
                await self._retired.wait()
        self._close()

    async def _say_retiring(self) -> None:
        # Not by the line: where a signal ends the process, Dask has cancelled it.
        message = encode([Retiring(self._name)])
        with contextlib.suppress(PeerLost):  # then its successor is told
            await call(self._connect, self._line.peer, "deliver", self._name, message, deadline_s=RETIREMENT_S)

    def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._retired.set()
        self._begun.close()
        self._background.close()
        # After what is under way there: what that makes would be left behind else.
        self._given_back = self._arithmetic.submit(self._made.close)
        self._arithmetic.shutdown(wait=False)
