"""The coordinator's and the standby's processes of an in-memory run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from psplatform.core.effects import CancelTimer, Effect, Log, Role, SetTimer
from psplatform.core.events import TimerFired
from psplatform.core.lead import Lead
from psplatform.core.standby import Standby
from psplatform.memory.agenda import Agenda
from psplatform.memory.processes import Processes
from psplatform.memory.timers import VirtualTimers


class Sink(Protocol):
    """Takes the records of the event log one by one."""

    def append(self, record: dict[str, Any], /) -> None:
        """Take the next record."""


class LeadProcess:
    """Hosts a coordinator: keeps its timers and its log; what else it asks for, `execute` does.

    Attributes
    ----------
    sink
        Takes the event log.
    timers
        Those that are set, and when they are due.
    """

    def __init__(
        self,
        name: str,
        lead: Lead,
        agenda: Agenda,
        processes: Processes,
        sink: Sink,
        execute: Callable[[LeadProcess, Effect], None],
    ) -> None:
        self.name = name
        self.lead = lead
        self.role = Role("coordinator", str(lead.term))
        self.timers = VirtualTimers(agenda, processes, name, self._fire)
        self._agenda = agenda
        self._processes = processes
        self.sink = sink
        self._execute = execute

    def feed(self, event: Any) -> None:
        """Hand an event to the coordinator, and execute what it answers."""
        effects = self.lead.handle(event, self._agenda.now)
        if self._processes.on_handled is not None:
            self._processes.on_handled(self.name, event, effects)
        self.do(effects)

    def do(self, effects: list[Effect]) -> None:
        """Execute effects."""
        for effect in effects:
            # Classes compared, not asked for: this is done for every effect of every event.
            if type(effect) is Log:
                self.sink.append(effect.record)
            elif type(effect) is SetTimer:
                self.timers.set(effect.tag, effect.at)
            elif type(effect) is CancelTimer:
                self.timers.cancel(effect.tag)
            else:
                self._execute(self, effect)

    def _fire(self, tag: str) -> None:
        self.feed(TimerFired(tag))


class StandbyProcess:
    """Hosts a standby.

    Parameters
    ----------
    records_before
        Records of the log before the first that the standby has seen made.
    """

    def __init__(
        self,
        name: str,
        standby: Standby,
        processes: Processes,
        execute: Callable[[StandbyProcess, Effect], None],
        records_before: int,
    ) -> None:
        self.name = name
        self.records_before = records_before
        self.standby = standby
        self._processes = processes
        self._execute = execute

    def feed(self, event: Any) -> None:
        """Hand an event to the standby, and execute what it answers."""
        for effect in self.standby.handle(event, self._processes.clock(self.name)):
            self._execute(self, effect)
