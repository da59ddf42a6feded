"""Events in the order of their time; at the same time, in the order they were entered."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial


@dataclass
class Agenda:
    """A queue of things to do on a clock that jumps from one to the next."""

    now: float = 0.0
    _entries: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _count: int = 0

    def enter(self, delay_s: float, action: Callable[[], None]) -> None:
        """Do `action` in `delay_s` seconds."""
        self.enter_at(self.now + delay_s, action)

    def enter_at(self, time: float, action: Callable[[], None]) -> None:
        """Do `action` at `time`, or now if that is over."""
        self._count += 1
        heapq.heappush(self._entries, (max(time, self.now), self._count, action))

    def do_next(self) -> bool:
        """Jump to the next entry and do it; return whether there was one."""
        if not self._entries:
            return False
        self.now, _, action = heapq.heappop(self._entries)
        action()
        return True


@dataclass
class Appointments:
    """Entries of an agenda by name: making one again replaces it, and one that is cancelled is not kept."""

    agenda: Agenda
    _tokens: dict[str, object] = field(default_factory=dict)

    def make(self, name: str, time: float, action: Callable[[], None]) -> None:
        """Do `action` at `time`, and nothing else under that name."""
        token = self._tokens[name] = object()
        self.agenda.enter_at(time, partial(self._keep_one, name, token, action))

    def cancel(self, name: str) -> bool:
        """Forget what was to be done under `name`; return whether there was anything."""
        return self._tokens.pop(name, None) is not None

    @property
    def names(self) -> list[str]:
        """What is still to be done."""
        return sorted(self._tokens)

    def _keep_one(self, name: str, token: object, action: Callable[[], None]) -> None:
        if self._tokens.get(name) is token:
            del self._tokens[name]
            action()
