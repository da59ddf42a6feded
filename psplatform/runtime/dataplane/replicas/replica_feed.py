"""A worker's gradients for the replicas that take them from the workers, behind its back: it waits for none of it.

Those that see its slab read a copy beside it, which lasts until the worker has its next gradient.  To the others a copy
is pushed, and who is still being sent one gradient is not sent the next.  What a replica misses, its server sends.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from numpy.typing import NDArray

from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.bulk import call_with_arrays
from psplatform.runtime.comms.calls import Connect, PeerLost
from psplatform.runtime.dataplane.gradients.gradient_buffers import Slab
from psplatform.runtime.dataplane.gradients.packing import is_small, packed
from psplatform.runtime.dataplane.gradients.pushing import Exposed, Pushes, Summed
from psplatform.runtime.dataplane.pulls.content import private_copy
from psplatform.runtime.dataplane.pulls.fetching import Fetcher
from psplatform.runtime.timeouts import TIMEOUTS
from psplatform.tensors.compression import UNPACKED, Packing
from psplatform.tensors.layout import Layout
from psplatform.tensors.vectors import shard_vectors

_MOST_FAILURES: Final = 3
"""Pushes in a row that fail before a replica counts as lost: nobody tells a worker."""


class NoReplicaFeed:
    """What a worker sends to replicas that get everything from their server: nothing."""

    def know(self, copy: str, shard: int) -> None:
        """Do nothing."""

    def forget(self, copy: str) -> None:
        """Forget nothing."""

    def offer(self, gradient: Exposed, servers: Sequence[str], still_there: Callable[[], bool]) -> None:
        """Send nothing."""

    def offer_sum(self, order: Summed, pushes: Pushes) -> None:
        """Send nothing."""


class ReplicaFeed:
    """What one worker sends to replicas.

    Parameters
    ----------
    member
        The worker's name.
    slab
        Where it computes its gradients.
    fetcher
        Knows where copies are, and which of them see the slab.
    packing
        The form in which gradients are sent.
    """

    def __init__(
        self,
        connect: Connect,
        layout: Layout,
        member: str,
        slab: Slab,
        fetcher: Fetcher,
        background: Background,
        *,
        packing: Packing = UNPACKED,
    ) -> None:
        self._connect = connect
        self._member = member
        self._slab = slab
        self._packing = packing
        self._pieces = [shard_vectors(layout, shard, slab.vectors) for shard in range(layout.shards)]
        self._keeping: asyncio.Task[None] | None = None
        self._fetcher = fetcher
        self._background = background
        self._replicas: dict[str, int] = {}
        self._busy: set[str] = set()
        self._failures: Counter[str] = Counter()

    def know(self, copy: str, shard: int) -> None:
        """Send gradients to a copy of a shard from now on."""
        self._replicas[copy] = shard

    def forget(self, copy: str) -> None:
        """Send nothing more to a copy."""
        self._replicas.pop(copy, None)
        self._failures.pop(copy, None)

    def offer(self, gradient: Exposed, servers: Sequence[str], still_there: Callable[[], bool]) -> None:
        """Keep a copy of a gradient, and push it to each that needs it and is not being sent another.

        Parameters
        ----------
        servers
            By shard, the copy that has it already.
        still_there
            Whether the gradient has not been written over.
        """
        if self._slab.copied is not None and (self._keeping is None or self._keeping.done()):
            self._keeping = self._background.do(self._keep_copy(gradient.sequence))
        for shard, server in enumerate(servers):
            copies = [copy for copy, of in self._replicas.items() if of == shard and copy != server]
            blind = [copy for copy in copies if copy not in self._busy and not self._fetcher.sees(copy)]
            if blind:
                self._busy.update(blind)
                self._background.do(self._copy_and_push(blind, shard, gradient, still_there))

    def offer_sum(self, order: Summed, pushes: Pushes) -> None:
        """Push the sum of a bundle to each replica that is not being sent another; servers are sent it anyway.

        Parameters
        ----------
        pushes
            What sends it to the servers.
        """
        idle = [copy for copy in self._replicas if copy not in pushes.servers and copy not in self._busy]
        self._busy.update(idle)
        for copy in idle:
            shard = self._replicas[copy]
            self._background.do(self._push(copy, shard, order, pushes.arrays(shard)))

    async def _keep_copy(self, sequence: int) -> None:
        if is_small(self._slab.vectors):  # the worker may be quicker than another thread
            self._slab.keep_copy(sequence)
        else:
            await asyncio.get_running_loop().run_in_executor(None, self._slab.keep_copy, sequence)

    async def _copy_and_push(
        self, copies: list[str], shard: int, gradient: Exposed, still_there: Callable[[], bool]
    ) -> None:
        pieces = self._pieces[shard]
        if is_small(pieces):
            copied = private_copy(pieces)
        else:
            copied = await asyncio.get_running_loop().run_in_executor(None, private_copy, pieces)
        if not still_there():  # it may have been written over while it was copied
            self._busy.difference_update(copies)
            return
        arrays = await packed(self._packing, copied)
        await asyncio.gather(*(self._push(copy, shard, gradient, arrays) for copy in copies))

    async def _push(self, copy: str, shard: int, gradient: Exposed | Summed, arrays: list[NDArray[Any]]) -> None:
        try:
            sees = await self._fetcher.attach(copy, shard)
            if not sees or isinstance(gradient, Summed):
                method, arguments = gradient.call(self._member, arrays)
                peer = self._fetcher.peers[copy]
                await call_with_arrays(self._connect, peer, method, *arguments, deadline_s=TIMEOUTS.feed_s)
        except PeerLost:
            self._failures[copy] += 1
            if self._failures[copy] >= _MOST_FAILURES:
                self.forget(copy)
        else:
            self._failures[copy] = 0
        finally:
            self._busy.discard(copy)
