"""Replicas in the store: transfers are written there, and a copy that is needed after all is made from them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch

from psplatform.core.protocol.effects import Transmit
from psplatform.core.protocol.messages import Past, Replicated, Transfer
from psplatform.core.shards.replica import Replica
from psplatform.core.shards.server import Server
from psplatform.core.shards.shown import REMEMBERED
from psplatform.errors import StoreError
from psplatform.replication.cold import ColdCopy, ColdState
from psplatform.replication.stores.guard import RENEWED, StoreGuard
from psplatform.replication.stores.store import describe_run
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import Connect, Peer
from psplatform.runtime.dataplane.segments import SegmentName
from psplatform.runtime.dataplane.transports import COMMS
from psplatform.runtime.program import Program
from psplatform.runtime.timeouts import TIMEOUTS
from psplatform.tensors.shard import Shard


class StoreCarrier:
    """A server's side of cold replicas, a `psplatform.runtime.dataplane.carriers.Carrier`.

    Each transfer is a state.  It is acknowledged when it would outlast the loss of everything that is running.

    Parameters
    ----------
    on_trouble
        Called with words when the store refuses a state, once until it has taken one at once.
    """

    def __init__(
        self,
        program: Program,
        name: str,
        shard: Shard,
        background: Background,
        on_trouble: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._shard = shard
        self._background = background
        self._on_trouble = on_trouble
        self._in_trouble = False
        self._store = ColdCopy(program.store, shard.index, program.term)
        self._guard = StoreGuard(program.store, program.run, program.term)
        self._outbox = COMMS.outbox(program.run, name, shard.state_sizes())
        self._commits = 0
        self._past: dict[int, Past] = {}
        self._pruned = False
        self._writing = asyncio.Lock()

    def know(self, replica: str, peer: Peer) -> None:
        """Nobody has to be known: the store is the same for all."""

    def prepare(self, replica: str) -> None:
        """Everything is prepared."""

    def keep(self, part: Server) -> None:
        """Keep the state that a server begins with.

        The checkpoint that it is of may be removed while every later one is within the bound of it.

        Raises
        ------
        StoreError
            If the store refuses it.
        """
        self._outbox.capture(self._shard.state())
        state = self._captured((part.epoch, part.position, part.version), part.applied, self._shard.commits)
        self._guard.within(partial(self._store.write, state))

    def capture(self, effect: Transmit) -> int:
        """Capture the state that is to be written; return its size in bytes.  For the thread that computes."""
        self._commits = self._shard.commits
        return self._outbox.capture(self._shard.state())

    def send(
        self, connect: Connect, effect: Transmit, slabs: Mapping[str, SegmentName], feed: Callable[[Any], None]
    ) -> None:
        """Write what was captured, until that succeeds."""
        self._remember(effect.transfer)
        self._background.do(self._write(effect, self._commits, feed))

    def _remember(self, transfer: Transfer) -> None:
        for one in transfer.past:
            self._past[one.commit.position] = one
        while len(self._past) > REMEMBERED:
            del self._past[next(iter(self._past))]

    async def _write(self, effect: Transmit, commits: int, feed: Callable[[Any], None]) -> None:
        transfer = effect.transfer
        place = transfer.epoch, transfer.position, transfer.version
        state = self._captured(place, dict(transfer.applied), commits)
        async with self._writing:
            await self._keep(state)
        feed(Replicated(transfer.shard, effect.replica, transfer.epoch, transfer.number, transfer.position))
        if not self._pruned:
            self._pruned = True
            with contextlib.suppress(StoreError):  # it only takes room, until the next server removes it
                await asyncio.to_thread(self._guard.within, partial(self._store.prune, transfer.epoch))

    def _captured(self, place: tuple[int, int, int], applied: Mapping[int, int], commits: int) -> ColdState:
        """Return what was captured, at an epoch, a position and a version."""
        names = list(self._shard.state_sizes())
        vectors = dict(zip(names, self._outbox.arrays(names), strict=True))
        return ColdState(*place, dict(applied), commits, vectors, tuple(self._past.values()))

    async def _keep(self, state: ColdState) -> None:
        failed = False
        while True:
            try:
                await asyncio.to_thread(self._guard.within, partial(self._store.write, state))
            except StoreError as error:
                if not self._in_trouble:
                    self._on_trouble(f"shard {self._shard.index}: training waits for its replica in the store: {error}")
                self._in_trouble = failed = True
                await asyncio.sleep(TIMEOUTS.cold_retry_s)  # until then the bound holds
            else:
                self._in_trouble = failed  # one that fails now and then is told of once
                return

    def forget(self, replica: str) -> None:
        """Give nothing up: the one place in the store is that of every replica."""

    def close(self) -> None:
        """Write nothing more."""


def awaken(program: Program, part: Replica, shard: Shard) -> None:
    """Bring a new copy into the state that the store keeps of its shard.

    Raises
    ------
    StoreError
        If what is kept is damaged, or was removed.
    """
    state = ColdCopy(program.store, shard.index, program.term).read()
    if state is None:
        what = "with the store" if RENEWED in describe_run(program.store) else "from"
        text = f"the replica of shard {shard.index} was removed {what} {program.store}"
        raise StoreError(f"{text}; recover the run from a checkpoint", store=program.store)
    vectors = {name: torch.from_numpy(np.asarray(vector)) for name, vector in state.vectors.items()}
    shard.restore(vectors, version=state.version, commits=state.commits)
    part.position, part.version = state.position, state.version
    part.applied, part.epoch = dict(state.applied), state.epoch
    part.past = {one.commit.position: one for one in state.past}
