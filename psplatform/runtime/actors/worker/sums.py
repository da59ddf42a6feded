"""Gradients that are summed on their way: a worker's own as parts of bundles, and those of others that it sums."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from numpy.typing import NDArray

from psplatform.core.protocol.effects import ForgetParts, ForgetSum, SendPart, SumUp
from psplatform.core.protocol.events import PartArrived, SumReachable
from psplatform.core.protocol.messages import Assemble, Bundle
from psplatform.core.protocol.wire import encode
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.bulk import ask_worker
from psplatform.runtime.comms.calls import Connect, Peer, PeerLost
from psplatform.runtime.dataplane.gradients.gradient_buffers import Slab
from psplatform.runtime.dataplane.gradients.parts import Parts
from psplatform.runtime.dataplane.gradients.pushing import Pushes, Summed
from psplatform.runtime.dataplane.pulls.content import Vectors
from psplatform.runtime.dataplane.replicas.replica_feed import NoReplicaFeed, ReplicaFeed
from psplatform.runtime.dataplane.segments import SegmentName
from psplatform.runtime.timeouts import TIMEOUTS
from psplatform.tensors.layout import Layout
from psplatform.tensors.vectors import size_bytes

_SMALL_BYTES: Final = 1 << 16
"""Of a model whose gradients are added up in less time than another thread is asked for it."""


@dataclass(frozen=True, slots=True)
class _Sum:
    """A sum that servers have, or are being sent."""

    order: Summed
    pushes: Pushes


class SlabSums:
    """`psplatform.nodes.ports.Sums` of one worker.

    Parameters
    ----------
    member
        The worker.
    slab
        Where its gradients lie.
    replica_feed
        Sends sums to replicas as well, where these take gradients from the workers.
    workers
        Where other workers are, by name, as far as this one was told.
    make_pushes
        Returns what sends vectors to the servers.
    feed
        Takes what comes of parts and sums here.
    """

    def __init__(  # noqa: PLR0917  the parts of a worker, which its host makes
        self,
        member: str,
        layout: Layout,
        slab: Slab,
        replica_feed: ReplicaFeed | NoReplicaFeed,
        connect: Connect,
        workers: Mapping[str, Peer],
        make_pushes: Callable[[Vectors], Pushes],
        background: Background,
        *,
        feed: Callable[[Any], None],
    ) -> None:
        self._member, self._layout, self._slab = member, layout, slab
        self._arrays = [vector.numpy() for vector in slab.vectors.values()]
        self._connect, self._workers, self._make_pushes = connect, workers, make_pushes
        self._background, self._feed = background, feed
        self._replica_feed = replica_feed
        self._parts = Parts(layout)
        self._sums: dict[Bundle, _Sum] = {}
        self._summing: dict[Bundle, asyncio.Task[None]] = {}
        self._sending: asyncio.Task[None] | None = None

    # --- a part of this worker ---

    def send_part(self, effect: SendPart) -> None:
        """Send a gradient until its aggregator has it, or something else becomes of it."""
        self.end()
        self._slab.hold(effect.sequence)
        if effect.bundle.aggregator == self._member:
            self._parts.take_own(effect.bundle, self._member, effect.sequence, self._slab.vectors)
            self._feed(PartArrived(effect.bundle, self._member, effect.sequence))
        else:
            self._sending = self._background.do(self._send_part(effect))

    def end(self) -> None:
        """Send no part any more, because it is about to be written over, or sent another way."""
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

    async def _send_part(self, effect: SendPart) -> None:
        # The coordinator has it sent another way if that takes too long.
        while True:
            peer = self._workers.get(effect.bundle.aggregator)
            try:
                if peer is not None and await self._offer(peer, effect):
                    return
            except PeerLost:
                pass
            await asyncio.sleep(TIMEOUTS.push_retry_s)

    async def _offer(self, peer: Peer, effect: SendPart) -> bool:
        """Send a part, or where it lies if that can be seen there; return whether it was taken."""
        bundle, name = effect.bundle, self._slab.name
        take = partial(ask_worker, self._connect, peer, bundle.aggregator, "take_part", deadline_s=TIMEOUTS.push_s)
        what = (self._member, effect.sequence), (bundle.term, bundle.number)
        if name is not None and await take(*what, name, None):
            return True
        return bool(await take(*what, None, self._arrays))

    # --- what this worker sums ---

    def take_part(self, part: PartArrived, name: SegmentName | None, arrays: list[NDArray[Any]] | None) -> bool:
        """Take a part of another worker, where it lies or as it was sent; return whether it was to be had."""
        if arrays is not None:
            self._parts.take(part.bundle, part.member, part.sequence, arrays)
        elif name is None or not self._parts.see(part.bundle, part.member, part.sequence, name):
            return False
        self._feed(part)
        return True

    def sum_up(self, effect: SumUp) -> None:
        """Add up what is here of a bundle, and send that to every server."""
        task = self._summing[effect.bundle] = self._background.do(self._sum_up(effect))
        task.add_done_callback(lambda _: self._summing.pop(effect.bundle, None))

    async def _sum_up(self, effect: SumUp) -> None:
        bundle, loop = effect.bundle, asyncio.get_running_loop()
        if size_bytes(self._layout) <= _SMALL_BYTES:
            total = self._parts.add_up(bundle, effect.gradients)
        else:
            total = await loop.run_in_executor(None, self._parts.add_up, bundle, effect.gradients)
        if total is None:
            return
        order = Summed(encode(Assemble(bundle.term, bundle.number, effect.gradients)))
        made = self._sums[bundle] = _Sum(order, self._make_pushes(total))
        self._replica_feed.offer_sum(order, made.pushes)
        began = loop.time()
        tasks = self._push(made)
        while not all(task.done() for task in tasks):
            await asyncio.gather(*tasks)
            tasks = self._push(made)  # a server may have been replaced meanwhile
        self._feed(SumReachable(bundle, loop.time() - began))

    def _push(self, made: _Sum) -> list[asyncio.Task[None]]:
        """Push a sum to every server that does not have it; return the tasks of it."""
        return [made.pushes.start(shard, made.order) for shard in range(self._layout.shards)]

    def redirect(self, shard: int) -> None:
        """Send what is kept to the shard's new server: what the one before was sent is gone."""
        for one in self._sums.values():
            one.pushes.redirect(shard)
            one.pushes.start(shard, one.order)

    def forget(self, effect: ForgetParts) -> None:
        """Forget what has arrived of a bundle."""
        self._parts.forget(effect.bundle)

    def forget_sum(self, effect: ForgetSum) -> None:
        """Forget the sum of a bundle, and send it no more."""
        if (summing := self._summing.pop(effect.bundle, None)) is not None:
            summing.cancel()
        if (found := self._sums.pop(effect.bundle, None)) is not None:
            found.pushes.end()
