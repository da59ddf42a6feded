"""What a worker's process does of sums on the way where time is virtual."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psplatform.core.protocol.effects import ForgetParts, ForgetSum, SendPart, SumUp
from psplatform.core.protocol.events import PartArrived, SumReachable
from psplatform.core.protocol.messages import Bundle
from psplatform.memory.arithmetic import Arithmetic
from psplatform.memory.engine import Engine


class VirtualSums:
    """`psplatform.nodes.ports.Sums` of one worker.

    Parameters
    ----------
    member
        The worker.
    shards
        How many servers a sum is sent to.
    feed
        Takes what comes of it here.
    tell
        Given the name of another worker and an event, tells that one, if it is there.
    is_open
        Whether a worker is there.
    """

    def __init__(
        self,
        member: str,
        engine: Engine,
        arithmetic: Arithmetic,
        shards: int,
        feed: Callable[[Any], None],
        *,
        tell: Callable[[str, Any], None],
        is_open: Callable[[str], bool],
    ) -> None:
        self._member, self._engine, self._arithmetic, self._shards = member, engine, arithmetic, shards
        self._feed, self._tell, self._is_open = feed, tell, is_open

    def send_part(self, effect: SendPart) -> None:
        """Send a gradient: what lies there when it arrives is taken, as if it had been read until then."""
        bundle, now = effect.bundle, self._engine.agenda.now
        delay_s = self._engine.world.part_s(self._member, bundle.aggregator, now)
        self._engine.later(self._member, delay_s, self._arrive, bundle, effect.sequence)

    def sum_up(self, effect: SumUp) -> None:
        """Sum now; the servers can reach that as soon as the world says."""
        self._arithmetic.sum_up(effect.bundle, effect.gradients)
        now, world = self._engine.agenda.now, self._engine.world
        push_s = max(world.reach_s(self._member, shard, now) for shard in range(self._shards))
        self._engine.later(self._member, push_s, self._feed, SumReachable(effect.bundle, push_s))

    def forget(self, effect: ForgetParts) -> None:
        """Forget what has arrived."""
        self._arithmetic.forget_parts(effect.bundle)

    def forget_sum(self, effect: ForgetSum) -> None:
        """Forget the sum: no shard reaches it any more."""
        self._arithmetic.forget_sum(effect.bundle)

    def _arrive(self, bundle: Bundle, sequence: int) -> None:
        if self._is_open(bundle.aggregator) and self._arithmetic.send_part(self._member, sequence, bundle):
            arrived = PartArrived(bundle, self._member, sequence)
            self._engine.processes.do(bundle.aggregator, self._tell, bundle.aggregator, arrived)
