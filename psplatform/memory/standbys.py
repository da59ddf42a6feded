"""The standbys of an in-memory run: which there are, and which of them may take over."""

from __future__ import annotations

from psplatform.memory.engine import Processes
from psplatform.memory.leading import VirtualCoordinator, VirtualStandby


class Standbys:
    """The standbys that have not departed, in the order in which they were made.

    Parameters
    ----------
    leads
        The coordinators so far; the last is in charge.
    """

    def __init__(self, leads: list[VirtualCoordinator], processes: Processes) -> None:
        self.all: list[VirtualStandby] = []
        self._leads, self._processes = leads, processes
        self._unplaced: set[int] = set()

    @property
    def successors(self) -> list[VirtualStandby]:
        """The standbys that the present coordinator goes by: of others, no number can be had any more."""
        lead = self._leads[-1].lead
        return [one for one in self.all if one.standby.term == lead.term and one.standby.number in lead.standbys]

    @property
    def first(self) -> VirtualStandby | None:
        """The first that lives and may take over, or else any; ``None`` where there is none."""
        alive = [one for one in self.successors if not self._processes.is_dead(one.name)]
        return next(iter([*alive, *self.all]), None)

    def want(self, number: int) -> None:
        """Count the standby of that number as without a process: it is made when there is one."""
        self._unplaced.add(number)

    def on_processes_changed(self) -> None:
        """Let those be made again that could not be."""
        unplaced, self._unplaced = self._unplaced, set()
        for number in sorted(unplaced):
            self._leads[-1].lead.without_standby(number)

    def on_taken_over(self) -> None:
        """Want nobody any more: those that could not be made were to follow the coordinator before."""
        self._unplaced.clear()

    def numbers_in(self, process: str) -> list[int]:
        """Return the numbers of the present coordinator's standbys in a process."""
        term = self._leads[-1].lead.term
        there = [one.standby for one in self.all if self._processes.of(one.name) == process]
        return [one.number for one in there if one.term == term]
