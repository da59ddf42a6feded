"""Executes the effects of coordinator, servers and sessions in one thread.

Timers and computations take the virtual time they say; messages take `latency_s` each (0 by default).  A test may
change what the network does to each message with `deliver`, and may kill, join or ask to stop at any virtual time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psplatform.core.coordination import Coordinator
from psplatform.core.effects import (
    CancelCompute,
    CancelTimer,
    Compute,
    Depart,
    Dismiss,
    Effect,
    Evaluate,
    Expose,
    Finish,
    Gather,
    Log,
    Publish,
    Role,
    SaveModel,
    Send,
    SetTimer,
    Stage,
)
from psplatform.core.events import (
    Begin,
    ComputeAborted,
    Evaluated,
    GatherDone,
    MemberLost,
    ModelSaved,
    Reachable,
    StageDone,
    StopRequested,
    TimerFired,
)
from psplatform.core.messages import Pulled
from psplatform.core.plan import Plan
from psplatform.core.policy import Policy
from psplatform.core.server import Server
from psplatform.core.session import WorkerSession
from psplatform.memory.agenda import Agenda
from psplatform.memory.arithmetic import Arithmetic, Metadata

Deliver = Callable[[Role, Role, Any], list[float]]


class MemoryRun:
    """One run in memory.

    Parameters
    ----------
    plan, policy
        What the coordinator acts on.
    compute_s
        Seconds that gradient `sequence` of `slot` takes.
    arithmetic
        What servers and workers compute; metadata only where none is given.
    latency_s
        Seconds every message takes.
    deliver
        Given sender, addressee and message, the delays of its copies: ``[0.0]`` delivers once, ``[0.0, 0.1]`` twice.
        It must deliver at least one copy: drivers retry until they are heard.

    Attributes
    ----------
    records
        The event log so far.
    finish
        The last effect of the coordinator, or ``None`` while the run goes on.
    """

    def __init__(
        self,
        plan: Plan,
        policy: Policy,
        compute_s: Callable[[int, int], float] = lambda slot, sequence: 1.0,
        *,
        arithmetic: Arithmetic | None = None,
        latency_s: float = 0.0,
        deliver: Deliver | None = None,
    ) -> None:
        self.plan = plan
        self.agenda = Agenda()
        self.coordinator = Coordinator(plan, policy)
        self.servers = [Server(shard) for shard in range(plan.shards)]
        self.sessions: dict[str, WorkerSession] = {}
        self.records: list[dict[str, Any]] = []
        self.finish: Finish | None = None
        self.on_event: Callable[[MemoryRun], None] = lambda run: None
        self._compute_s = compute_s
        self._arithmetic = arithmetic or Metadata()
        self._deliver = deliver or (lambda sender, to, message: [latency_s])
        self._exact = policy.traits.exact
        self._timers: dict[str, object] = {}
        self._computing: dict[str, object] = {}
        self._snapshots: dict[tuple[str, int, int], Any] = {}
        self._dead: set[str] = set()
        self._feed_coordinator(Begin())

    # --- what a test or a user does ---

    def join(self, name: str, at: float = 0.0) -> None:
        """Let a worker process of that name offer itself at time `at`."""
        self.agenda.enter(at - self.agenda.now, lambda: self._begin_session(name))

    def kill(self, name: str, at: float) -> None:
        """Kill the process at time `at`: it says no more, and the coordinator hears of it at once."""
        self.agenda.enter(at - self.agenda.now, lambda: self._kill(name))

    def stop(self, at: float) -> None:
        """Ask the run to stop at time `at`."""
        self.agenda.enter(at - self.agenda.now, lambda: self._feed_coordinator(StopRequested("asked to stop")))

    def run(self, *, events: int = 1_000_000) -> Finish:
        """Run to the end.

        Raises
        ------
        RuntimeError
            If nothing is left to do, or `events` were handled, before the run is over; the text names who waits.
        """
        for _ in range(events):
            if self.finish is not None:
                return self.finish
            if not self.agenda.do_next():
                break
            self.on_event(self)
        if self.finish is not None:
            return self.finish
        waits = {name: session.waiting_for for name, session in self.sessions.items()}
        raise RuntimeError(f"the run does not end; at {self.agenda.now:g} s these wait: {waits}")

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """Return the log records of that kind."""
        return [record for record in self.records if record["kind"] == kind]

    # --- roles ---

    def _begin_session(self, name: str) -> None:
        session = WorkerSession(name, f"memory://{name}", self.plan.shards, exact=self._exact)
        self.sessions[name] = session
        self._feed_session(name, Begin())

    def _kill(self, name: str) -> None:
        self._dead.add(name)
        self._computing.pop(name, None)
        self._feed_coordinator(MemberLost(name, "killed"))

    def _feed_coordinator(self, event: Any) -> None:
        if self.finish is None:
            self._execute(Role("coordinator"), self.coordinator.handle(event, self.agenda.now))

    def _feed_server(self, shard: int, event: Any) -> None:
        self._execute(Role.server(shard), self.servers[shard].handle(event, self.agenda.now))

    def _feed_session(self, name: str, event: Any) -> None:
        session = self.sessions.get(name)
        if session is not None and name not in self._dead:
            self._execute(Role.member(name), session.handle(event, self.agenda.now))

    # --- effects ---

    def _execute(self, role: Role, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._send(role, effect)
            elif role.kind == "coordinator":
                self._execute_coordinator(effect)
            elif role.kind == "server":
                self._execute_server(int(role.name), effect)
            else:
                self._execute_member(role.name, effect)

    def _send(self, sender: Role, effect: Send) -> None:
        if isinstance(effect.message, Pulled):
            key = effect.to.name, effect.message.shard, effect.message.request
            self._snapshots[key] = self._arithmetic.snapshot(effect.message.shard)
        for delay_s in self._deliver(sender, effect.to, effect.message):
            self.agenda.enter(delay_s, lambda: self._receive(effect.to, effect.message))

    def _receive(self, to: Role, message: Any) -> None:
        if to.kind == "coordinator":
            self._feed_coordinator(message)
        elif to.kind == "server":
            self._feed_server(int(to.name), message)
        else:
            self._receive_at_member(to.name, message)

    def _receive_at_member(self, name: str, message: Any) -> None:
        session = self.sessions.get(name)
        if isinstance(message, Pulled) and session is not None:
            content = self._snapshots.pop((name, message.shard, message.request), None)
            if session.expects(message) and content is not None:
                self._arithmetic.load(name, message.shard, content)
        self._feed_session(name, message)

    def _execute_coordinator(self, effect: Effect) -> None:
        if isinstance(effect, Log):
            self.records.append(effect.record)
        elif isinstance(effect, SetTimer):
            self._set_timer(effect)
        elif isinstance(effect, CancelTimer):
            self._timers.pop(effect.tag, None)
        elif isinstance(effect, Evaluate):
            self.agenda.enter(0.0, lambda: self._evaluate(effect))
        elif isinstance(effect, SaveModel):
            self.agenda.enter(0.0, lambda: self._feed_coordinator(ModelSaved(effect.version)))
        elif isinstance(effect, Finish):
            self.finish = effect
        elif isinstance(effect, Dismiss):
            self._arithmetic.forget(effect.member)

    def _set_timer(self, effect: SetTimer) -> None:
        token = self._timers[effect.tag] = object()

        def fire() -> None:
            if self._timers.get(effect.tag) is token:
                del self._timers[effect.tag]
                self._feed_coordinator(TimerFired(effect.tag))

        self.agenda.enter(max(0.0, effect.at - self.agenda.now), fire)

    def _evaluate(self, effect: Evaluate) -> None:
        version = min(server.version for server in self.servers)
        loss, accuracy = self._arithmetic.evaluate() if effect.measure else (None, None)
        self._feed_coordinator(Evaluated(version, loss, accuracy))

    def _execute_server(self, shard: int, effect: Effect) -> None:
        if isinstance(effect, Gather):
            norms = self._arithmetic.gather(shard, effect.contributions, norms=effect.norms)
            self.agenda.enter(0.0, lambda: self._feed_server(shard, GatherDone(effect.position, norms)))
        elif isinstance(effect, Stage):
            self._arithmetic.stage(shard, effect.factor, effect.rate)
            self.agenda.enter(0.0, lambda: self._feed_server(shard, StageDone(effect.position)))
        elif isinstance(effect, Publish):
            self._arithmetic.publish(shard, effect.version)

    def _execute_member(self, name: str, effect: Effect) -> None:
        if isinstance(effect, Compute):
            self._start_computing(name, effect)
        elif isinstance(effect, CancelCompute):
            if self._computing.pop(name, None) is not None:
                self.agenda.enter(0.0, lambda: self._feed_session(name, ComputeAborted(effect.sequence)))
        elif isinstance(effect, Expose):
            self._arithmetic.expose(name, effect.slot, effect.sequence)
            self.agenda.enter(0.0, lambda: self._feed_session(name, Reachable(effect.sequence)))
        elif isinstance(effect, Depart):
            self._computing.pop(name, None)

    def _start_computing(self, name: str, effect: Compute) -> None:
        token = self._computing[name] = object()
        seconds = self._compute_s(effect.slot, effect.sequence)

        def end() -> None:
            if self._computing.get(name) is token:
                del self._computing[name]
                self._feed_session(name, self._arithmetic.compute(name, effect, seconds))

        self.agenda.enter(seconds, end)
