"""Ordered one-way delivery of messages to one peer, retried until the peer is given up.

Everything waiting goes out in one call, and the next call begins when that one is acknowledged.  A call that fails is
repeated with the same messages: receivers recognise repeats (`psplatform.core`).  An idle line sends an empty batch
every `beat_s`, which is the peer's sign that this side lives.  What the peer has to say at once may come back with the
acknowledgment, as long as it says it again when it is asked again: an answer may be lost with its call.

Where a call can be sent at once (`psplatform.runtime.comms.calls.DirectCalls`), that is tried first; a task of the
event loop insists on what is not delivered in that way.

Within a process messages are handed over as they are and taken in the next round of the event loop, elsewhere they are
encoded.  They are immutable, except that some hold a dictionary, which neither side changes once it is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

from psplatform.core.protocol.messages import Beat
from psplatform.core.protocol.wire import decode, encode
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import (
    OK,
    Begun,
    Connect,
    Peer,
    PeerLost,
    answer_within,
    begin_call,
    call,
    is_within,
)
from psplatform.runtime.timeouts import TIMEOUTS

_ROUNDING_S: Final = 1e-6
_MOST_WAITING: Final = 16
"""Messages that are not urgent and go out at once all the same, because there are so many."""

Said = bytes | tuple[Any, ...]
"""Messages as they are delivered: encoded, or within a process as they are."""


def messages_of(said: Said) -> tuple[Any, ...]:
    """Return what was delivered as messages.

    Raises
    ------
    ProtocolError
        If bytes are no messages of this version of psplatform.
    """
    messages: tuple[Any, ...] = decode(said) if isinstance(said, bytes) else said
    return messages


class Line:
    """The way to one peer.

    Parameters
    ----------
    sender
        Name the peer knows this side by.
    background
        Does the sending; closed with this.
    patience_s
        Failing for so long gives the peer up.
    on_lost
        Called once, with the reason, when the peer is given up.
    on_refused
        Called when the peer says that it does not know this side (any more).
    on_answer
        Called with each message that comes back with an acknowledgment.
    beat_s
        Longest pause between two deliveries; ``None`` for no beat.
    """

    def __init__(
        self,
        connect: Connect,
        peer: Peer,
        sender: str,
        background: Background,
        *,
        patience_s: float,
        on_lost: Callable[[str], None],
        on_refused: Callable[[], None] = lambda: None,
        on_answer: Callable[[Any], None] = lambda message: None,
        beat_s: float | None = None,
    ) -> None:
        self.peer = peer
        self._connect = connect
        self._is_within = is_within(connect, peer)
        self._sender = sender
        self._patience_s = patience_s
        self._on_lost = on_lost
        self._on_refused = on_refused
        self._on_answer = on_answer
        self._beat_s = beat_s
        self._background = background
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._waiting: list[Any] = []
        self._is_due = False
        self._due: asyncio.TimerHandle | None = None
        self._batch: tuple[Any, ...] | None = None
        self._tried, self._tried_at = 0, 0.0
        self._begun: Begun | None = None
        self._calling: asyncio.Timeout | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._again = asyncio.Event()
        self._rested_at = self._loop.time()
        self._beat = self._loop.call_later(beat_s, self._on_rest) if beat_s is not None else None

    def send(self, message: Any, within_s: float = 0.0) -> None:
        """Deliver `message` after everything sent before; begin with that within so many seconds."""
        self._waiting.append(message)
        self._idle.clear()
        if isinstance(message, Beat):
            within_s = TIMEOUTS.beat_waits_s
        if within_s <= 0.0 or len(self._waiting) >= _MOST_WAITING:
            self._begin_soon()
        elif not self._is_due:
            self._begin_within(within_s)

    def _begin_soon(self) -> None:
        """Deliver what waits in the next round of the event loop, with what is said until then."""
        if not self._is_due:
            self._is_due = True
            if self._batch is None:
                self._loop.call_soon(self._begin)

    def _begin_within(self, seconds: float) -> None:
        if self._due is not None:
            if self._due.when() <= self._loop.time() + seconds:
                return
            self._due.cancel()
        self._due = self._loop.call_later(seconds, self._begin_soon)

    def _on_rest(self) -> None:
        """Deliver a sign of life, if nothing else was delivered for as long as the line may rest."""
        if self._closed or self._beat_s is None:
            return
        rest_s = self._beat_s
        if self._batch is None and (rest_s := self._rested_at + self._beat_s - self._loop.time()) <= _ROUNDING_S:
            self._begin_soon()
            rest_s = self._beat_s
        self._beat = self._loop.call_later(rest_s, self._on_rest)

    def retarget(self, peer: Peer) -> None:
        """Send everything that was not acknowledged, and whatever follows, to another peer."""
        self.peer = peer
        if self._closed:
            return
        self._is_within = is_within(self._connect, peer)
        self._again.set()
        if self._begun is not None:
            self._begun.give_up()
            self._insist()
        elif self._calling is not None and not self._calling.expired():
            self._calling.reschedule(0.0)  # a call to one that is gone may last until its deadline

    @property
    def is_idle(self) -> bool:
        """Whether everything that was sent is delivered."""
        return self._batch is None and not self._waiting

    async def flush(self, limit_s: float) -> None:
        """Wait until everything sent is delivered, for at most `limit_s`."""
        if self._waiting:
            self._begin_soon()
        try:
            async with asyncio.timeout(limit_s):
                await self._idle.wait()
        except TimeoutError:
            return

    def close(self) -> None:
        """Send nothing any more."""
        self._closed = True
        for timer in (self._due, self._beat):
            if timer is not None:
                timer.cancel()
        if self._begun is not None:
            self._begun.give_up()
            self._begun = None
        self._background.close()

    # --- one delivery after the other ---

    def _begin(self) -> None:
        if self._closed:
            return
        self._is_due = False
        if self._due is not None:
            self._due.cancel()
            self._due = None
        self._again.clear()
        batch, self._waiting = tuple(self._waiting), []
        try:
            said = self._as_said(batch)
        except Exception as error:  # noqa: BLE001  without it the peer would wait for ever for what it was to hear
            self._background.tell_of(error)
            self._lose(f"what was to be said to {self.peer.address} cannot be sent ({type(error).__name__}: {error})")
            return
        self._batch, self._tried, self._tried_at = batch, 0, self._loop.time()
        if self._is_within:
            self._deliver_within(said)
            return
        self._begun = begin_call(
            self._connect,
            self.peer,
            *("deliver", self._sender, said),
            deadline_s=self._limit_s,
            done=self._on_answered,
            otherwise=self._insist,
        )
        if self._begun is None:
            self._insist()

    def _deliver_within(self, said: Said) -> None:
        """Deliver in this process, where that needs no waiting: what it leads to there has happened then."""
        answered = answer_within(self._connect, self.peer, "deliver", self._sender, said)
        if self._closed:
            return
        if answered is not None and answered[0] == OK:
            self._on_answered(answered[1])
        else:
            self._tried = 0 if answered is None else 1
            self._insist()

    def _as_said(self, batch: tuple[Any, ...]) -> Said:
        return batch if self._is_within else encode(batch)

    @property
    def _limit_s(self) -> float:
        return min(TIMEOUTS.delivery_s, self._patience_s)

    def _on_answered(self, answer: bool | Said) -> None:
        self._begun = None
        try:
            self._acknowledge(answer)
        except Exception as error:  # noqa: BLE001  as if the peer had raised it
            self._give_up(error)
            return
        self._go_on()

    def _insist(self) -> None:
        if self._begun is not None:
            self._begun, self._tried = None, 1
        if not self._closed:
            self._background.keep(self._deliver_for_sure)

    async def _deliver_for_sure(self) -> None:
        if self._batch is not None and await self._deliver(self._batch):
            self._go_on()

    def _go_on(self) -> None:
        """Deliver what came meanwhile, now that the batch is delivered."""
        self._batch = None
        self._rested_at = self._loop.time()
        if not self._waiting:
            self._idle.set()
        if self._is_due:
            self._loop.call_soon(self._begin)

    def _give_up(self, error: Exception) -> None:
        self._lose(f"{self.peer.address} failed ({type(error).__name__}: {error})")

    def _lose(self, reason: str) -> None:
        """Send nothing any more: the peer is given up."""
        self._closed = True
        self._idle.set()
        try:
            self._on_lost(reason)
        except Exception as error:  # noqa: BLE001  it is not the connection's fault
            self._background.tell_of(error)

    async def _deliver(self, batch: tuple[Any, ...]) -> bool:
        clock = self._loop.time
        first_try = self._tried_at
        pause_s, tries = TIMEOUTS.first_retry_s, self._tried
        while True:
            tries += 1
            try:
                self._acknowledge(await self._call(batch))
            except (PeerLost, TimeoutError) as error:
                if self._again.is_set():
                    self._again.clear()
                    first_try, pause_s, tries = clock(), TIMEOUTS.first_retry_s, 0
                    continue
                # Once more, however long the first try took: it may be this process that was stopped.
                if tries > 1 and clock() - first_try >= self._patience_s:
                    self._lose(str(error))
                    return False
            except Exception as error:  # noqa: BLE001  what a peer raises is its end: the same again would raise again
                self._give_up(error)
                return False
            else:
                return True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._again.wait()
            pause_s = min(TIMEOUTS.longest_retry_s, 2 * pause_s)

    def _acknowledge(self, answer: bool | Said) -> None:
        if not answer:
            self._on_refused()
        for message in () if isinstance(answer, bool) else messages_of(answer):
            try:
                self._on_answer(message)
            except Exception as error:  # noqa: BLE001  it is not the peer's fault
                self._background.tell_of(error)

    async def _call(self, batch: tuple[Any, ...]) -> bool | Said:
        try:
            async with asyncio.timeout(None) as self._calling:
                what = "deliver", self._sender, self._as_said(batch)
                answer: bool | Said = await call(self._connect, self.peer, *what, deadline_s=self._limit_s)
        finally:
            self._calling = None
        return answer
