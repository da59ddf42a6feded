"""Timers on an event loop: those of a node, and one for the deadlines of many things."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

One = TypeVar("One", bound=Hashable)


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


class Deadlines(Generic[One]):
    """Deadlines equally long after the beginning of many things, of which most end before: one timer for all of them.

    Parameters
    ----------
    seconds
        How long each may take.
    on_passed
        Takes each that has not ended by then.
    """

    def __init__(self, seconds: float, on_passed: Callable[[One], None]) -> None:
        self._seconds, self._on_passed = seconds, on_passed
        self._due: dict[One, float] = {}  # in the order in which they pass
        self._is_watching = False

    def begin(self, one: One) -> None:
        """Let it be over after so long, counted from now, also where it had begun before."""
        at = asyncio.get_running_loop().time() + self._seconds
        self._due.pop(one, None)
        self._due[one] = at
        if not self._is_watching:
            self._watch(at)

    def end(self, one: One) -> None:
        """Forget the deadline of one that has ended, if it has one."""
        self._due.pop(one, None)

    def _watch(self, at: float) -> None:
        self._is_watching = True
        asyncio.get_running_loop().call_at(at, self._look)

    def _look(self) -> None:
        self._is_watching = False
        if not self._due:
            return
        one, at = next(iter(self._due.items()))
        has_passed = at <= asyncio.get_running_loop().time()
        if has_passed:
            del self._due[one]
        if self._due:
            self._watch(next(iter(self._due.values())))
        if has_passed:
            self._on_passed(one)
