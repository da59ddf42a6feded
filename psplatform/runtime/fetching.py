"""A pull's content into local vectors: out of the server's segment on the same host, through comms elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import torch

from psplatform.core.messages import Pull, Pulled
from psplatform.core.wire import decode, encode
from psplatform.runtime.calls import Connect, Peer, PeerLost, call
from psplatform.runtime.content import Content, Vectors
from psplatform.runtime.segments import SegmentName
from psplatform.runtime.server_host import POLL_S, Answer
from psplatform.tensors.layout import Layout
from psplatform.tensors.vectors import shard_vectors

_DEADLINE_S: Final = POLL_S + 30.0
"""For one pull: the server's own waiting time, and the transfer of a large shard."""

_PAUSE_S: Final = 0.1


class Fetcher:
    """Executes the pulls of one member.

    Parameters
    ----------
    servers
        The servers by shard.
    vectors
        Whole flat vectors that the shards' pieces are copied into.
    expects
        Whether an answer is still wanted; what is not is not copied.
    deliver
        Takes the answer once its content is in place.
    slow_s
        How much longer an answer may take because servers are made slow.
    """

    def __init__(
        self,
        connect: Connect,
        layout: Layout,
        servers: tuple[Peer, ...],
        vectors: Vectors,
        expects: Callable[[Pulled], bool],
        deliver: Callable[[Pulled], None],
        *,
        slow_s: float = 0.0,
    ) -> None:
        self._deadline_s = _DEADLINE_S + slow_s
        self._connect = connect
        self._layout = layout
        self._servers = servers
        self._pieces = [shard_vectors(layout, shard, vectors) for shard in range(len(servers))]
        self._contents: list[Content | None] = [None] * len(servers)
        self._expects = expects
        self._deliver = deliver
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def attach(self, shard: int, name: SegmentName) -> None:
        """Read `shard` out of the segment of that name from now on, if this process can see it."""
        self._contents[shard] = Content.open(self._layout, shard, name)

    def pull(self, pull: Pull) -> None:
        """Fetch; a pull of the same shard that is still under way is given up."""
        before = self._tasks.get(pull.shard)
        if before is not None:
            before.cancel()
        self._tasks[pull.shard] = asyncio.create_task(self._fetch(pull))

    def close(self) -> None:
        """Give up whatever is under way."""
        for task in self._tasks.values():
            task.cancel()

    async def _fetch(self, pull: Pull) -> None:
        # Ends with an answer, or when the next pull or the end of the run cancels it: a server that is gone is the
        # coordinator's business, who ends the run or names another.
        while True:
            try:
                pulled = await self._try(pull)
            except PeerLost:
                await asyncio.sleep(_PAUSE_S)
                continue
            if pulled is not None:
                self._deliver(pulled)
                return

    async def _try(self, pull: Pull) -> Pulled | None:
        content = self._contents[pull.shard]
        server = self._servers[pull.shard]
        answer: Answer = await call(
            self._connect, server, "pull", encode(pull), content is None, deadline_s=self._deadline_s
        )
        if answer.pulled is None:
            return None
        pulled: Pulled = decode(answer.pulled)
        if not self._expects(pulled):
            return pulled
        return pulled if self._place(pulled, content, answer) else None

    def _place(self, pulled: Pulled, content: Content | None, answer: Answer) -> bool:
        into = self._pieces[pulled.shard]
        if content is not None:
            return content.read(answer.copy, pulled.version, pulled.epoch, into)
        for vector, array in zip(into.values(), answer.arrays, strict=True):
            vector.copy_(torch.from_numpy(array))
        return True
