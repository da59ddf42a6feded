"""What actors answer to their peers: to messages at once, to pulls as soon as there is an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from psplatform.core.protocol.events import PullWithdrawn
from psplatform.core.protocol.messages import Pull, Pulled
from psplatform.runtime.comms.lines import Said
from psplatform.runtime.comms.processes import Locatable
from psplatform.runtime.comms.timers import Deadlines
from psplatform.runtime.timeouts import TIMEOUTS

Answer = TypeVar("Answer")

Reply = bool | Said | asyncio.Future[bool | bytes]
"""What is said to a sender of messages, or whether it belongs to the run; now, or when it is known."""


class Listening(Locatable):
    """An actor that takes messages (`psplatform.runtime.comms.lines`).

    Attributes
    ----------
    PLAIN
        The plain functions behind methods that need no task, see `psplatform.runtime.comms.calls.plain_method`.
    """

    PLAIN: ClassVar[Mapping[str, str]] = {"deliver": "take"}

    def take(self, sender: str, said: Said) -> Reply:
        """Take messages; return what is answered."""
        raise NotImplementedError

    async def deliver(self, sender: str, said: Said) -> bool | Said:
        """Do what `take` does."""
        answer = self.take(sender, said)
        return await answer if isinstance(answer, asyncio.Future) else answer


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[Answer]):
    answer: asyncio.Future[Answer]
    finish: Callable[[Pulled | None], Answer]

    def end(self, pulled: Pulled | None) -> bool:
        """Answer, if that is still waited for; return whether it was."""
        if self.answer.done():
            return False
        self.answer.set_result(self.finish(pulled))
        return True


class Answering(Generic[Answer]):
    """The pulls that one copy of a shard, or a relay, was sent, which wait until its control half answers them.

    Parameters
    ----------
    feed
        Hands an event to the control half.
    """

    def __init__(self, feed: Callable[[Any], None]) -> None:
        self._feed = feed
        self._waiting: dict[tuple[str, int], _Waiting[Answer]] = {}
        self._limits = Deadlines(TIMEOUTS.not_yet_s, self._withdraw)

    def answer_to(self, pull: Pull, finish: Callable[[Pulled | None], Answer]) -> asyncio.Future[Answer]:
        """Return the answer as soon as there is one: what `finish` makes of it, and of ``None`` for "not yet"."""
        key = pull.member, pull.request
        self._limits.begin(key)
        before = self._waiting.get(key)
        if before is not None:  # its call is lost
            before.end(None)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[key] = _Waiting(answer, finish)
        self._feed(pull)
        return answer

    def _withdraw(self, key: tuple[str, int]) -> None:
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            self._feed(PullWithdrawn(*key))
            waiting.end(None)

    def give(self, member: str, pulled: Pulled) -> bool:
        """Answer a member's pull; return whether it still waited for that."""
        key = member, pulled.request
        waiting = self._waiting.pop(key, None)
        self._limits.end(key)
        return waiting is not None and waiting.end(pulled)

    def close(self) -> None:
        """Answer all that wait "not yet", and tell the control half nothing of it."""
        for key, waiting in self._waiting.items():
            self._limits.end(key)
            waiting.end(None)
        self._waiting.clear()
