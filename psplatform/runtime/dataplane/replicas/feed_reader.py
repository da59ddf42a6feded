"""How a copy waits for gradients that are pushed, and a replica takes its next step with those of the workers."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from psplatform.core.protocol.messages import Contribution, Transfer
from psplatform.core.shards.server import MOST_AHEAD
from psplatform.runtime.dataplane.gradients.gradient_buffers import GradientBuffers
from psplatform.runtime.timeouts import TIMEOUTS
from psplatform.tensors.shard import Shard

_TRIES: Final = 2

MOST_KEPT: Final = MOST_AHEAD + 2
"""Pushed gradients of a member that a replica keeps where blocks are merged one by one: as many as its server, which
makes members wait.  A replica that lags further behind than that does without the oldest."""


class FeedReader:
    """A copy's view of what the workers expose.

    Parameters
    ----------
    gradient_buffers
        The slabs that this process can see, and what was pushed to it.
    """

    def __init__(self, gradient_buffers: GradientBuffers, shard: Shard) -> None:
        self._gradient_buffers, self._shard = gradient_buffers, shard
        self._arrived = asyncio.Event()

    def note_arrival(self) -> None:
        """Let those that wait look again, once; a new event is for those who wait from now on."""
        self._arrived.set()
        self._arrived = asyncio.Event()

    async def wait_for(self, contributions: tuple[Contribution, ...], *, late: bool = True) -> None:
        """Wait for gradients that are still to be pushed here, for a limited time and not without hope.

        Those that may be read `late` may be copies.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TIMEOUTS.awaited_push_s):
                while self._may_have_all(contributions, late):
                    await self._arrived.wait()

    def _may_have_all(self, contributions: tuple[Contribution, ...], late: bool) -> bool:
        buffers = self._gradient_buffers
        missing = [one for one in contributions if buffers.find_source(one, late=late) is None]
        return bool(missing) and all(buffers.may_come(one) for one in missing)

    def gather(self, transfer: Transfer) -> bool:
        """Average what a transfer names, clipped, unless a gradient is gone.  For the thread that computes."""
        # What is written over while it is read may be found in a copy.
        named, updates = transfer.contributions, transfer.updates
        if not any(
            self._gradient_buffers.gather(self._shard, named, careful=True, updates=updates) for _ in range(_TRIES)
        ):
            return False
        if transfer.factor != 1.0:
            self._shard.scale(transfer.factor)
        return True
