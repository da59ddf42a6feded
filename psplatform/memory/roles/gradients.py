"""A worker's gradients where time is virtual: as long as the world says, and computed by the run's arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from psplatform.core.protocol.effects import Compute, Expose
from psplatform.core.protocol.events import ComputeAborted, Overwritten, Reachable
from psplatform.core.shards.server import Server
from psplatform.memory.arithmetic import Arithmetic
from psplatform.memory.engine import Agenda, Engine


class Backpressure:
    """What waits in front of the servers of one run.

    Parameters
    ----------
    server_of
        Returns the present server of a shard.
    """

    def __init__(self, agenda: Agenda, server_of: Callable[[int], Server], shards: int) -> None:
        self._agenda = agenda
        self._server_of = server_of
        self._waiting: list[list[Callable[[], None]]] = [[] for _ in range(shards)]

    def is_at(self, shard: int, counter: int) -> bool:
        """Whether the shard's server takes a push that contributes to the version after `counter`."""
        return self._server_of(shard).has_room_for(counter)

    def wait_at(self, shard: int, action: Callable[[], None]) -> None:
        """Do `action` when the shard's server shows its next version."""
        self._waiting[shard].append(action)

    def on_published(self, shard: int) -> None:
        """Run what waits for the next version of the shard's server."""
        waiting, self._waiting[shard] = self._waiting[shard], []
        for action in waiting:
            self._agenda.enter(0.0, action)


class VirtualGradients:
    """Computes the gradients of one worker.

    Parameters
    ----------
    member
        The worker.
    engine
        Its world says how long computing takes, and until a gradient is where the servers can reach it.
    backpressure
        Lets what is pushed block by block wait for servers that are far behind.
    feed
        Takes what becomes of a gradient.
    per_block
        Whether a gradient is reachable block by block instead of as a whole.
    """

    __slots__ = (
        "_arithmetic",
        "_backpressure",
        "_engine",
        "_feed",
        "_member",
        "_per_block",
        "_shards",
        "_token",
    )

    def __init__(
        self,
        member: str,
        engine: Engine,
        arithmetic: Arithmetic,
        backpressure: Backpressure,
        feed: Callable[[Any], None],
        *,
        shards: int,
        per_block: bool,
    ) -> None:
        self._member = member
        self._engine, self._arithmetic, self._backpressure = engine, arithmetic, backpressure
        self._feed = feed
        self._shards, self._per_block = shards, per_block
        # Of the computation under way: one that is cancelled, or begun again, is another one when its time is over.
        self._token: object | None = None

    def compute(self, effect: Compute) -> None:
        """Compute a gradient when its time is over: what was pulled meanwhile is not in it."""
        seconds = self._engine.world.compute_s(effect.slot, effect.sequence)
        token = self._token = object()
        self._engine.later(self._member, seconds, self._end, effect, seconds, token)

    def cancel(self, sequence: int) -> None:
        """Compute it no more, and say so."""
        if self._token is not None:
            self._token = None
            self._later(0.0, ComputeAborted(sequence))

    def expose(self, effect: Expose, counter: int) -> None:
        """Let the servers reach a gradient as soon as the world says, or block by block as there is room for it."""
        self._arithmetic.expose(self._member, effect.slot, effect.sequence)
        world, agenda = self._engine.world, self._engine.agenda
        delays = [world.reach_s(self._member, shard, agenda.now) for shard in range(self._shards)]
        if not self._per_block:
            self._later(max(delays), Reachable(effect.sequence))
            return
        for delay in sorted(set(delays)):
            reached = tuple(shard for shard, one in enumerate(delays) if one == delay)
            agenda.enter(delay, self._arrive, effect.sequence, counter, reached)

    def close(self) -> None:
        """Be forgotten, and compute nothing more."""
        self._arithmetic.forget(self._member)
        self._token = None

    def _end(self, effect: Compute, seconds: float, token: object) -> None:
        if token is not self._token:
            return
        self._token = None
        if self._engine.world.is_overwritten(self._member, effect.sequence):
            self._feed(Overwritten(effect.sequence))
            return
        self._feed(self._arithmetic.compute(self._member, effect, seconds))

    def _arrive(self, sequence: int, counter: int, shards: tuple[int, ...]) -> None:
        taken = tuple(shard for shard in shards if self._backpressure.is_at(shard, counter))
        for shard in shards:
            if shard not in taken:
                self._backpressure.wait_at(shard, partial(self._arrive, sequence, counter, (shard,)))
        if taken:
            self._engine.processes.do(self._member, self._feed, Reachable(sequence, taken))

    def _later(self, delay_s: float, event: Any) -> None:
        self._engine.later(self._member, delay_s, self._feed, event)
