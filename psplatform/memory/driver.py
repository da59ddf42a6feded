"""Executes the effects of coordinator, servers and sessions in one thread.

Timers, computations and evaluations take the virtual time they say; messages take `latency_s` each (0 by default).  A
test may change what the network does to each message with `deliver`, and may let processes join, leave, be killed or
ask the run to stop at any virtual time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from psplatform.core.coordination import Coordinator
from psplatform.core.effects import (
    COORDINATOR,
    CancelTimer,
    Dismiss,
    Effect,
    Evaluate,
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
    GatherDone,
    MemberLost,
    ModelSaved,
    ServerLost,
    StageDone,
    StopRequested,
    TimerFired,
)
from psplatform.core.messages import Pull, Pulled
from psplatform.core.plan import Plan
from psplatform.core.policy import Policy
from psplatform.core.server import Server
from psplatform.core.session import WorkerSession
from psplatform.memory.agenda import Agenda, Appointments
from psplatform.memory.arithmetic import Arithmetic, Metadata
from psplatform.memory.evaluator import EVALUATOR, Evaluator
from psplatform.memory.worker import WorkerProcess

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
    evaluation_s
        Seconds an evaluation takes once its version is fetched.
    deliver
        Given sender, addressee and message, the delays of its copies: ``[0.0]`` delivers once, ``[0.0, 0.1]`` twice.
        It must deliver at least one copy: drivers retry until they are heard.

    Attributes
    ----------
    records
        The event log so far.
    finish
        The last effect of the coordinator, or ``None`` while the run goes on.
    on_event
        Called after each event, for tests that check what must hold at any time.
    """

    def __init__(
        self,
        plan: Plan,
        policy: Policy,
        compute_s: Callable[[int, int], float] = lambda slot, sequence: 1.0,
        *,
        arithmetic: Arithmetic | None = None,
        latency_s: float = 0.0,
        evaluation_s: float = 0.0,
        deliver: Deliver | None = None,
    ) -> None:
        self.plan = plan
        self.agenda = Agenda()
        self.coordinator = Coordinator(plan, policy)
        self.servers = [Server(shard) for shard in range(plan.shards)]
        self.workers: dict[str, WorkerProcess] = {}
        self.records: list[dict[str, Any]] = []
        self.finish: Finish | None = None
        self.on_event: Callable[[MemoryRun], None] = lambda run: None
        self._arithmetic, self._compute_s, self._evaluation_s = arithmetic or Metadata(), compute_s, evaluation_s
        self._deliver = deliver or (lambda sender, to, message: [latency_s])
        self._exact = policy.traits.exact
        self._evaluator = Evaluator(plan.shards, self._arithmetic)
        self._timers = Appointments(self.agenda)
        self._feed_coordinator(Begin())

    # --- what a test or a user does ---

    def join(self, name: str, at: float = 0.0) -> None:
        """Let a worker process of that name offer itself at time `at`."""
        self.agenda.enter_at(at, lambda: self._begin_worker(name))

    def leave(self, name: str, at: float) -> None:
        """Let the process go away in good order at time `at`."""
        self.agenda.enter_at(at, lambda: self._leave(name))

    def kill(self, name: str, at: float) -> None:
        """Kill the process at time `at`: it says no more, and the coordinator hears of it at once."""
        self.agenda.enter_at(at, lambda: self._kill(name))

    def lose_server(self, shard: int, at: float) -> None:
        """Let the coordinator hear at time `at` that the server of `shard` is lost."""
        lost = ServerLost(shard, f"memory://shard-{shard}", "killed")
        self.agenda.enter_at(at, lambda: self._feed_coordinator(lost))

    def stop(self, at: float) -> None:
        """Ask the run to stop at time `at`."""
        self.agenda.enter_at(at, lambda: self._feed_coordinator(StopRequested("asked to stop")))

    def run(self, *, events: int = 1_000_000) -> Finish:
        """Run to the end.

        Raises
        ------
        RuntimeError
            If nothing is left to do, or `events` were handled, before the run is over; the text names who waits.
        """
        for _ in range(events):
            if self.finish is not None or not self.agenda.do_next():
                break
            self.on_event(self)
        if self.finish is not None:
            return self.finish
        waits = {name: one.waits_for for name, one in self.workers.items() if one.waits_for}
        raise RuntimeError(f"the run does not end; at {self.agenda.now:g} s these wait: {waits}")

    def drain(self) -> list[str]:
        """Deliver what is still under way when the run is over; return who or what still waits for anything."""
        timers = [f"timer {name}" for name in self._timers.names]
        while self.agenda.do_next():
            self.on_event(self)
        return timers + [name for name, one in self.workers.items() if one.waits_for]

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """Return the log records of that kind."""
        return [record for record in self.records if record["kind"] == kind]

    # --- roles ---

    def _begin_worker(self, name: str) -> None:
        session = WorkerSession(name, f"memory://{name}", self.plan.shards, exact=self._exact)
        worker = WorkerProcess(session, self.agenda, self._arithmetic, self._compute_s, self._send_from_member)
        self.workers[name] = worker
        worker.begin()

    def _leave(self, name: str) -> None:
        if name in self.workers:
            self.workers[name].leave("left")

    def _kill(self, name: str) -> None:
        if name in self.workers:
            self.workers[name].kill()
            self._feed_coordinator(MemberLost(name, "killed"))

    def _feed_coordinator(self, event: Any) -> None:
        if self.finish is None:
            for effect in self.coordinator.handle(event, self.agenda.now):
                self._execute_coordinator(effect)

    def _feed_server(self, shard: int, event: Any) -> None:
        for effect in self.servers[shard].handle(event, self.agenda.now):
            self._execute_server(shard, effect)

    # --- messages ---

    def _send(self, sender: Role, effect: Send) -> None:
        answered = isinstance(effect.message, Pulled)
        content = self._arithmetic.snapshot(effect.message.shard) if answered else None
        for delay_s in self._deliver(sender, effect.to, effect.message):
            self.agenda.enter(delay_s, partial(self._receive, sender, effect.to, effect.message, content))

    def _receive(self, sender: Role, to: Role, message: Any, content: Any) -> None:
        if to == COORDINATOR:
            self._feed_coordinator(message)
            if self.finish is not None and sender.name in self.workers:
                self.workers[sender.name].kill()  # nobody answers any more: it goes by itself
        elif to.kind == "server":
            self._feed_server(int(to.name), message)
        elif to.name == EVALUATOR:
            self._evaluation_goes_on(message, content)
        elif to.name in self.workers:
            self.workers[to.name].receive(message, content)

    def _send_from_member(self, name: str, effect: Send) -> None:
        self._send(Role.member(name), effect)

    def _evaluation_goes_on(self, answer: Pulled, content: Any) -> None:
        self._ask(self._evaluator.on_pulled(answer, content))
        result = self._evaluator.take_result()
        if result is not None:
            self.agenda.enter(self._evaluation_s, lambda: self._feed_coordinator(result))

    # --- effects ---

    def _execute_coordinator(self, effect: Effect) -> None:
        if isinstance(effect, Send):
            self._send(COORDINATOR, effect)
        elif isinstance(effect, Log):
            self.records.append(effect.record)
        elif isinstance(effect, SetTimer):
            self._timers.make(effect.tag, effect.at, partial(self._feed_coordinator, TimerFired(effect.tag)))
        elif isinstance(effect, CancelTimer):
            self._timers.cancel(effect.tag)
        elif isinstance(effect, Evaluate):
            self._ask(self._evaluator.begin(effect))
        elif isinstance(effect, SaveModel):
            self._arithmetic.save(effect.version)
            self.agenda.enter(0.0, lambda: self._feed_coordinator(ModelSaved(effect.version)))
        elif isinstance(effect, Finish):
            self.finish = effect
        elif isinstance(effect, Dismiss):
            self._arithmetic.forget(effect.member)

    def _ask(self, pulls: list[Pull]) -> None:
        for pull in pulls:
            self._send_from_member(EVALUATOR, Send(Role.server(pull.shard), pull))

    def _execute_server(self, shard: int, effect: Effect) -> None:
        if isinstance(effect, Send):
            self._send(Role.server(shard), effect)
        elif isinstance(effect, Gather):
            norms = self._arithmetic.gather(shard, effect.contributions, norms=effect.norms)
            self.agenda.enter(0.0, lambda: self._feed_server(shard, GatherDone(effect.position, norms)))
        elif isinstance(effect, Stage):
            self._arithmetic.stage(shard, effect.factor, effect.rate)
            self.agenda.enter(0.0, lambda: self._feed_server(shard, StageDone(effect.position)))
        elif isinstance(effect, Publish):
            self._arithmetic.publish(shard, effect.version)
