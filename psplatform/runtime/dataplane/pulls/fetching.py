"""A pull's content into local vectors: out of the server's segment on the same host, through comms elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psplatform.core.protocol.messages import Pull, Pulled
from psplatform.core.protocol.wire import decode, encode
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.bulk import fetch_arrays, is_streamed
from psplatform.runtime.comms.calls import (
    Begun,
    Connect,
    Peer,
    PeerLost,
    begin_call,
    call,
    call_the_living,
    while_heard,
)
from psplatform.runtime.dataplane.pulls.content import Answer, Content
from psplatform.runtime.dataplane.pulls.parameters import Parameters
from psplatform.runtime.dataplane.segments import SegmentName
from psplatform.runtime.dataplane.transports import Transport
from psplatform.runtime.timeouts import TIMEOUTS
from psplatform.tensors.layout import Layout
from psplatform.tensors.vectors import sizes


class Fetcher:
    """Executes the pulls of one member.

    Parameters
    ----------
    member
        Who pulls, and `slab` where its gradients lie, if others can see them: what every server is told first.
    peers
        The copies of shards that are known, by name.
    parameters
        Take what is pulled.
    expects
        Whether an answer is still wanted; what is not is not copied.
    deliver
        Takes the answer once its content is in place, which may be before `pull` returns.
    transport
        Opens what servers show, where it can be read.
    slow_s
        How much longer an answer may take because servers are made slow.
    background
        Does the waiting for answers; closed with this.

    Attributes
    ----------
    took
        Told of each pull that was taken without asking its server, and when.
    """

    def __init__(  # noqa: PLR0913, PLR0917  all of them are different things that every caller has
        self,
        connect: Connect,
        layout: Layout,
        member: str,
        slab: SegmentName | None,
        peers: Mapping[str, Peer],
        parameters: Parameters,
        expects: Callable[[Pulled], bool],
        deliver: Callable[[Pulled], None],
        transport: Transport,
        background: Background,
        *,
        slow_s: float = 0.0,
    ) -> None:
        self._deadline_s, self._slow = TIMEOUTS.pull_s + slow_s, slow_s > 0
        self._connect = connect
        self._layout = layout
        self._member, self._slab = member, slab
        self.peers = dict(peers)
        self._parameters = parameters
        self._contents: dict[str, Content | None] = {}
        self._sees: dict[str, bool] = {}
        self._attaching: dict[str, asyncio.Lock] = {}
        self._expects = expects
        self._deliver = deliver
        self.took: Callable[[Pulled, float], None] = lambda pulled, at: None
        self._transport = transport
        self._background = background
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._begun: dict[int, Begun] = {}

    async def attach(self, copy: str, shard: int) -> bool:
        """See to it that a copy knows this member, and this member its content; return whether it sees the slab.

        Raises
        ------
        PeerLost
            If the copy is gone or does not answer.
        """
        async with self._attaching.setdefault(copy, asyncio.Lock()):  # once, however many ask for it
            if copy not in self._contents:
                place = self._connect, self._peer(copy)
                attaching = call_the_living(*place, "attach", self._member, self._slab, deadline_s=TIMEOUTS.attach_s)
                sees, segment = await while_heard(*place, attaching, f"{self._member} attached to {copy}")
                self._forget_swept()
                how = {"private": True} if self._parameters.borrows else {}
                content = self._transport.view(self._layout, shard, segment, **how)
                self._contents[copy], self._sees[copy] = content, sees
                if content is not None:
                    await self._parameters.meet(content)
                    if self._contents.get(copy) is not content:  # it was swept meanwhile
                        self._parameters.forget(content)
                        raise PeerLost(f"{copy} is gone", peer=self._peer(copy).address)
        return self._sees[copy]

    def _forget_swept(self) -> None:
        # As long as they are mapped here, the memory of servers that were killed is not free.
        for copy, content in list(self._contents.items()):
            if content is not None and content.is_swept:
                self._parameters.forget(content)
                del self._contents[copy], self._sees[copy]

    def sees(self, copy: str) -> bool:
        """Whether a copy is known to see this member's slab."""
        return self._sees.get(copy, False)

    def pull(self, pull: Pull, copy: str) -> None:
        """Fetch from a copy; a pull of the same shard that is still under way is given up."""
        self._give_up(pull.shard)
        if not self._take_unasked(pull, copy):
            self._ask(pull, copy)

    def _take_unasked(self, pull: Pull, copy: str) -> bool:
        """Take what can be seen here that the copy would answer with at once; return whether it was there."""
        content, now = self._contents.get(copy), asyncio.get_running_loop().time()
        found = content.answer(pull, now) if content is not None and not self._slow else None
        if found is None or not self._parameters.take(found[0], content, found[1]):
            return False
        self.took(found[0], now)
        self._deliver(found[0])
        return True

    def pull_by(self, pull: Pull, ask: Callable[[Pull], Awaitable[Answer]]) -> None:
        """Do what `pull` does, where `ask` returns an answer with its content, or raises `PeerLost`."""
        self._give_up(pull.shard)
        self._tasks[pull.shard] = self._background.do(self._fetch(pull, partial(self._try_by, ask, pull)))

    def close(self) -> None:
        """Give up whatever is under way."""
        for shard in list(self._begun):
            self._give_up(shard)
        self._background.close()

    def _give_up(self, shard: int) -> None:
        task, begun = self._tasks.pop(shard, None), self._begun.pop(shard, None)
        if task is not None:
            task.cancel()
        if begun is not None:
            begun.give_up()

    def _ask(self, pull: Pull, copy: str) -> None:
        """Ask at once if the content can be read here and the way is there, else in a task."""
        begun: Begun | None = None
        if self._contents.get(copy) is not None and copy in self.peers:
            begun = begin_call(
                self._connect,
                self.peers[copy],
                *("pull", encode(pull), False),
                deadline_s=self._deadline_s,
                done=partial(self._on_answered, pull, copy),
                otherwise=partial(self._ask_in_a_task, pull, copy),
            )
        if begun is None:
            self._ask_in_a_task(pull, copy)
        else:
            self._begun[pull.shard] = begun

    def _ask_in_a_task(self, pull: Pull, copy: str) -> None:
        self._begun.pop(pull.shard, None)
        self._tasks[pull.shard] = self._background.do(self._fetch(pull, partial(self._try, pull, copy)))

    def _on_answered(self, pull: Pull, copy: str, answer: Answer) -> None:
        del self._begun[pull.shard]
        content = self._contents.get(copy)
        try:
            pulled = self._taken(answer, content) if content is not None else None
            if pulled is None:
                self._ask(pull, copy)
            else:
                self._deliver(pulled)
        except Exception as error:  # noqa: BLE001  as of a task: it is told, and the connection is not to blame
            self._background.tell_of(error)

    async def _fetch(self, pull: Pull, attempt: Callable[[], Awaitable[Pulled | None]]) -> None:
        # Ends with an answer, when the next pull or the end of the run cancels it, or when it fails and nothing waits
        # for it any more: a server that is gone is the coordinator's business, who ends the run or names another.
        while True:
            try:
                pulled = await attempt()
            except PeerLost:
                await asyncio.sleep(TIMEOUTS.pull_retry_s)
                if not self._expects(Pulled(pull.shard, pull.request, pull.version, pull.epoch)):
                    return
                continue
            if pulled is not None:
                self._deliver(pulled)
                return

    async def _try(self, pull: Pull, copy: str) -> Pulled | None:
        await self.attach(copy, pull.shard)
        content, peer = self._contents[copy], self._peer(copy)
        if content is None and is_streamed(self._connect, peer):
            return await self._receive(pull, peer)
        answer: Answer = await call(
            self._connect, peer, "pull", encode(pull), content is None, deadline_s=self._deadline_s
        )
        return self._taken(answer, content)

    async def _receive(self, pull: Pull, peer: Peer) -> Pulled | None:
        """Let the content be sent into the parameters; again, and settled, where it was written over on its way."""
        for settled in (False, True):
            arriving = _Arriving(self._expects, self._parameters, self._layout)
            what = "send_content", encode(pull), settled
            whole = await fetch_arrays(self._connect, peer, *what, into=arriving.place, deadline_s=self._deadline_s)
            if arriving.pulled is None or not arriving.wanted:
                return arriving.pulled
            if whole:
                return arriving.pulled if arriving.is_taken() else None
        return None

    async def _try_by(self, ask: Callable[[Pull], Awaitable[Answer]], pull: Pull) -> Pulled | None:
        return self._taken(await ask(pull), None)

    def _taken(self, answer: Answer, content: Content | None) -> Pulled | None:
        """Return an answer whose content is in place, if it is wanted; ``None`` where it is to be asked for again."""
        if answer.pulled is None:
            return None
        pulled: Pulled = decode(answer.pulled)
        if not self._expects(pulled):
            return pulled
        return pulled if self._parameters.take(pulled, content, answer) else None

    def _peer(self, copy: str) -> Peer:
        if copy not in self.peers:
            raise PeerLost(f"{copy} is not known here yet")
        return self.peers[copy]


