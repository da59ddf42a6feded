"""A worker's gradient on its way to the servers that cannot see where it lies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.bulk import call_with_arrays
from psplatform.runtime.comms.calls import Connect, Peer, PeerLost, call
from psplatform.runtime.dataplane.gradients.packing import packed
from psplatform.runtime.dataplane.pulls.content import Vectors
from psplatform.runtime.timeouts import TIMEOUTS
from psplatform.tensors.compression import UNPACKED, Packing
from psplatform.tensors.layout import Layout
from psplatform.tensors.vectors import shard_vectors


@dataclass(frozen=True, slots=True)
class Exposed:
    """A gradient that lies in its worker's slab, whole.

    Attributes
    ----------
    sequence
        Which one of the worker's.
    counter
        The version that it contributes to, where blocks are merged one by one.
    """

    sequence: int
    counter: int | None = None

    def call(self, member: str, arrays: list[NDArray[Any]]) -> tuple[str, tuple[Any, ...]]:
        """Return the method of a server or replica that takes a shard's pieces of it, and with what."""
        return "push", (member, self.sequence, arrays, self.counter)


@dataclass(frozen=True, slots=True)
class Summed:
    """The sum of a bundle, as one order had it made.

    Attributes
    ----------
    order
        `Assemble`, encoded: which gradients it consists of.
    """

    order: bytes

    def call(self, member: str, arrays: list[NDArray[Any]]) -> tuple[str, tuple[Any, ...]]:
        """Return the method of a server or replica that takes a shard's pieces of it, and with what."""
        return "push_sum", (member, self.order, arrays)


class Pushes:
    """What one worker sends to servers: at most one gradient, or sum, at a time to the server of each shard.

    Parameters
    ----------
    member
        The worker's name.
    vectors
        Where its gradients, or the sum, lie.
    peers
        The copies of shards that are known, by name.
    server_of
        Names the copy that serves a shard, as far as the worker has heard.
    packing
        The form in which they are sent.
    """

    def __init__(
        self,
        connect: Connect,
        layout: Layout,
        member: str,
        vectors: Vectors,
        peers: Mapping[str, Peer],
        server_of: Callable[[int], str],
        background: Background,
        *,
        packing: Packing = UNPACKED,
    ) -> None:
        self._connect = connect
        self._member = member
        self._pieces = [shard_vectors(layout, shard, vectors) for shard in range(layout.shards)]
        self._packing = packing
        self._peers, self._server_of = peers, server_of
        self._background = background
        self._pushed: dict[int, tuple[Exposed | Summed, asyncio.Task[None]]] = {}
        self._taken: dict[int, str] = {}
        self._asking: dict[int, asyncio.Timeout] = {}

    def start(self, shard: int, gradient: Exposed | Summed) -> asyncio.Task[None]:
        """Push a gradient until the shard's server of that time has it; return the task of it.

        Who asks again while it is under way, or when that server has it, gets the same task.
        """
        if shard in self._pushed:
            before, task = self._pushed[shard]
            if before == gradient and (not task.done() or self._taken.get(shard) == self._server_of(shard)):
                return task
            task.cancel()
        task = self._background.do(self._push(shard, gradient))
        self._pushed[shard] = gradient, task
        return task

    def redirect(self, shard: int) -> None:
        """End the call to the server that a shard had: it may be gone, and the call would last to its deadline."""
        asking = self._asking.get(shard)
        if asking is not None and not asking.expired():
            asking.reschedule(0.0)

    async def push_again(self, shard: int, gradient: Exposed, term: int) -> None:
        """Push a gradient again that the server had, and has dropped for a coordinator before that of `term`."""
        pushed = self._pushed.get(shard)
        if pushed is None or pushed[0] != gradient:
            return  # it was written over
        await asyncio.wait({pushed[1]})
        server = self._server_of(shard)
        if self._taken.get(shard) != server or self._pushed.get(shard) is not pushed:
            return
        asked = self._member, gradient.sequence
        try:
            kept = await call(self._connect, self._peers[server], "keeps", term, *asked, deadline_s=TIMEOUTS.attach_s)
        except PeerLost:
            return  # another will be named
        if not kept and self._pushed.get(shard) is pushed:
            del self._taken[shard]
            self.start(shard, gradient)

    def end(self) -> None:
        """Give up whatever is under way, because it is about to be written over."""
        for _, task in self._pushed.values():
            task.cancel()
        self._pushed.clear()

    @property
    def servers(self) -> list[str]:
        """The copies that serve the shards, as far as the worker has heard."""
        return [self._server_of(shard) for shard in range(len(self._pieces))]

    def arrays(self, shard: int) -> list[NDArray[Any]]:
        """Return a shard's pieces of what lies there."""
        return UNPACKED.pack(self._pieces[shard])

    async def _push(self, shard: int, gradient: Exposed | Summed) -> None:
        arrays = await packed(self._packing, self._pieces[shard])
        while True:
            server = self._server_of(shard)
            try:
                taken = server in self._peers and await self._ask(shard, self._peers[server], gradient, arrays)
            except (PeerLost, TimeoutError):
                taken = False
            if self._server_of(shard) != server:
                continue  # what the former one took is gone with it
            if taken:
                self._taken[shard] = server
                return
            await asyncio.sleep(TIMEOUTS.push_retry_s)  # until the coordinator, who watches the servers, names another

    async def _ask(self, shard: int, peer: Peer, gradient: Exposed | Summed, arrays: list[NDArray[Any]]) -> bool:
        method, arguments = gradient.call(self._member, arrays)
        async with asyncio.timeout(None) as asking:
            self._asking[shard] = asking
            try:
                taken = await call_with_arrays(self._connect, peer, method, *arguments, deadline_s=TIMEOUTS.push_s)
            finally:
                if self._asking.get(shard) is asking:
                    del self._asking[shard]
        return bool(taken)
