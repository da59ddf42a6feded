"""Events in the order of their time; at the same time, in the order they were entered."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Agenda:
    """A queue of things to do on a clock that jumps from one to the next.

    What is to be done at once waits in a queue of its own: it was entered later than whatever the heap holds for the
    same time, and most of what happens in a run takes no time.

    Attributes
    ----------
    done
        Entries done so far.
    """

    now: float = 0.0
    done: int = 0
    _later: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = field(default_factory=list)
    _at_once: deque[tuple[Callable[..., None], tuple[Any, ...]]] = field(default_factory=deque)
    _count: int = 0

    def enter(self, delay_s: float, action: Callable[..., None], *arguments: Any) -> None:
        """Call `action` with `arguments` in `delay_s` seconds."""
        if delay_s <= 0.0:
            self._at_once.append((action, arguments))
        else:
            self._count += 1
            heapq.heappush(self._later, (self.now + delay_s, self._count, action, arguments))

    def enter_at(self, time: float, action: Callable[..., None], *arguments: Any) -> None:
        """Call `action` at `time`, or now if that is over."""
        self.enter(0.0, action, *arguments) if time <= self.now else self._enter_later(time, action, arguments)

    def do_next(self) -> bool:
        """Jump to the next entry and do it; return whether there was one."""
        later = self._later
        if self._at_once and not (later and later[0][0] <= self.now):
            action, arguments = self._at_once.popleft()
        elif later:
            self.now, _, action, arguments = heapq.heappop(later)
        else:
            return False
        self.done += 1
        action(*arguments)
        return True

    def _enter_later(self, time: float, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self._count += 1
        heapq.heappush(self._later, (time, self._count, action, arguments))


@dataclass
class Appointments:
    """Entries of an agenda by name: making one again replaces it, and one that is cancelled is not kept."""

    agenda: Agenda
    _tokens: dict[str, object] = field(default_factory=dict)

    def make(self, name: str, time: float, action: Callable[..., None], *arguments: Any) -> None:
        """Call `action` with `arguments` at `time`, and nothing else under that name."""
        token = self._tokens[name] = object()
        self.agenda.enter_at(time, self._keep_one, name, token, action, arguments)

    def cancel(self, name: str) -> bool:
        """Forget what was to be done under `name`; return whether there was anything."""
        return self._tokens.pop(name, None) is not None

    @property
    def names(self) -> list[str]:
        """What is still to be done."""
        return sorted(self._tokens)

    def _keep_one(self, name: str, token: object, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if self._tokens.get(name) is token:
            del self._tokens[name]
            action(*arguments)
