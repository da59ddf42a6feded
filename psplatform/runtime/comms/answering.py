"""Pulls that wait in a copy of a shard until its control half answers them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from psplatform.core.protocol.events import PullWithdrawn
from psplatform.core.protocol.messages import Pull, Pulled
from psplatform.runtime.timeouts import TIMEOUTS


class Answering:
    """The pulls of one copy.

    Parameters
    ----------
    feed
        Hands an event to the copy's control half.
    """

    def __init__(self, feed: Callable[[Any], None]) -> None:
        self._feed = feed
        self._waiting: dict[tuple[str, int], asyncio.Future[Pulled]] = {}

    async def answer_to(self, pull: Pull) -> Pulled | None:
        """Return the answer as soon as there is one; ``None`` for "not yet"."""
        key = pull.member, pull.request
        answer = self._waiting[key] = asyncio.get_running_loop().create_future()
        self._feed(pull)
        try:
            async with asyncio.timeout(TIMEOUTS.not_yet_s):
                pulled: Pulled = await answer
        except TimeoutError:
            self._feed(PullWithdrawn(pull.member, pull.request))
            return None
        finally:
            self._waiting.pop(key, None)
        return pulled

    def give(self, member: str, pulled: Pulled) -> bool:
        """Answer a member's pull; return whether it still waits for that."""
        waiting = self._waiting.get((member, pulled.request))
        if waiting is None or waiting.done():
            return False
        waiting.set_result(pulled)
        return True
