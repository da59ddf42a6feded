"""One shard's server as a Dask actor: the protocol on the event loop, arithmetic in a thread of its own."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final

import torch
from distributed import get_worker
from numpy.typing import NDArray

from psplatform.core.effects import Effect, Gather, Publish, Send, Stage
from psplatform.core.events import GatherDone, PullWithdrawn, StageDone
from psplatform.core.messages import Contribution, Pull, Pulled
from psplatform.core.server import Server
from psplatform.core.wire import decode, encode
from psplatform.errors import ProtocolError
from psplatform.runtime.calls import Peer, call
from psplatform.runtime.content import Content, Vectors, private_copy
from psplatform.runtime.exposure import Exposures
from psplatform.runtime.lines import Line
from psplatform.runtime.program import Program
from psplatform.runtime.segments import SegmentName, sweep
from psplatform.tensors.shard import Shard
from psplatform.tensors.vectors import allocate, fill, shard_vectors

POLL_S: Final = 5.0
"""How long a pull or a push waits before it is answered "not yet"; well below any deadline of a call."""

EVALUATOR: Final = "evaluator"
"""What the names of evaluators begin with."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a pull.

    Attributes
    ----------
    pulled
        The protocol's answer, encoded, or ``None`` for "not yet".
    copy
        Which copy of the server's segment holds the version.
    arrays
        The content itself, by region in the order of the layout, where it was asked for.
    """

    pulled: bytes | None
    copy: int = 0
    arrays: tuple[NDArray[Any], ...] = ()


class ServerHost:
    """Hosts `psplatform.core.server.Server` and the shard's arithmetic.

    All methods are coroutines, so that Dask runs them on the event loop of the worker, never one behind the other.
    """

    def __init__(self, run: str, shard: int, epoch: int, coordinator: Peer) -> None:
        self._run, self._index = run, shard
        self._coordinator = coordinator
        self._control = Server(shard, epoch)
        self._arithmetic = ThreadPoolExecutor(1, thread_name_prefix=f"psplatform-shard{shard}")
        self._waiting: dict[tuple[str, int], asyncio.Future[Pulled]] = {}
        self._requests = count()
        self._copied: tuple[int, tuple[NDArray[Any], ...]] = (-1, ())
        self._front = 0
        self._built = asyncio.Event()
        self._moved = asyncio.Event()

    async def open(self, program: Program) -> None:
        """Build the shard at its initial state; must be called once, before anything else."""
        self._program = program
        self._connect = get_worker().rpc
        self._loop = asyncio.get_running_loop()
        await self._loop.run_in_executor(self._arithmetic, self._build)
        self._line = Line(
            self._connect,
            self._coordinator,
            f"server-{self._index}",
            patience_s=self._program.server_lease_s,
            on_lost=lambda reason: self._close(),
            on_refused=self._close,
            beat_s=self._program.server_lease_s / 4,
        )
        self._built.set()

    def _build(self) -> None:
        workspace, layout = self._program.open(torch.device("cpu"))
        sweep()
        whole = allocate(layout)
        fill(layout, whole, workspace.initial())
        self.content = Content.create(layout, self._index, self._run, self._control.epoch)
        self._shard = Shard(
            layout,
            self._index,
            self._program.optimizer,
            shard_vectors(layout, self._index, whole),
            (dict(self.content.copies[0]), dict(self.content.copies[1])),
        )
        self.content.show(0, 0)
        self._exposures = Exposures(layout, self._index)

    # --- what peers call ---

    async def deliver(self, sender: str, data: bytes) -> bool:
        """Take messages of the coordinator."""
        for message in decode(data):
            self._feed(message)
        return True

    async def attach(self, member: str, slab: SegmentName | None) -> tuple[bool, SegmentName]:
        """Try to map a worker's slab; return whether that worked, and the name of this shard's segment."""
        await self._built.wait()  # the caller has a deadline
        return self._exposures.attach(member, slab), self.content.name

    async def push(self, member: str, sequence: int, arrays: list[NDArray[Any]], counter: int | None = None) -> bool:
        """Take a gradient that cannot be read where it lies; return whether there was room for it.

        Where blocks are merged one by one, `counter` is the version that it contributes to: one that is over is not
        kept, and one too far ahead must be pushed again.
        """
        if counter is not None and not await self._has_room_for(counter):
            return False
        if counter is None or counter >= self._control.version:
            self._exposures.keep(member, sequence, arrays, counter)
        return True

    async def _has_room_for(self, counter: int) -> bool:
        try:
            async with asyncio.timeout(POLL_S):
                while not self._control.has_room_for(counter):
                    await self._moved.wait()
        except TimeoutError:
            return False
        return True

    async def pull(self, data: bytes, with_content: bool) -> Answer:
        """Answer with the version asked for or a newer one as soon as it is visible, or "not yet"."""
        pull: Pull = decode(data)
        pulled = await self._visible(pull)
        if pulled is None:
            return Answer(None)
        if not pull.member.startswith(EVALUATOR):  # who only looks at the run is not held up
            await self._be_slow()  # it is the answer that is late, once
        # Newer versions may have become visible meanwhile; what is named is what is shown now.
        version, arrays = await self._arrays() if with_content else (self._control.version, ())
        return Answer(encode(replace(pulled, version=version)), self._front, arrays)

    async def _visible(self, pull: Pull) -> Pulled | None:
        key = pull.member, pull.request
        answer = self._waiting[key] = self._loop.create_future()
        self._feed(pull)
        try:
            async with asyncio.timeout(POLL_S):
                pulled: Pulled = await answer
        except TimeoutError:
            self._feed(PullWithdrawn(pull.member, pull.request))
            return None
        finally:
            self._waiting.pop(key, None)
        return pulled

    async def forget(self, member: str, position: int) -> None:
        """Drop what a dismissed member exposed once every commit up to `position` is visible."""
        self._exposures.dismiss(member, position)

    async def close(self) -> None:
        """Give up the shard."""
        self._close()

    # --- effects ---

    def _feed(self, event: Any) -> None:
        self._execute(self._control.handle(event, 0.0))

    def _execute(self, effects: list[Effect]) -> None:
        work: list[Gather | Stage] = []
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, Pulled):
                self._answer(effect)
            elif isinstance(effect, Send):
                self._line.send(effect.message)
            elif isinstance(effect, Publish):
                self._publish(effect)
            elif isinstance(effect, Gather | Stage):
                work.append(effect)
        if work:
            done = self._loop.run_in_executor(self._arithmetic, self._compute, work)
            done.add_done_callback(self._on_computed)

    def _answer(self, effect: Send) -> None:
        waiting = self._waiting.get((effect.to.name, effect.message.request))
        if waiting is not None and not waiting.done():
            waiting.set_result(effect.message)

    def _publish(self, effect: Publish) -> None:
        self._shard.publish(effect.version)
        self._front = 1 - self._front
        self.content.show(self._front, effect.version)
        self._exposures.release(effect.position, effect.version)
        # Whoever waits for room looks again, once; a new event is for those who wait from now on.
        self._moved.set()
        self._moved = asyncio.Event()

    def _compute(self, work: list[Gather | Stage]) -> list[GatherDone | StageDone]:
        return [self._gather(one) if isinstance(one, Gather) else self._stage(one) for one in work]

    def _gather(self, effect: Gather) -> GatherDone:
        self._shard.gather([self._contribution(one) for one in effect.contributions])
        return GatherDone(effect.position, tuple(self._shard.squared_norms()) if effect.norms else ())

    def _contribution(self, one: Contribution) -> Vectors:
        vectors = self._exposures.find(one.member, one.sequence)
        if vectors is None:
            raise ProtocolError(f"gradient {one.sequence} of slot {one.slot} is committed but never came to this shard")
        return vectors

    def _stage(self, effect: Stage) -> StageDone:
        self.content.begin_writing(1 - self._front)
        if effect.factor != 1.0:
            self._shard.scale(effect.factor)
        self._shard.stage(effect.rate)
        return StageDone(effect.position)

    def _on_computed(self, done: asyncio.Future[list[GatherDone | StageDone]]) -> None:
        error = done.exception()
        if error is not None:
            self._report(f"{type(error).__name__}: {error}")
            return
        for event in done.result():
            self._feed(event)

    def _report(self, text: str) -> None:
        arguments = self._connect, self._coordinator, "on_server_failed", self._index, text
        self._failing = self._loop.create_task(call(*arguments, deadline_s=10.0))

    async def _be_slow(self) -> None:
        slow = self._program.slow_servers
        if slow is not None:
            await asyncio.sleep(slow.delay(self._program.seed, self._index, next(self._requests)))

    async def _arrays(self) -> tuple[int, tuple[NDArray[Any], ...]]:
        # Sent bytes must not change under the sender, so they are copied, once per version for all who ask.
        while self._copied[0] != self._control.version:
            version, copy = self._control.version, self._front
            copied = await self._loop.run_in_executor(None, private_copy, self.content.copies[copy])
            if self.content.holds(copy, version, self._control.epoch):
                self._copied = version, tuple(one.numpy() for one in copied.values())
                break
        return self._copied

    def _close(self) -> None:
        self._line.close()
        self.content.remove()
        self._arithmetic.shutdown(wait=False)
        sweep(self._run)
