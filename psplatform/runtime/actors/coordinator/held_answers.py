"""Answers to workers that have announced a gradient, held until they are released.

Where a worker has to wait for others, its announcement stays unanswered meanwhile, so that announcing and being
released is one round trip for every worker, not only for the last to announce.  An answer is held for a short time
only, and no longer than until the worker is sent something else: what it has to say waits behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from psplatform.core.protocol.wire import encode
from psplatform.runtime.comms.answering import Reply
from psplatform.runtime.comms.timers import Deadlines
from psplatform.runtime.timeouts import TIMEOUTS


class _Held(NamedTuple):
    answer: asyncio.Future[bool | bytes]
    said: bytes


class HeldAnswers:
    """The answers that a coordinator owes to workers, one to each at most.

    Parameters
    ----------
    note
        Takes a worker, what it said and what it is answered: it may have to be answered the same again.
    """

    def __init__(self, note: Callable[[str, bytes, bytes], None]) -> None:
        self._note = note
        self._held: dict[str, _Held] = {}
        self._closed = False
        self._limits = Deadlines(TIMEOUTS.held_s, self.end)

    def hold(self, worker: str, said: bytes) -> Reply:
        """Return what the answer to `said` will be; once this is closed, that it was heard."""
        if self._closed:
            return True
        self.end(worker)
        held = self._held[worker] = _Held(asyncio.get_running_loop().create_future(), said)
        self._limits.begin(worker)
        return held.answer

    def give(self, worker: str, message: Any) -> bool:
        """Answer with `message`, if an answer is held; return whether one is.

        The answer leaves in the next round of the event loop, as those do that are not held.  By then servers of this
        process have shown what was decided before, if their shards are small and they have the gradients at hand.
        """
        held = self._forget(worker)
        if held is None:
            return False
        answer = encode((message,))
        self._note(worker, held.said, answer)
        _settle(held.answer, answer)
        return True

    def end(self, worker: str) -> None:
        """Answer only that what the worker has said was heard, if an answer is held."""
        held = self._forget(worker)
        if held is not None:
            _settle(held.answer, True)

    def close(self) -> None:
        """Hold no answer from now on."""
        self._closed = True
        for worker in list(self._held):
            self.end(worker)

    def _forget(self, worker: str) -> _Held | None:
        held = self._held.pop(worker, None)
        if held is not None:
            self._limits.end(worker)
        return held


def _settle(answer: asyncio.Future[bool | bytes], value: bool | bytes) -> None:
    if not answer.done():  # its call may have been given up
        answer.set_result(value)
