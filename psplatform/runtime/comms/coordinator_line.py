"""The way of one actor to the coordinator of its run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from psplatform.core.protocol.messages import Applied, Beat
from psplatform.core.protocol.place_messages import CoordinatorAt
from psplatform.runtime.comms.calls import Connect, Peer, PeerLost, call
from psplatform.runtime.comms.lines import Line, Said

_MOST_KEPT: Final = 8
"""Deliveries that are remembered with their answers: the last may be repeated, and one before it may come late."""


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
        # What is being answered; what the last deliveries were answered with; and of that, what may not be heard yet.
        self._answers: list[Any] | None = None
        self._answered: dict[tuple[str, bytes], list[Any]] = {}
        self._sender = ""
        self._unheard: list[Any] = []

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
        """Collect what can be said with the acknowledgment of a delivery, instead of sending it.

        A coordinator repeats a delivery until it is answered, and is answered the same again; its next delivery shows
        that it has got the answer.  Until then the answer comes once more before whatever is sent, to its successor,
        too, so that nothing overtakes it.

        Within a process no answer is lost.

        Parameters
        ----------
        sender, said
            The coordinator's name, and what it has delivered.
        """
        delivery = (sender, said) if isinstance(said, bytes) else None
        before = self._answered.get(delivery) if delivery is not None else None
        if before is None and sender == self._sender:
            self._unheard = []
        self._answers = list(before or ())
        try:
            yield self._answers
        finally:
            answers, self._answers = self._answers, None
            if delivery is not None:
                self._remember(delivery, answers, new=answers[len(before or ()) :], again=before is not None)

    def _remember(self, delivery: tuple[str, bytes], answers: list[Any], *, new: list[Any], again: bool) -> None:
        self._answered[delivery] = list(answers)
        self._unheard += new
        if not again:
            self._sender = delivery[0]
            while len(self._answered) > _MOST_KEPT:
                del self._answered[next(iter(self._answered))]

    def send(self, message: Any) -> None:
        """Send it a message; nothing as long as the line is not open."""
        if self._line is None:
            return
        if self._answers is not None and isinstance(message, Applied) and self._line.is_idle:
            if message not in self._answers:  # it was answered before
                self._answers.append(message)
            return
        if not isinstance(message, Beat):
            self._send_answers()
        self._line.send(message)

    def _send_answers(self) -> None:
        """Send what was answered, and may not be heard yet, and what was to be answered now."""
        answers = [*self._unheard, *(self._answers or ())]
        self._unheard = []
        if self._answers is not None:
            self._answers.clear()
        if self._line is not None:
            for message in answers:
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
