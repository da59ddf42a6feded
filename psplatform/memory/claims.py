"""Numbers that can be claimed once in an in-memory run, as on the scheduler of a real one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psplatform.core.events import Claimed
from psplatform.memory.agenda import Agenda
from psplatform.memory.processes import Processes
from psplatform.memory.world import World


class Claims:
    """Grants each number to whoever's claim is heard first, and to nobody else; asked again, it answers the same.

    Attributes
    ----------
    granted
        By number, the role that has it.
    """

    def __init__(self, agenda: Agenda, processes: Processes, world: World) -> None:
        self.granted: dict[int, str] = {}
        self._agenda = agenda
        self._processes = processes
        self._world = world

    def claim(self, name: str, number: int, feed: Callable[[Any], None]) -> None:
        """Let the role of that name claim `number`; `feed` takes the answer."""
        unheard_s, unanswered_s = self._world.claim_s(self._processes.of(name), self._agenda.now)
        if unheard_s > 0.0:
            # Who claims asks until it is answered: one that is gone by then has claimed nothing.
            self._agenda.enter(unheard_s, self._processes.do, name, self.claim, name, number, feed)
            return
        granted = self.granted.setdefault(number, name) == name
        self._agenda.enter(unanswered_s, self._processes.do, name, feed, Claimed(number, granted))
