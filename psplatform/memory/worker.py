"""A worker process of an in-memory run: executes what its session asks for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from psplatform.core.effects import COORDINATOR, CancelCompute, Compute, Depart, Expose, Role, Send, SetTimer
from psplatform.core.events import Begin, ComputeAborted, Reachable, TimerFired
from psplatform.core.messages import Leave, Pulled
from psplatform.core.session import Activity, WorkerSession
from psplatform.memory.agenda import Agenda, Appointments
from psplatform.memory.arithmetic import Arithmetic
from psplatform.memory.processes import Processes
from psplatform.memory.room import Room
from psplatform.memory.world import World

_COMPUTATION = "computation"


class WorkerProcess:
    """Hosts one session.

    Parameters
    ----------
    world
        Says how long computing takes, and until a gradient is where the servers can reach it.
    send
        Takes the session's role and an effect that sends.
    per_block
        Whether a gradient is announced block by block instead of as a whole.
    room
        Lets what is pushed block by block wait for servers that are far behind.

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
        world: World,
        send: Callable[[Role, Send], None],
        processes: Processes,
        *,
        shards: int,
        room: Room,
        per_block: bool = False,
    ) -> None:
        self.session = session
        self.gone = False
        self._role = Role.member(session.member)
        self._agenda = agenda
        self._appointments = Appointments(agenda)
        self._arithmetic = arithmetic
        self._world = world
        self._send = send
        self._processes = processes
        self._shards, self._per_block, self._room = shards, per_block, room

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
            self._send(self._role, Send(COORDINATOR, Leave(self.session.member, reason)))

    def kill(self) -> None:
        """Be gone without a word."""
        self.gone = True
        self._arithmetic.forget(self.session.member)
        self._appointments.cancel(_COMPUTATION)

    def _feed(self, event: Any) -> None:
        if not self.gone:
            for effect in self.session.handle(event, self._agenda.now):
                _EXECUTORS[type(effect)](self, effect)

    def _later(self, delay_s: float, event: Any) -> None:
        self._agenda.enter(delay_s, self._processes.do, self.session.member, self._feed, event)

    def _send_on(self, effect: Send) -> None:
        self._send(self._role, effect)

    def _start_computing(self, effect: Compute) -> None:
        seconds = self._world.compute_s(effect.slot, effect.sequence)
        arguments = self.session.member, self._end_computing, effect, seconds
        self._appointments.make(_COMPUTATION, self._agenda.now + seconds, self._processes.do, *arguments)

    def _end_computing(self, effect: Compute, seconds: float) -> None:
        self._feed(self._arithmetic.compute(self.session.member, effect, seconds))

    def _cancel(self, effect: CancelCompute) -> None:
        if self._appointments.cancel(_COMPUTATION):
            self._later(0.0, ComputeAborted(effect.sequence))

    def _expose(self, effect: Expose) -> None:
        name, now = self.session.member, self._agenda.now
        self._arithmetic.expose(name, effect.slot, effect.sequence)
        delays = [self._world.reach_s(name, shard, now) for shard in range(self._shards)]
        if not self._per_block:
            self._later(max(delays), Reachable(effect.sequence))
            return
        for delay in sorted(set(delays)):
            reached = tuple(shard for shard, one in enumerate(delays) if one == delay)
            self._agenda.enter(delay, self._arrive, effect.sequence, self.session.counter, reached)

    def _arrive(self, sequence: int, counter: int, shards: tuple[int, ...]) -> None:
        taken = tuple(shard for shard in shards if self._room.is_at(shard, counter))
        for shard in shards:
            if shard not in taken:
                self._room.wait_at(shard, partial(self._arrive, sequence, counter, (shard,)))
        if taken:
            self._processes.do(self.session.member, self._feed, Reachable(sequence, taken))

    def _set_timer(self, effect: SetTimer) -> None:
        arguments = self.session.member, self._feed, TimerFired(effect.tag)
        self._appointments.make(effect.tag, effect.at, self._processes.do, *arguments)

    def _depart(self, effect: Depart) -> None:
        self.leave(effect.reason)


_EXECUTORS: dict[type, Callable[[WorkerProcess, Any], None]] = {
    Send: WorkerProcess._send_on,
    Compute: WorkerProcess._start_computing,
    CancelCompute: WorkerProcess._cancel,
    Expose: WorkerProcess._expose,
    SetTimer: WorkerProcess._set_timer,
    Depart: WorkerProcess._depart,
}
