"""Two processes' Dask servers in one: the second has an actor that the first one calls."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from distributed.core import Server

from psplatform.runtime.comms.bulk import take_part
from psplatform.runtime.comms.calls import Peer


@dataclass
class Two:
    """The one that calls, the one that is called, and the actor there."""

    caller: Server
    called: Server
    actor: Any

    @property
    def peer(self) -> Peer:
        return Peer(self.called.address, "actor")

    @property
    def connections(self) -> int:
        """How many connections the caller has, whether in use or not."""
        return int(self.caller.rpc.open)


class Calling(Server):
    """A process that makes the ordinary calls of actors as well."""

    def __init__(self, actors: dict[str, Any]) -> None:
        super().__init__({"actor_execute": self.actor_execute})
        self.state = SimpleNamespace(actors=actors)

    async def actor_execute(self, actor: str, function: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return {"status": "OK", "result": await getattr(self.state.actors[actor], function)(*args, **kwargs)}


@asynccontextmanager
async def two(actor: Any) -> AsyncIterator[Two]:
    """Begin both, and end them."""
    servers = [Calling({}), Calling({"actor": actor})]
    for one in servers:
        await one.listen("tcp://127.0.0.1:0")
        await one
    called: Any = servers[1]
    take_part(called)
    try:
        yield Two(*servers, actor)
    finally:
        for one in servers:
            await one.close()