class _Arriving:
    """One answer with its content, while that is read.

    Attributes
    ----------
    pulled
        The answer, once it is there; ``None`` for "not yet".
    wanted
        Whether the content is.
    """

    def __init__(self, expects: Callable[[Pulled], bool], parameters: Parameters, layout: Layout) -> None:
        self._expects, self._parameters, self._layout = expects, parameters, layout
        self.pulled: Pulled | None = None
        self.wanted = False
        self._own: tuple[NDArray[Any], ...] = ()

    def place(self, answer: bytes | None) -> Sequence[NDArray[Any]] | None:
        """Return where content is read into."""
        if answer is None:
            return ()
        self.pulled = decode(answer)
        self.wanted = self._expects(self.pulled)
        if not self.wanted:
            return None
        room = self._parameters.room(self.pulled.shard)
        if room is None:
            wanted = sizes(self._layout, self.pulled.shard)
            room = self._own = tuple(np.empty(elements, dtype) for dtype, elements in wanted.values())
        return room

    def is_taken(self) -> bool:
        """Take what was read elsewhere than into the parameters, if it is still wanted; return whether it was right."""
        if self.pulled is None or not self._own or not self._expects(self.pulled):
            return True
        return self._parameters.take(self.pulled, None, Answer(None, 0, self._own))
