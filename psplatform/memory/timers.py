"""The timers of a node whose clock jumps."""

from __future__ import annotations

from collections.abc import Callable

from psplatform.memory.agenda import Agenda, Appointments
from psplatform.memory.processes import Processes


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
