"""Ordered one-way delivery of messages to one peer, retried until the peer is given up.

Everything waiting goes out in one call, and the next call begins when that one is acknowledged.  A call that fails is
repeated with the same messages: receivers recognise repeats (`psplatform.core`).  An idle line sends an empty batch
every `beat_s`, which is the peer's sign that this side lives.  What the peer has to say at once may come back with the
acknowledgment, as long as it says it again when it is asked again: an answer may be lost with its call.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

from psplatform.core.protocol.messages import Beat
from psplatform.core.protocol.wire import decode, encode
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import Connect, Peer, PeerLost, call
from psplatform.runtime.timeouts import TIMEOUTS

_MOST_WAITING: Final = 16
"""Messages that are not urgent and go out at once all the same, because there are so many."""


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
        self._sender = sender
        self._patience_s = patience_s
        self._on_lost = on_lost
        self._on_refused = on_refused
        self._on_answer = on_answer
        self._beat_s = beat_s
        self._waiting: list[Any] = []
        self._wake = asyncio.Event()
        self._waking: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._again = asyncio.Event()
        self._calling: asyncio.Timeout | None = None
        self._batch = b""
        self._background = background
        self._background.keep(self._deliver_for_ever)

    def send(self, message: Any, within_s: float = 0.0) -> None:
        """Deliver `message` after everything sent before; begin with that within so many seconds."""
        self._waiting.append(message)
        self._idle.clear()
        if isinstance(message, Beat):
            within_s = TIMEOUTS.beat_waits_s
        if within_s <= 0.0 or len(self._waiting) >= _MOST_WAITING:
            self._wake.set()
        else:
            self._wake_within(within_s)

    def _wake_within(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._waking is not None:
            if self._waking.when() <= loop.time() + seconds:
                return
            self._waking.cancel()
        self._waking = loop.call_later(seconds, self._wake.set)

    def retarget(self, peer: Peer) -> None:
        """Send everything that was not acknowledged, and whatever follows, to another peer."""
        self.peer = peer
        self._again.set()
        if self._calling is not None:
            self._calling.reschedule(0.0)  # a call to one that is gone may last until its deadline

    async def flush(self, limit_s: float) -> None:
        """Wait until everything sent is delivered, for at most `limit_s`."""
        if self._waiting:
            self._wake.set()
        try:
            async with asyncio.timeout(limit_s):
                await self._idle.wait()
        except TimeoutError:
            return

    def close(self) -> None:
        """Send nothing any more."""
        self._background.close()

    async def _deliver_for_ever(self) -> None:
        while True:
            if not self._batch:  # else it was interrupted
                await self._pause()
                self._batch, self._waiting = encode(self._waiting), []
            if not await self._deliver(self._batch):
                self._idle.set()
                return
            self._batch = b""
            if not self._waiting:
                self._idle.set()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._beat_s):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()
        if self._waking is not None:
            self._waking.cancel()
            self._waking = None

    async def _deliver(self, data: bytes) -> bool:
        clock = asyncio.get_running_loop().time
        first_try = clock()
        pause_s, tries = TIMEOUTS.first_retry_s, 0
        while True:
            tries += 1
            try:
                self._acknowledge(await self._call(data))
            except (PeerLost, TimeoutError) as error:
                if self._again.is_set():
                    self._again.clear()
                    first_try, pause_s, tries = clock(), TIMEOUTS.first_retry_s, 0
                    continue
                # Once more, however long the first try took: it may be this process that was stopped.
                if tries > 1 and clock() - first_try >= self._patience_s:
                    self._on_lost(str(error))
                    return False
            except Exception as error:  # noqa: BLE001  what a peer raises is its end: the same again would raise again
                self._on_lost(f"{self.peer.address} failed ({type(error).__name__}: {error})")
                return False
            else:
                return True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._again.wait()
            pause_s = min(TIMEOUTS.longest_retry_s, 2 * pause_s)

    def _acknowledge(self, answer: bool | bytes) -> None:
        if not answer:
            self._on_refused()
        for message in decode(answer) if isinstance(answer, bytes) else ():
            self._on_answer(message)

    async def _call(self, data: bytes) -> bool | bytes:
        deadline_s = min(TIMEOUTS.delivery_s, self._patience_s)
        try:
            async with asyncio.timeout(None) as self._calling:
                what = "deliver", self._sender, data
                answer: bool | bytes = await call(self._connect, self.peer, *what, deadline_s=deadline_s)
        finally:
            self._calling = None
        return answer
