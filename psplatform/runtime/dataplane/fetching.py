"""A pull's content into local vectors: out of the server's segment on the same host, through comms elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import torch

from psplatform.core.protocol.messages import Pull, Pulled
from psplatform.core.protocol.wire import decode, encode
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import Connect, Peer, PeerLost, call
from psplatform.runtime.dataplane.content import Answer, Content, Vectors
from psplatform.runtime.dataplane.segments import SegmentName
from psplatform.runtime.dataplane.transports import Transport
from psplatform.runtime.timeouts import TIMEOUTS
from psplatform.tensors.layout import Layout
from psplatform.tensors.vectors import shard_vectors


class Fetcher:
    """Executes the pulls of one member.

    Parameters
    ----------
    member
        Who pulls, and `slab` where its gradients lie, if others can see them: what every server is told first.
    peers
        The copies of shards that are known, by name.
    vectors
        Whole flat vectors that the shards' pieces are copied into.
    expects
        Whether an answer is still wanted; what is not is not copied.
    deliver
        Takes the answer once its content is in place.
    transport
        Opens what servers show, where it can be read.
    slow_s
        How much longer an answer may take because servers are made slow.
    background
        Does the waiting for answers; closed with this.
    """

    def __init__(  # noqa: PLR0913, PLR0917  all of them are different things that every caller has
        self,
        connect: Connect,
        layout: Layout,
        member: str,
        slab: SegmentName | None,
        peers: Mapping[str, Peer],
        vectors: Vectors,
        expects: Callable[[Pulled], bool],
        deliver: Callable[[Pulled], None],
        transport: Transport,
        background: Background,
        *,
        slow_s: float = 0.0,
    ) -> None:
        self._deadline_s = TIMEOUTS.pull_s + slow_s
        self._connect = connect
        self._layout = layout
        self._member, self._slab = member, slab
        self.peers = dict(peers)
        self._pieces = [shard_vectors(layout, shard, vectors) for shard in range(layout.shards)]
        self._contents: dict[str, Content | None] = {}
        self._sees: dict[str, bool] = {}
        self._attaching: dict[str, asyncio.Lock] = {}
        self._expects = expects
        self._deliver = deliver
        self._transport = transport
        self._background = background
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def attach(self, copy: str, shard: int) -> bool:
        """See to it that a copy knows this member, and this member its content; return whether it sees the slab.

        Raises
        ------
        PeerLost
            If the copy is gone or does not answer.
        """
        async with self._attaching.setdefault(copy, asyncio.Lock()):  # once, however many ask for it
            if copy not in self._contents:
                sees, segment = await call(
                    self._connect, self._peer(copy), "attach", self._member, self._slab, deadline_s=TIMEOUTS.attach_s
                )
                self._forget_swept()
                self._contents[copy] = self._transport.view(self._layout, shard, segment)
                self._sees[copy] = sees
        return self._sees[copy]

    def _forget_swept(self) -> None:
        # As long as they are mapped here, the memory of servers that were killed is not free.
        for copy in [copy for copy, content in self._contents.items() if content is not None and content.is_swept]:
            del self._contents[copy], self._sees[copy]

    def sees(self, copy: str) -> bool:
        """Whether a copy is known to see this member's slab."""
        return self._sees.get(copy, False)

    def pull(self, pull: Pull, copy: str) -> None:
        """Fetch from a copy; a pull of the same shard that is still under way is given up."""
        before = self._tasks.get(pull.shard)
        if before is not None:
            before.cancel()
        self._tasks[pull.shard] = self._background.do(self._fetch(pull, copy))

    def close(self) -> None:
        """Give up whatever is under way."""
        self._background.close()

    async def _fetch(self, pull: Pull, copy: str) -> None:
        # Ends with an answer, or when the next pull or the end of the run cancels it: a server that is gone is the
        # coordinator's business, who ends the run or names another.
        while True:
            try:
                pulled = await self._try(pull, copy)
            except PeerLost:
                await asyncio.sleep(TIMEOUTS.pull_retry_s)
                continue
            if pulled is not None:
                self._deliver(pulled)
                return

    async def _try(self, pull: Pull, copy: str) -> Pulled | None:
        await self.attach(copy, pull.shard)
        content = self._contents[copy]
        answer: Answer = await call(
            self._connect, self._peer(copy), "pull", encode(pull), content is None, deadline_s=self._deadline_s
        )
        if answer.pulled is None:
            return None
        pulled: Pulled = decode(answer.pulled)
        if not self._expects(pulled):
            return pulled
        return pulled if self._place(pulled, content, answer) else None

    def _peer(self, copy: str) -> Peer:
        if copy not in self.peers:
            raise PeerLost(f"{copy} is not known here yet")
        return self.peers[copy]

    def _place(self, pulled: Pulled, content: Content | None, answer: Answer) -> bool:
        into = self._pieces[pulled.shard]
        if content is not None:
            return content.read(answer.copy, pulled.version, pulled.epoch, into)
        for vector, array in zip(into.values(), answer.arrays, strict=True):
            vector.copy_(torch.from_numpy(array))
        return True
