"""Events in the order of their time; at the same time, in the order they were entered."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Agenda:
    """A queue of things to do on a clock that jumps from one to the next."""

    now: float = 0.0
    _entries: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _count: int = 0

    def enter(self, delay_s: float, action: Callable[[], None]) -> None:
        """Do `action` in `delay_s` seconds."""
        self._count += 1
        heapq.heappush(self._entries, (self.now + delay_s, self._count, action))

    def do_next(self) -> bool:
        """Jump to the next entry and do it; return whether there was one."""
        if not self._entries:
            return False
        self.now, _, action = heapq.heappop(self._entries)
        action()
        return True
