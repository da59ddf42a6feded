"""The way of one actor to the coordinator of its run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from psplatform.core.protocol.messages import Applied
from psplatform.core.protocol.place_messages import CoordinatorAt
from psplatform.runtime.comms.calls import Connect, Peer, PeerLost, call
from psplatform.runtime.comms.lines import Line, Said


class CoordinatorLine:
    """The way of one actor to its run's coordinator: to that of the highest term that it has heard of.

    Attributes
    ----------
    peer, term
        Where that is, and its term; zero until one has taken over.
    """

    def __init__(self, peer: Peer) -> None:
        self.peer, self.term = peer, 0
        self._line: Line | None = None
        # What is being answered; and what was answered last, to whom and what that one had said.
        self._answers: list[Any] | None = None
        self._answered: tuple[Any, ...] = ()
        self._answered_to: tuple[str, Said] = "", b""

    @property
    def is_open(self) -> bool:
        """Whether anything can be said to it."""
        return self._line is not None

    def open(self, line: Line) -> None:
        """Speak to it by `line`, which leads to `peer`, from now on."""
        self._line = line

    def turn_to(self, coordinator: CoordinatorAt) -> bool:
        """Speak to one that has taken over, unless it is an older one; return whether it is not."""
        if coordinator.term <= self.term:
            return False
        self.term, self.peer = coordinator.term, Peer(coordinator.address, coordinator.key)
        if self._line is not None:
            self._line.retarget(self.peer)
            self._send_answers()
        return True

    @contextlib.contextmanager
    def answering(self, sender: str, said: Said) -> Iterator[list[Any]]:
        """Collect what can be said with the acknowledgment of what `sender` has said, instead of sending it.

        A coordinator says something else only when it has heard that, and the same again until it has.  Before whatever
        it, or its successor, is sent meanwhile, the answer is repeated: nothing overtakes it, and it is not lost.
        """
        known, heard = self._answered_to
        self._answers = list(self._answered) if (sender, said) == (known, heard) else []
        if sender == known:
            self._answered = ()
        try:
            yield self._answers
        finally:
            self._answered, self._answered_to = (*self._answered, *self._answers), (sender, said)
            self._answers = None

    def send(self, message: Any) -> None:
        """Send it a message; nothing as long as the line is not open."""
        if self._line is None:
            return
        if self._answers is not None and isinstance(message, Applied) and self._line.is_idle:
            self._answers.append(message)
            return
        self._send_answers()
        self._line.send(message)

    def _send_answers(self) -> None:
        """Send what was answered, and may not have been heard yet, and what was to be answered now."""
        answered, self._answered = [*self._answered, *(self._answers or ())], ()
        if self._answers is not None:
            self._answers.clear()
        if self._line is not None:
            for message in answered:
                self._line.send(message)

    async def tell(self, connect: Connect, method: str, *arguments: Any, deadline_s: float) -> None:
        """Call a method of it, not by the line, if it is there: its successor finds out by itself."""
        with contextlib.suppress(PeerLost):
            await call(connect, self.peer, method, *arguments, deadline_s=deadline_s)

    async def flush(self, limit_s: float) -> None:
        """Wait until everything sent is delivered, for at most `limit_s`."""
        if self._line is not None:
            await self._line.flush(limit_s)

    def close(self) -> None:
        """Send nothing any more."""
        if self._line is not None:
            self._line.close()
