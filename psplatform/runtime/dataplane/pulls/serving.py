"""How a copy of a shard answers pulls: with the version that it shows then, and with the content where it is asked."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import count
from typing import Any

from psplatform.core.protocol.messages import Pull, Pulled
from psplatform.core.protocol.wire import decode, encode
from psplatform.core.supervision.decisions import EVALUATOR
from psplatform.nodes.shard import ShardNode
from psplatform.runtime.comms.answering import Answering
from psplatform.runtime.comms.bulk import Outgoing
from psplatform.runtime.dataplane.pulls.content import Answer
from psplatform.runtime.dataplane.shard_state import SharedShardState
from psplatform.runtime.program import Program


class PullServer:
    """Takes pulls, and answers each when the copy's node has said that it is answered.

    Parameters
    ----------
    shard
        Which shard it is a copy of: how late its answers are may depend on that.
    node
        Decides which pulls are answered, and has the content.
    """

    def __init__(self, program: Program, shard: int, node: ShardNode[SharedShardState]) -> None:
        self._program, self._shard, self._node = program, shard, node
        self._answering: Answering[Any] = Answering(node.feed)
        self._requests = count()

    def answer(self, data: bytes, with_content: bool) -> asyncio.Future[Answer]:
        """Answer with the version asked for or a newer one as soon as it is visible, or "not yet"."""
        pull: Pull = decode(data)
        if not with_content and not self._is_late(pull):
            return self._answering.answer_to(pull, self._answer_with)
        return asyncio.get_running_loop().create_task(self._answer_later(pull, with_content=with_content))

    async def send_content(self, data: bytes, settled: bool) -> Outgoing:
        """Answer a pull with the encoded answer, or ``None`` for "not yet", and the content.

        Unless it is to be `settled`, it is sent from where it lies if no worker that servers wait for can find it
        written over there.
        """
        pull: Pull = decode(data)
        pulled = await self._pulled(pull)
        if pulled is None:
            return Outgoing(None)
        stays = self._program.policy.traits.awaits_all and not pull.member.startswith(EVALUATOR)
        if settled or not stays:
            version, arrays = await self._node.state.newest()
            return Outgoing(encode(replace(pulled, version=version)), arrays)
        version, arrays, holds = self._node.state.lying()
        return Outgoing(encode(replace(pulled, version=version)), arrays, holds)

    def give(self, member: str, pulled: Pulled) -> None:
        """Answer a member's pull, if it still waits for that."""
        if self._answering.give(member, pulled):
            self._node.state.answered(member, pulled, self._node.now)

    def _is_late(self, pull: Pull) -> bool:
        return self._program.slow_servers is not None and not pull.member.startswith(EVALUATOR)  # who looks on only

    async def _pulled(self, pull: Pull) -> Pulled | None:
        pulled: Pulled | None = await self._answering.answer_to(pull, lambda pulled: pulled)
        if pulled is not None and self._is_late(pull):  # it is the answer that is late, once
            await asyncio.sleep(self._program.answer_delay_s(self._shard, next(self._requests)))
        return pulled

    async def _answer_later(self, pull: Pull, *, with_content: bool) -> Answer:
        pulled = await self._pulled(pull)
        if pulled is None or not with_content:
            return self._answer_with(pulled)
        version, arrays = await self._node.state.newest()
        return Answer(encode(replace(pulled, version=version)), self._node.state.front, arrays)

    def _answer_with(self, pulled: Pulled | None) -> Answer:
        # Newer versions may have become visible meanwhile; what is named is what is shown now.
        if pulled is None:
            return Answer(None)
        version = self._node.control.part.version
        shown = pulled if version == pulled.version else replace(pulled, version=version)
        return Answer(encode(shown), self._node.state.front)
