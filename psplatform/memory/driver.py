"""Executes the effects of coordinator, servers and sessions in one thread.

Timers, computations and evaluations take the virtual time they say; messages take `latency_s` each (0 by default).  A
test may change what the network does to each message with `deliver`, and may let processes join, leave, be killed or
ask the run to stop at any virtual time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

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
from psplatform.core.policy import Policy, Scope
from psplatform.core.server import Server
from psplatform.core.session import WorkerSession
from psplatform.memory.agenda import Agenda, Appointments
from psplatform.memory.arithmetic import Arithmetic, Metadata
from psplatform.memory.evaluator import EVALUATOR, Evaluator
from psplatform.memory.room import Room
from psplatform.memory.worker import WorkerProcess
from psplatform.memory.world import Deliver, Ideal, World

_EVALUATOR_ROLE: Final = Role.member(EVALUATOR)


class Sink(Protocol):
    """Takes the records of the event log one by one."""

    def append(self, record: dict[str, Any], /) -> None:
        """Take the next record."""


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
    world
        Says all of these durations, and others, instead.
    sink
        Takes the event log's records instead of `records`.

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
        world: World | None = None,
        sink: Sink | None = None,
        seed: int = 0,
    ) -> None:
        self.plan = plan
        self.agenda = Agenda()
        self.coordinator = Coordinator(plan, policy)
        self.servers = [Server(shard) for shard in range(plan.shards)]
        self.workers: dict[str, WorkerProcess] = {}
        self.records: list[dict[str, Any]] = []
        self.finish: Finish | None = None
        self.on_event: Callable[[MemoryRun], None] | None = None
        self._sink = self.records if sink is None else sink
        self._arithmetic = arithmetic or Metadata()
        self._world = world or Ideal(compute_s, deliver or (lambda sender, to, message: [latency_s]), evaluation_s)
        self._traits, self._seed = policy.traits, seed
        self._per_block = policy.traits.scope is Scope.BLOCK
        self._evaluator = Evaluator(plan.shards, self._arithmetic, exact=not self._per_block)
        self._timers = Appointments(self.agenda)
        self._server_roles = [Role.server(shard) for shard in range(plan.shards)]
        self._room = Room(self.agenda, self.servers)
        self._gathered_at = [0.0] * plan.shards
        self._executors = self._coordinator_executors()
        self._feed_coordinator(Begin())

    # --- what a test or a user does ---

    def join(self, name: str, at: float = 0.0) -> None:
        """Let a worker process of that name offer itself at time `at`."""
        self.agenda.enter_at(at, self._begin_worker, name)

    def leave(self, name: str, at: float) -> None:
        """Let the process go away in good order at time `at`."""
        self.agenda.enter_at(at, self._leave, name)

    def kill(self, name: str, at: float) -> None:
        """Kill the process at time `at`: it says no more, and the coordinator hears of it at once."""
        self.agenda.enter_at(at, self._kill, name)

    def lose_server(self, shard: int, at: float) -> None:
        """Let the coordinator hear at time `at` that the server of `shard` is lost."""
        lost = ServerLost(shard, f"memory://shard-{shard}", "killed")
        self.agenda.enter_at(at, self._feed_coordinator, lost)

    def stop(self, at: float) -> None:
        """Ask the run to stop at time `at`."""
        self.agenda.enter_at(at, self._feed_coordinator, StopRequested("asked to stop"))

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
            if self.on_event is not None:
                self.on_event(self)
        if self.finish is not None:
            return self.finish
        waits = {name: one.waits_for for name, one in self.workers.items() if one.waits_for}
        raise RuntimeError(f"the run does not end; at {self.agenda.now:g} s these wait: {waits}")

    def drain(self) -> list[str]:
        """Deliver what is still under way when the run is over; return who or what still waits for anything."""
        timers = [f"timer {name}" for name in self._timers.names]
        while self.agenda.do_next():
            if self.on_event is not None:
                self.on_event(self)
        return timers + [name for name, one in self.workers.items() if one.waits_for]

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """Return the log records of that kind."""
        return [record for record in self.records if record["kind"] == kind]

    # --- roles ---

    def _begin_worker(self, name: str) -> None:
        session = WorkerSession(name, f"memory://{name}", self.plan.shards, self._traits, seed=self._seed)
        worker = WorkerProcess(
            session,
            self.agenda,
            self._arithmetic,
            self._world,
            self._send,
            shards=self.plan.shards,
            room=self._room,
            per_block=self._per_block,
        )
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
                self._executors[type(effect)](effect)

    def _feed_server(self, shard: int, event: Any) -> None:
        for effect in self.servers[shard].handle(event, self.agenda.now):
            self._execute_server(shard, effect)

    # --- messages ---

    def _send(self, sender: Role, effect: Send) -> None:
        to, message = effect.to, effect.message
        content = self._arithmetic.snapshot(message.shard) if isinstance(message, Pulled) else None
        for delay_s in self._world.deliver(sender, to, message, self.agenda.now):
            self.agenda.enter(delay_s, self._receive, sender, to, message, content)

    def _receive(self, sender: Role, to: Role, message: Any, content: Any) -> None:
        if to.kind == "coordinator":
            self._feed_coordinator(message)
            if self.finish is not None and sender.name in self.workers:
                self.workers[sender.name].kill()  # nobody answers any more: it goes by itself
        elif to.kind == "server":
            self._feed_server(int(to.name), message)
        elif to.name == EVALUATOR:
            self._evaluation_goes_on(message, content)
        elif to.name in self.workers:
            self.workers[to.name].receive(message, content)

    def _evaluation_goes_on(self, answer: Pulled, content: Any) -> None:
        self._ask(self._evaluator.on_pulled(answer, content))
        result = self._evaluator.take_result()
        if result is not None:
            self.agenda.enter(self._world.evaluation_s(), self._feed_coordinator, result)

    # --- effects ---

    def _coordinator_executors(self) -> dict[type, Callable[[Any], None]]:
        return {
            Send: partial(self._send, COORDINATOR),
            Log: lambda effect: self._sink.append(effect.record),
            SetTimer: self._set_timer,
            CancelTimer: self._cancel_timer,
            Evaluate: lambda effect: self._ask(self._evaluator.begin(effect)),
            SaveModel: self._save,
            Finish: self._finish,
            Dismiss: lambda effect: self._arithmetic.forget(effect.member),
        }

    def _set_timer(self, effect: SetTimer) -> None:
        self._timers.make(effect.tag, effect.at, self._feed_coordinator, TimerFired(effect.tag))

    def _cancel_timer(self, effect: CancelTimer) -> None:
        self._timers.cancel(effect.tag)

    def _save(self, effect: SaveModel) -> None:
        self._arithmetic.save(effect.version)
        self.agenda.enter(0.0, self._feed_coordinator, ModelSaved(effect.version))

    def _finish(self, effect: Finish) -> None:
        self.finish = effect

    def _ask(self, pulls: list[Pull]) -> None:
        for pull in pulls:
            self._send(_EVALUATOR_ROLE, Send(self._server_roles[pull.shard], pull))

    def _execute_server(self, shard: int, effect: Effect) -> None:
        if isinstance(effect, Send):
            self._send(self._server_roles[shard], effect)
        elif isinstance(effect, Gather):
            norms = self._arithmetic.gather(shard, effect.contributions, norms=effect.norms)
            done = self._gathered_at[shard] = self.agenda.now + self._world.gather_s(shard, len(effect.contributions))
            self.agenda.enter_at(done, self._feed_server, shard, GatherDone(effect.position, norms))
        elif isinstance(effect, Stage):
            # Asked for together with the gathering where nothing is clipped, and done after it all the same.
            self._arithmetic.stage(shard, effect.factor, effect.rate)
            self.agenda.enter_at(self._gathered_at[shard], self._feed_server, shard, StageDone(effect.position))
        elif isinstance(effect, Publish):
            self._arithmetic.publish(shard, effect.version)
            self._room.on_published(shard)
