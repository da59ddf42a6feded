"""The standbys of an in-memory run: which there are, and which of them may take over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from psplatform.core.supervision.leases import Grants
from psplatform.core.supervision.standby import Standby, standby_name
from psplatform.memory.roles.leading import CoordinatedRun, VirtualCoordinator, VirtualStandby


class LedRun(CoordinatedRun, Protocol):
    """A run whose coordinators have standbys; the last of `leads` is in charge."""

    leads: list[VirtualCoordinator]
    records: list[dict[str, Any]]

    def beat(self, name: str, feed: Callable[[Any], None]) -> None:
        """Let a role look at its leases now and then, as long as the run goes on."""


class Standbys:
    """The standbys that have not departed, in the order in which they were made.

    Parameters
    ----------
    seat
        Gives a standby of a coordinator a process; says whether there is one for it.
    grants
        Makes an empty book of leases, or none where there are no leases.
    """

    def __init__(
        self, run: LedRun, seat: Callable[[VirtualCoordinator, str], bool], grants: Callable[[], Grants | None]
    ) -> None:
        self.all: list[VirtualStandby] = []
        self._run, self._seat, self._grants = run, seat, grants
        self._unplaced: set[int] = set()

    @property
    def successors(self) -> list[VirtualStandby]:
        """The standbys that the present coordinator goes by: of others, no number can be had any more."""
        lead = self._run.leads[-1].lead
        return [one for one in self.all if one.standby.term == lead.term and one.standby.number in lead.standbys]

    @property
    def first(self) -> VirtualStandby | None:
        """The first that lives and may take over, or else any; ``None`` where there is none."""
        alive = [one for one in self.successors if not self._run.processes.is_dead(one.name)]
        return next(iter([*alive, *self.all]), None)

    def appoint(self, lead: VirtualCoordinator, number: int) -> None:
        """Make a standby of a coordinator, now or as soon as there is a process for it."""
        run, name = self._run, standby_name(lead.lead.term, number)
        if not self._seat(lead, name):
            self._unplaced.add(number)
            return
        coordinator, handled = lead.lead.enlist(number, run.agenda.now)
        standby = Standby(
            number,
            coordinator,
            handled,
            lowest_number=lead.lead.lowest_number,
            timers=lead.node.timers.due,
            grants=self._grants(),
            now=run.processes.clock(name),
        )
        made = VirtualStandby(run, standby, len(run.records))
        self.all.append(made)
        run.network.introduce(name, lead.lead.term)
        run.network.listen(name, made.feed)
        run.beat(name, made.feed)

    def depart(self, standby: VirtualStandby) -> None:
        """Forget a standby that does not take over."""
        if standby in self.all:
            self.all.remove(standby)
            self._run.network.close(standby.name)

    def on_processes_changed(self) -> None:
        """Let those be made again that could not be."""
        unplaced, self._unplaced = self._unplaced, set()
        for number in sorted(unplaced):
            self._run.leads[-1].lead.without_standby(number)

    def on_taken_over(self) -> None:
        """Want nobody any more: those that could not be made were to follow the coordinator before."""
        self._unplaced.clear()

    def numbers_in(self, process: str) -> list[int]:
        """Return the numbers of the present coordinator's standbys in a process."""
        term = self._run.leads[-1].lead.term
        there = [one.standby for one in self.all if self._run.processes.of(one.name) == process]
        return [one.number for one in there if one.term == term]
