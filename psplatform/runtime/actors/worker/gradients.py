"""A worker's gradients: computed into its slab, read from there on the same host, and pushed elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from psplatform.core.protocol.effects import Compute, Expose
from psplatform.core.protocol.events import Reachable
from psplatform.core.workers.session import WorkerSession
from psplatform.runtime.actors.worker.computing import Computing
from psplatform.runtime.actors.worker.sums import SlabSums
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import PeerLost
from psplatform.runtime.dataplane.gradients.gradient_buffers import Slab
from psplatform.runtime.dataplane.gradients.pushing import Exposed, Pushes
from psplatform.runtime.dataplane.pulls.fetching import Fetcher
from psplatform.runtime.dataplane.replicas.replica_feed import NoReplicaFeed, ReplicaFeed


class SlabGradients:
    """Computes the gradients of one worker, and sees to it that the servers can reach them.

    Parameters
    ----------
    session
        Names the server of each shard.
    replica_feed
        Sends gradients to replicas as well, where these take them from the workers.
    feed
        Takes what becomes of a gradient once it is computed.
    per_block
        Whether a gradient is reachable block by block instead of as a whole.
    sums
        Sends gradients to be summed with others, where that is done.
    """

    def __init__(  # noqa: PLR0913, PLR0917  the parts of a worker, which its host makes
        self,
        session: WorkerSession,
        slab: Slab,
        computing: Computing,
        fetcher: Fetcher,
        pushes: Pushes,
        replica_feed: ReplicaFeed | NoReplicaFeed,
        background: Background,
        feed: Callable[[Any], None],
        *,
        shards: int,
        per_block: bool,
        sums: SlabSums | None = None,
    ) -> None:
        self._session = session
        self._slab, self._computing = slab, computing
        self._fetcher, self._pushes, self._replica_feed = fetcher, pushes, replica_feed
        self._background = background
        self._feed = feed
        self._shards, self._per_block = range(shards), per_block
        self._exposed: Exposed | None = None
        self._sums = sums

    @property
    def seen(self) -> bool:
        """Whether every server sees gradients where they lie: none has to be sent."""
        return all(self._fetcher.sees(copy) for copy in self._servers())

    def compute(self, effect: Compute) -> None:
        """Compute a gradient where the one before it lies."""
        self._slab.begin()
        self._exposed = None
        self._pushes.end()
        self._end_part()
        self._computing.start(effect)

    def cancel(self, sequence: int) -> None:
        """Interrupt it, if it is still being computed."""
        self._computing.cancel(sequence)

    def expose(self, effect: Expose, counter: int) -> None:
        """Let servers read what has been computed, and push it to those that cannot see it."""
        self._end_part()
        self._slab.hold(effect.sequence)
        self._exposed = gradient = Exposed(effect.sequence, counter if self._per_block else None)
        self._replica_feed.offer(gradient, self._servers(), lambda: self._exposed == gradient)
        if self.seen:
            self._feed(Reachable(effect.sequence))
        else:
            self._background.do(self._reach_all(gradient))

    async def prepare_for(self, copy: str, shard: int) -> None:
        """Let a copy of a shard see the slab before it serves: that takes no time then."""
        await self._is_seen(copy, shard)

    async def redirect(self, shard: int, before: str) -> None:
        """Push what is exposed to the shard's new server, if it does not see it: what `before` was sent is gone."""
        if self._sums is not None:
            self._sums.redirect(shard)
        self._replica_feed.forget(before)
        self._pushes.redirect(shard)
        if not await self._is_seen(self._session.server_of(shard), shard) and self._exposed is not None:
            self._pushes.start(shard, self._exposed)

    async def push_again(self, term: int) -> None:
        """Push what is exposed to servers that have dropped it for a coordinator before that of `term`.

        Not sums: a position is given up of which the server has dropped one.
        """
        gradient = self._exposed
        if gradient is not None:
            await asyncio.gather(*(self._pushes.push_again(shard, gradient, term) for shard in self._shards))

    def close(self) -> None:
        """Compute nothing more."""
        self._computing.close()

    def _end_part(self) -> None:
        if self._sums is not None:
            self._sums.end()

    def _servers(self) -> list[str]:
        return [self._session.server_of(shard) for shard in self._shards]

    async def _is_seen(self, copy: str, shard: int) -> bool:
        try:
            return await self._fetcher.attach(copy, shard)
        except PeerLost:
            return False

    async def _reach_all(self, gradient: Exposed) -> None:
        seen = [await self._is_seen(self._session.server_of(shard), shard) for shard in self._shards]
        await asyncio.gather(*(self._reach(shard, gradient) for shard in self._shards if not seen[shard]))
        if not self._per_block:
            self._feed(Reachable(gradient.sequence))

    async def _reach(self, shard: int, gradient: Exposed) -> None:
        await self._pushes.start(shard, gradient)
        if self._per_block:
            self._feed(Reachable(gradient.sequence, (shard,)))
