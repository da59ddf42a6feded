"""An event loop on a clock that jumps."""

from __future__ import annotations

import asyncio
import heapq


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop that never waits for a timer: where nothing is ready, its clock jumps to the next one.

    Use it as ``asyncio.Runner(loop_factory=JumpingLoop)``.  Threads and sockets keep their own time: as long as there
    is a timer, none of them is waited for.
    """

    _now = 0.0

    def time(self) -> float:
        """Return the time on the clock that jumps, in seconds."""
        return self._now

    def _run_once(self) -> None:
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]  # asyncio's own heap
        while scheduled and scheduled[0].cancelled():
            gone = heapq.heappop(scheduled)
            gone._scheduled = False  # type: ignore[attr-defined]  # noqa: SLF001  as asyncio itself notes it
            self._timer_cancelled_count -= 1  # type: ignore[attr-defined]
        if not self._ready and scheduled:  # type: ignore[attr-defined]
            self._now = max(self._now, scheduled[0].when())
        super()._run_once()  # type: ignore[misc]
