"""A server's confirmations over connections that lose calls and answers, and repeat calls late: all heard, in order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from psplatform.core.protocol.messages import Applied, InSync, Stop
from psplatform.core.protocol.wire import decode, encode
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import Peer
from psplatform.runtime.comms.coordinator_line import CoordinatorLine
from psplatform.runtime.comms.lines import Line, messages_of

COMMITS = 40
PATIENCE_S = 1e6
Jump = Callable[[Any], Any]


class Pair:
    """A coordinator that orders commits, and a server that confirms each once, however often it is told."""

    def __init__(self, seed: int, network: Callable[..., Any]) -> None:
        self._random = random.Random(seed)
        self.heard: list[Any] = []
        self._known, self._confirmed, self._late = 0, 0, list[asyncio.Task[None]]()
        self.to_server = self._line(network(self._call_server), "coordinator-1", on_answer=self.heard.append)
        self._coordinator = CoordinatorLine(Peer("tcp://coordinator", "key"))
        self._coordinator.open(self._line(network(self._call_coordinator), "server-0"))

    def _line(self, network: Any, sender: str, **options: Any) -> Line:
        lost = pytest.fail
        return Line(network, Peer("tcp://x", "k"), sender, Background(), patience_s=PATIENCE_S, on_lost=lost, **options)

    async def _call_server(self, method: str, sender: str, said: bytes) -> bool | bytes:
        return await self._over_the_network(self._take, sender, said)

    async def _call_coordinator(self, method: str, sender: str, said: bytes) -> bool | bytes:
        return await self._over_the_network(self._hear, sender, said)

    async def _over_the_network(self, take: Callable[..., bool | bytes], *what: Any) -> bool | bytes:
        await asyncio.sleep(self._random.expovariate(1.0))
        if self._random.random() < 0.2:
            raise OSError("the call is lost")
        if self._random.random() < 0.2:
            self._late.append(asyncio.create_task(self._again(take, *what)))
        answer = take(*what)
        await asyncio.sleep(self._random.expovariate(1.0))
        if self._random.random() < 0.3:
            raise OSError("the answer is lost")
        return answer

    async def _again(self, take: Callable[..., bool | bytes], *what: Any) -> None:
        await asyncio.sleep(self._random.expovariate(0.3))
        take(*what)

    def _hear(self, sender: str, said: bytes) -> bool:
        self.heard += messages_of(said)
        return True

    def _take(self, sender: str, said: bytes) -> bool | bytes:
        with self._coordinator.answering(sender, said) as answers:
            for order in decode(said):
                if order.term > self._known:  # nothing is said to what is known
                    self._known = order.term
                    if self._random.random() < 0.7:
                        self._confirm_all()
        return encode(tuple(answers)) if answers else True

    def _confirm_all(self) -> None:
        while self._confirmed < self._known:
            self._confirmed += 1
            self._coordinator.send(Applied(0, 1, self._confirmed, self._confirmed, ()))
            if self._random.random() < 0.2:
                self._coordinator.send(InSync(0, 1, "replica", self._confirmed))

    async def commit(self) -> None:
        for number in range(1, COMMITS + 1):
            self.to_server.send(Stop(number, ""))
            await asyncio.sleep(self._random.expovariate(0.5))
            if self._random.random() < 0.3:
                self._confirm_all()
        await self.to_server.flush(1e5)
        self._confirm_all()
        await asyncio.gather(*self._late)
        await self._coordinator.flush(1e5)


@pytest.mark.parametrize("seed", range(40))
def test_every_confirmation_is_heard_and_none_is_overtaken(seed: int, network: Any, jump: Jump) -> None:
    async def run() -> list[Any]:
        one = Pair(seed, network)
        await one.commit()
        return one.heard

    heard = jump(run())
    first = list(dict.fromkeys((one.position, type(one).__name__) for one in heard))
    assert [at for at, kind in first if kind == "Applied"] == list(range(1, COMMITS + 1)), f"seed {seed}"
    assert first == sorted(first), f"seed {seed}: an Applied comes before what is said after it"
