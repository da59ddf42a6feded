"""The standbys of an in-memory run: made, spoken to, and what they ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from psplatform.core.effects import Appoint, Claim, Depart, Effect, Role, Send, TakeOver
from psplatform.core.standby import Standby, standby_name
from psplatform.memory.agenda import Agenda
from psplatform.memory.claims import Claims
from psplatform.memory.leading import LeadProcess, StandbyProcess
from psplatform.memory.post import Post
from psplatform.memory.processes import Processes
from psplatform.memory.supervision import Supervision


class LedRun(Protocol):
    """A run whose coordinator may be lost."""

    agenda: Agenda
    processes: Processes
    leads: list[LeadProcess]
    records: list[dict[str, Any]]
    supervision: Supervision

    def seat_standby(self, process: LeadProcess, name: str) -> bool:
        """Give a standby a process, if there is one for it."""

    def take_over(self, process: StandbyProcess) -> None:
        """Make a standby the coordinator."""

    def beat(self, name: str, feed: Callable[[Any], None]) -> None:
        """Let a role look at its leases now and then, as long as the run goes on."""


class Standbys:
    """The standbys that have not departed, in the order in which they were made."""

    def __init__(self, run: LedRun, post: Post, claims: Claims) -> None:
        self.all: list[StandbyProcess] = []
        self._run = run
        self._post = post
        self._claims = claims
        self._unplaced: set[int] = set()

    @property
    def heirs(self) -> list[StandbyProcess]:
        """The standbys that the present coordinator goes by: of others, no number can be had any more."""
        lead = self._run.leads[-1].lead
        return [one for one in self.all if one.standby.term == lead.term and one.standby.number in lead.standbys]

    @property
    def first(self) -> StandbyProcess | None:
        """The first that lives and may take over, or else any; ``None`` where there is none."""
        alive = [one for one in self.heirs if not self._run.processes.is_dead(one.name)]
        return next(iter([*alive, *self.all]), None)

    def send(self, process: LeadProcess, message: Any) -> None:
        """Let every standby of a coordinator hear a message."""
        lead = process.lead
        for number in lead.standbys:
            self._post.send(process.role, Send(Role("standby", standby_name(lead.term, number)), message))

    def receive(self, name: str, message: Any) -> None:
        """Let the standby of that name take a message."""
        for one in self.all:
            if one.name == name:
                self._run.processes.do(name, one.feed, message)

    def appoint(self, process: LeadProcess, effect: Appoint) -> None:
        """Make a standby of that number, where there is a process for it."""
        run, lead, number = self._run, process.lead, effect.number
        name = standby_name(lead.term, number)
        if not run.seat_standby(process, name):
            self._unplaced.add(number)
            return
        coordinator, handled = lead.enlist(number, run.agenda.now)
        standby = Standby(
            number,
            coordinator,
            handled,
            lowest_number=lead.lowest_number,
            timers=process.timers.due,
            grants=run.supervision.grants(),
            now=run.processes.clock(name),
        )
        made = StandbyProcess(name, standby, run.processes, self._execute, len(run.records))
        self.all.append(made)
        self._post.introduce(name, lead.term)
        run.beat(name, made.feed)

    def on_processes_changed(self) -> None:
        """Let those be made again that could not be."""
        unplaced, self._unplaced = self._unplaced, set()
        for number in sorted(unplaced):
            self._run.leads[-1].lead.without_standby(number)

    def numbers_in(self, process: str) -> list[int]:
        """Return the numbers of the present coordinator's standbys in a process."""
        run, term = self._run, self._run.leads[-1].lead.term
        there = [one.standby for one in self.all if run.processes.of(one.name) == process]
        return [one.number for one in there if one.term == term]

    def _execute(self, process: StandbyProcess, effect: Effect) -> None:
        if isinstance(effect, Send):
            self._post.send(Role("standby", process.name), effect)
        elif isinstance(effect, Claim):
            self._claim(process, effect)
        elif isinstance(effect, TakeOver):
            self.all.remove(process)
            self._unplaced.clear()
            self._run.take_over(process)
        elif isinstance(effect, Depart) and process in self.all:
            self.all.remove(process)

    def _claim(self, process: StandbyProcess, effect: Claim) -> None:
        run, term = self._run, process.standby.term
        claimant = f"coordinator-{term}" if effect.out else process.name
        arguments = process.name, (term, effect.number), claimant, process.feed
        if effect.after_s:
            run.agenda.enter(effect.after_s, run.processes.do, process.name, self._claims.claim, *arguments)
        else:
            self._claims.claim(*arguments)
