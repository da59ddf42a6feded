"""The processes of a run in memory: each can be killed, or stopped for a while as SIGSTOP does."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from psplatform.core.protocol.effects import Effect
from psplatform.memory.agenda import Agenda, Appointments

Handled = Callable[[str, Any, list[Effect]], None]
"""Takes the name of a role, an event, and what the role asks for about it, before any of that is executed."""


@dataclass
class Processes:
    """Which processes are dead or stopped, whose clock runs how fast, and who shares one.

    Attributes
    ----------
    on_handled
        Told of all that coordinators and copies handle, for those who check it.
    dead
        Processes that were killed.
    rates
        Seconds that a process's own clock counts in one; 1 for those that are not here.
    """

    agenda: Agenda
    on_handled: Handled | None = None
    dead: set[str] = field(default_factory=set)
    rates: dict[str, float] = field(default_factory=dict)
    _shared: dict[str, str] = field(default_factory=dict)
    _stopped: dict[str, deque[tuple[Callable[..., None], tuple[Any, ...]]]] = field(default_factory=dict)
    _until: dict[str, float] = field(default_factory=dict)

    def share(self, name: str, process: str) -> None:
        """Let the role of that name live in `process`; others have a process of their own name."""
        self._shared[name] = self.of(process)

    def of(self, name: str) -> str:
        """Return the process of a role."""
        return self._shared.get(name, name)

    def is_dead(self, name: str) -> bool:
        """Whether the role's process was killed."""
        return self.of(name) in self.dead

    def is_stopped(self, name: str) -> bool:
        """Whether the role's process is stopped."""
        return self.of(name) in self._stopped

    def first_apart(self, names: list[str], others: list[str]) -> str | None:
        """Return the first of those roles that lives, and in another process than each of `others`."""
        taken = {self.of(other) for other in others}
        return next((one for one in names if not self.is_dead(one) and self.of(one) not in taken), None)

    def clock(self, name: str) -> float:
        """Return what the clock of the role's process says."""
        return self.agenda.now * self.rates.get(self.of(name), 1.0) if self.rates else self.agenda.now

    def note(self, name: str, event: Any, effects: list[Effect]) -> None:
        """Tell who checks it what the role of that name is about to do about `event`."""
        if self.on_handled is not None:
            self.on_handled(name, event, effects)

    def do(self, name: str, action: Callable[..., None], *arguments: Any) -> None:
        """Do `action` in the role's process: now, when it goes on, or never."""
        if not self.dead and not self._stopped:
            action(*arguments)
            return
        process = self.of(name)
        if process in self._stopped:
            self._stopped[process].append((action, arguments))
        elif process not in self.dead:
            action(*arguments)

    def kill(self, process: str) -> None:
        """End a process: what it was about to do is never done."""
        self.dead.add(process)
        self._stopped.pop(process, None)

    def stop(self, process: str, seconds: float) -> None:
        """Let a process do nothing for so long; where it is stopped already, until the later end."""
        if process not in self.dead:
            self._stopped.setdefault(process, deque())
            until = self._until[process] = max(self._until.get(process, 0.0), self.agenda.now + seconds)
            self.agenda.enter_at(until, self._go_on, process)

    def _go_on(self, process: str) -> None:
        """Let a stopped process do what has been waiting for it, unless it was stopped for longer meanwhile."""
        if self._until.get(process, 0.0) > self.agenda.now:
            return
        for action, arguments in self._stopped.pop(process, ()):
            self.agenda.enter(0.0, self.do, process, action, *arguments)


class VirtualTimers:
    """Entries of the agenda that are done in the process of a role: later where it is stopped, never where it is dead.

    Parameters
    ----------
    name
        Of the role.
    fire
        Takes the tag of each timer that is due.

    Attributes
    ----------
    due
        When each timer that is set is due, by its tag.
    """

    def __init__(self, agenda: Agenda, processes: Processes, name: str, fire: Callable[[str], None]) -> None:
        self.due: dict[str, float] = {}
        self._appointments = Appointments(agenda)
        self._processes = processes
        self._name = name
        self._fire = fire

    def set(self, tag: str, at: float) -> None:
        """Fire under `tag` at that time, and not at the one set before under it."""
        self.due[tag] = at
        self._appointments.make(tag, at, self._processes.do, self._name, self._fire_now, tag)

    def cancel(self, tag: str) -> None:
        """Forget the time set under `tag`, if there is one."""
        self.due.pop(tag, None)
        self._appointments.cancel(tag)

    def close(self) -> None:
        """Fire no more."""
        for tag in list(self.due):
            self.cancel(tag)

    def _fire_now(self, tag: str) -> None:
        self.due.pop(tag, None)
        self._fire(tag)
