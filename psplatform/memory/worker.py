"""A worker process of an in-memory run: executes what its session asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psplatform.core.effects import COORDINATOR, CancelCompute, Compute, Depart, Effect, Expose, Send
from psplatform.core.events import Begin, ComputeAborted, Reachable
from psplatform.core.messages import Leave, Pulled
from psplatform.core.session import Activity, WorkerSession
from psplatform.memory.agenda import Agenda, Appointments
from psplatform.memory.arithmetic import Arithmetic

_COMPUTATION = "computation"


class WorkerProcess:
    """Hosts one session.

    Parameters
    ----------
    compute_s
        Seconds that gradient `sequence` of `slot` takes.
    send
        Takes the name and an effect that sends.

    Attributes
    ----------
    gone
        Whether it has left or was killed: it says nothing any more and hears nothing.
    """

    def __init__(
        self,
        session: WorkerSession,
        agenda: Agenda,
        arithmetic: Arithmetic,
        compute_s: Callable[[int, int], float],
        send: Callable[[str, Send], None],
    ) -> None:
        self.session = session
        self.gone = False
        self._agenda = agenda
        self._computing = Appointments(agenda)
        self._arithmetic = arithmetic
        self._compute_s = compute_s
        self._send = send

    @property
    def waits_for(self) -> str | None:
        """What it waits for, in words; ``None`` once it is gone."""
        return None if self.gone or self.session.activity is Activity.GONE else self.session.waiting_for

    def begin(self) -> None:
        """Join the run."""
        self._feed(Begin())

    def receive(self, message: Any, content: Any) -> None:
        """Take a message, with a shard's content where it is the answer to a pull."""
        if isinstance(message, Pulled) and not self.gone and self.session.expects(message):
            self._arithmetic.load(self.session.member, message.shard, content)
        self._feed(message)

    def leave(self, reason: str) -> None:
        """Go away in good order."""
        if not self.gone:
            self.kill()
            self._send(self.session.member, Send(COORDINATOR, Leave(self.session.member, reason)))

    def kill(self) -> None:
        """Be gone without a word."""
        self.gone = True
        self._computing.cancel(_COMPUTATION)

    def _feed(self, event: Any) -> None:
        if not self.gone:
            for effect in self.session.handle(event, self._agenda.now):
                self._execute(effect)

    def _execute(self, effect: Effect) -> None:
        name = self.session.member
        if isinstance(effect, Send):
            self._send(name, effect)
        elif isinstance(effect, Compute):
            self._start_computing(effect)
        elif isinstance(effect, CancelCompute):
            if self._computing.cancel(_COMPUTATION):
                self._agenda.enter(0.0, lambda: self._feed(ComputeAborted(effect.sequence)))
        elif isinstance(effect, Expose):
            self._arithmetic.expose(name, effect.slot, effect.sequence)
            self._agenda.enter(0.0, lambda: self._feed(Reachable(effect.sequence)))
        elif isinstance(effect, Depart):
            self.leave(effect.reason)

    def _start_computing(self, effect: Compute) -> None:
        seconds = self._compute_s(effect.slot, effect.sequence)

        def end() -> None:
            self._feed(self._arithmetic.compute(self.session.member, effect, seconds))

        self._computing.make(_COMPUTATION, self._agenda.now + seconds, end)
