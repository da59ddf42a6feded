"""Numbers that can be claimed once in an in-memory run, as on the scheduler of a real one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psplatform.core.events import Claimed, Consulted
from psplatform.memory.agenda import Agenda
from psplatform.memory.processes import Processes
from psplatform.memory.world import World


class Claims:
    """Grants each number of a coordinator's standby under the name that is heard first, and under no other.

    Attributes
    ----------
    granted
        By the coordinator's term and the standby's number, the name that has it.
    """

    def __init__(self, agenda: Agenda, processes: Processes, world: World) -> None:
        self.granted: dict[tuple[int, int], str] = {}
        self._agenda = agenda
        self._processes = processes
        self._world = world

    def claim(self, name: str, number: tuple[int, int], claimant: str, feed: Callable[[Any], None]) -> None:
        """Let the role of that name claim `number` in the name of `claimant`; `feed` takes the answer."""
        unheard_s, unanswered_s = self._world.claim_s(self._processes.of(name), self._agenda.now)
        if unheard_s > 0.0:
            # Who claims asks until it is answered: one that is gone by then has claimed nothing.
            self._agenda.enter(unheard_s, self._processes.do, name, self.claim, name, number, claimant, feed)
            return
        granted = self.granted.setdefault(number, claimant) == claimant
        self._agenda.enter(unanswered_s, self._processes.do, name, feed, Claimed(number[1], granted))

    def consult(self, name: str, number: int, feed: Callable[[Any], None]) -> None:
        """Let the role of that name hear that it is not cut off, once it is not; `feed` takes that."""
        unheard_s, unanswered_s = self._world.claim_s(self._processes.of(name), self._agenda.now)
        if unheard_s > 0.0:
            self._agenda.enter(unheard_s, self._processes.do, name, self.consult, name, number, feed)
        else:
            self._agenda.enter(unanswered_s, self._processes.do, name, feed, Consulted(number))
