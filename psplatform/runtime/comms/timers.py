"""The timers of a node on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class LoopTimers:
    """Calls of the event loop, by tag.

    Parameters
    ----------
    clock
        Returns the node's own time, in seconds.
    fire
        Takes the tag of each timer that is due.
    """

    def __init__(self, clock: Callable[[], float], fire: Callable[[str], None]) -> None:
        self._clock = clock
        self._fire = fire
        self._set: dict[str, tuple[float, asyncio.TimerHandle]] = {}

    @property
    def due(self) -> dict[str, float]:
        """When each timer that is set is due, by its tag."""
        return {tag: at for tag, (at, _) in self._set.items()}

    def set(self, tag: str, at: float) -> None:
        """Fire under `tag` at that time, and not at the one set before under it."""
        self.cancel(tag)
        delay_s = max(0.0, at - self._clock())
        self._set[tag] = at, asyncio.get_running_loop().call_later(delay_s, self._fire_now, tag)

    def cancel(self, tag: str) -> None:
        """Forget the time set under `tag`, if there is one."""
        _, handle = self._set.pop(tag, (0.0, None))
        if handle is not None:
            handle.cancel()

    def close(self) -> None:
        """Fire no more."""
        for tag in list(self._set):
            self.cancel(tag)

    def _fire_now(self, tag: str) -> None:
        self._set.pop(tag, None)
        self._fire(tag)
