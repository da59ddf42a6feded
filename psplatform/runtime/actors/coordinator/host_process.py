"""The process that a coordinator or a standby runs in: what it has there, and gives back when it leaves."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any, Self

from distributed import Client, get_worker

from psplatform.core.supervision.unavailable import UnavailableProcesses
from psplatform.runtime.actors.retirement import before_the_end, not_before_the_end
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import Connect, Peer
from psplatform.runtime.comms.closing import close_client
from psplatform.runtime.comms.publication import Card, open_client
from psplatform.runtime.dataplane.transports import TRANSPORTS
from psplatform.runtime.pools.fleet import Fleet
from psplatform.runtime.program import Program


class HostProcess:
    """What one actor has in its process for the run.

    Parameters
    ----------
    worker
        The Dask worker of this process.
    connect
        The way to the actors of other processes.
    client
        A client of the actor's own.
    actor, key
        The actor's class, and Dask's key of it.
    over
        Set when the run is over, or this actor has left it.
    background
        For tasks; closed when the actor leaves.

    Attributes
    ----------
    peer
        Where the actor is.
    process
        The nanny and the id, which tell a program later how this process ended.
    card
        What programs find of the run.
    fleet, unavailable
        The cluster's processes, and those in which no role is placed for now.
    closing
        Closes the connections to other processes, and what else uses the client.
    """

    def __init__(
        self,
        program: Program,
        worker: Any,
        connect: Connect,
        client: Client,
        actor: type,
        key: str,
        *,
        over: asyncio.Event,
        background: Background,
        closing: ExitStack,
    ) -> None:
        self.program, self.actor = program, actor
        self.peer = Peer(worker.address, key)
        self.connect = connect
        self.process = str(worker.nanny or ""), os.getpid()
        self.client = client
        self.card = Card(client, program.run, program.store, self.peer)
        self.fleet = Fleet(client, self.connect, program)
        self.unavailable = UnavailableProcesses()
        self.over, self.background = over, background
        self.closing = closing
        self._worker = worker

    @classmethod
    async def enter(
        cls,
        program: Program,
        actor: type,
        key: str,
        over: asyncio.Event,
        background: Background,
        before_it_ends: Callable[[], Awaitable[None]],
    ) -> Self:
        """Settle in; `before_it_ends` is awaited when the process is about to end in good order."""
        worker = get_worker()
        with ExitStack() as closing:
            connect = await TRANSPORTS[program.transport].connections(worker, closing)
            client = await open_client(worker, program.run)
            kept = closing.pop_all()
        made = cls(program, worker, connect, client, actor, key, over=over, background=background, closing=kept)
        await before_the_end(worker, made._plugin, before_it_ends)
        return made

    @property
    def _plugin(self) -> str:
        return f"{self.program.run}-{self.peer.key}"

    async def leave(self) -> None:
        """Have nothing more to do with the run, which goes on."""
        self.over.set()
        self.background.close()
        await self.card.retract()
        await self.close()

    async def finish(self) -> None:
        """Have nothing more to do with the run, which is over: nobody finds it any more."""
        await self.card.withdraw()
        self.over.set()
        await self.card.withdraw()  # the program that started the run may have published it just now
        self.background.close()
        await self.close()

    async def close(self) -> None:
        """Give back what was taken."""
        self.closing.close()
        await not_before_the_end(self._worker, self._plugin)
        self.fleet.release_all()
        await close_client(self.client)
