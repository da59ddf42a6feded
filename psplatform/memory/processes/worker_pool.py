"""The gradient workers and the evaluator of an in-memory run whose roles are placed: started, watched and replaced.

Which process gets which of these roles, and what replaces one that is lost, is decided by the supervisor that decides
it on a cluster.  What that asks for takes the time of messages here, and may meet processes that are dead, stopped or
cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any, Protocol

from psplatform.core.coordination.ending import Phase
from psplatform.core.plan import Plan
from psplatform.core.protocol.effects import Evaluate, Finish, Redirect, SaveModel
from psplatform.core.protocol.messages import SLOTS_TAKEN, Join, Leave, Moved
from psplatform.core.protocol.names import Role, actor_name
from psplatform.core.supervision.decisions import (
    EVALUATOR,
    AskOfDeath,
    AwaitWaking,
    Decision,
    Examine,
    LetGo,
    Note,
    ProcessesCame,
    ProcessLeft,
    Report,
    Rules,
    StartEvaluator,
    StartWorker,
)
from psplatform.core.supervision.placement import Placement
from psplatform.core.supervision.unavailable import UnavailableProcesses
from psplatform.core.supervision.workers import WorkerSupervisor
from psplatform.errors import ClusterError, ProcessDied
from psplatform.memory.engine import Engine
from psplatform.memory.processes.joined_workers import JoinedRun
from psplatform.memory.processes.losses import Losses, Supervision
from psplatform.memory.processes.placing import Cluster
from psplatform.memory.processes.retirement import Retirements
from psplatform.memory.roles.leading import VirtualCoordinator
from psplatform.memory.roles.workers import Workers


class SupervisedRun(JoinedRun, Protocol):
    """What the pool asks of the run whose gradient workers it has."""

    plan: Plan
    engine: Engine
    workers: Workers
    supervision: Supervision
    losses: Losses
    retirements: Retirements
    leads: list[VirtualCoordinator]
    finish: Finish | None

    def on_processes_changed(self) -> None:
        """Let the coordinator make what it could not make before."""


class _Around:
    """What the supervisor asks of the rest of the run."""

    left_out: Collection[str] = ()

    def __init__(self, run: SupervisedRun, lead: VirtualCoordinator) -> None:
        self._run, self._lead = run, lead
        self._numbers = 0

    @property
    def runs(self) -> bool:
        return self._lead.lead.coordinator.ending.phase is Phase.RUNNING

    @property
    def home(self) -> str:
        return self._run.engine.processes.of(self._lead.name)

    @property
    def copies(self) -> Collection[str]:
        of, shards = self._run.engine.processes.of, self._lead.lead.coordinator.state.shards
        return {*(of(copy) for one in shards for copy in one.copies), *map(of, self._lead.made)}

    def next_name(self, role: str) -> str:
        self._numbers += 1
        return actor_name(role, self._lead.lead.term, self._numbers)


class _Authority:
    """What a coordinator does from its process, as long as it is in charge."""

    def __init__(self, run: SupervisedRun, lead: VirtualCoordinator) -> None:
        self._run, self._lead, self._engine = run, lead, run.engine

    @property
    def holds(self) -> bool:
        """Whether it lives, the run goes on and no other has its place."""
        lead = self._lead
        return not (self._run.finish is not None or lead.lead.replaced or self._engine.processes.is_dead(lead.name))

    def do(self, action: Callable[[], object]) -> None:
        """Do `action` in the coordinator's process, as soon as that goes on."""
        self._engine.processes.do(self._lead.name, self._do, action)

    def _do(self, action: Callable[[], object]) -> None:
        if self.holds:
            action()

    def trip(self, sender: Role, to: Role) -> float:
        """Return how long a message takes from one to the other."""
        return min(self._engine.world.deliver(sender, to, None, self._engine.agenda.now))

    def ask(self, address: str, act: Callable[[], bool], on_answer: Callable[..., None]) -> None:
        """Let the process at `address` do something; `on_answer` hears whether that could be done, and was in time."""
        waiting = [on_answer]
        there = Role.member(address)

        def answer(*, done: bool) -> None:
            if waiting:
                waiting.pop()(done=done)

        def do() -> None:
            back(done=act())

        def back(*, done: bool) -> None:
            self._engine.agenda.enter(self.trip(there, self._lead.role), self.do, partial(answer, done=done))

        def arrive() -> None:
            if address in self._engine.processes.dead:
                back(done=False)
            else:
                self._engine.processes.do(address, do)

        self._engine.agenda.enter(self.trip(self._lead.role, there), arrive)
        self._engine.agenda.enter(self._run.supervision.answer_s, self.do, partial(answer, done=False))


class VirtualWorkerPool:
    """Does what one coordinator's supervisor of gradient workers and evaluator decides.

    Attributes
    ----------
    unavailable
        The processes in which no role is placed.
    sighted
        The processes that there were at the last look at the cluster.
    """

    def __init__(self, run: SupervisedRun, lead: VirtualCoordinator, cluster: Cluster) -> None:
        self._run, self._lead, self._cluster = run, lead, cluster
        self._engine = run.engine
        self.unavailable = UnavailableProcesses()
        self.sighted: list[str] = []
        self._around, self._authority = _Around(run, lead), _Authority(run, lead)
        rules = Rules(
            workers=run.plan.workers,
            most=run.plan.max_workers,
            lease_s=run.supervision.worker_lease_s,
            deserted_s=run.supervision.deserted_s,
            share_after_s=run.supervision.share_after_s,
            replace_after_s=run.supervision.look_s,
        )
        self._supervisor = WorkerSupervisor(rules, self._around, self.unavailable)
        self._let_go, self._refused = set[str](), set[str]()
        self._orders: list[Evaluate | SaveModel] = []
        self._execute_by_kind: dict[type[Decision], Callable[[Any], object]] = {
            StartWorker: self._start_worker,
            StartEvaluator: self._start_evaluator,
            Examine: self._examine,
            LetGo: self._release,
            AskOfDeath: self._ask_of_death,
            AwaitWaking: self._await_waking,
            Report: lambda one: lead.feed(one.event),
            Note: lambda one: None,
            ProcessLeft: lambda one: run.losses.notice(one.address),
            ProcessesCame: lambda one: self._on_processes_changed(),
        }

    def begin(self, placement: Placement) -> None:
        """Start what a run begins with, and watch the cluster from now on."""
        self._execute(self._supervisor.begin(placement))
        self.watch()

    def succeed(self, before: VirtualWorkerPool) -> None:
        """Go on with what the coordinator before has started."""
        of, known = self._engine.processes.of, before._supervisor
        # The coordinator before may have let go of one that is a member here: of that, this one has not heard.
        members = {one.name for one in self._lead.lead.coordinator.state.roster.members()}
        made = members | (known.workers.keys() & self._run.workers.nodes.keys())
        workers = {name: of(name) for name in sorted(made)}
        name = known.evaluator
        evaluator = (name, of(name)) if name in self._run.evaluators else None
        self._supervisor.adopt(workers, evaluator, self._engine.agenda.now)
        for name in workers:
            self._supervisor.hears(name, self._engine.agenda.now)
        if evaluator is not None:
            lead, introduce = self._lead, self._engine.network.introduce
            delay_s = self._authority.trip(lead.role, Role.member(name))
            self._engine.later(name, delay_s, introduce, name, lead.lead.term)

    # --- what the coordinator's node asks ---

    def dismiss(self, name: str, reason: str) -> None:
        """Let go of a gradient worker, and look for another in its place."""
        self._execute(self._supervisor.dismiss(name))

    def order(self, order: Evaluate | SaveModel) -> None:
        """Give the evaluator an order, as soon as there is one."""
        if self._has_evaluator:
            self._tell_evaluator(order)
        else:
            self._orders.append(order)

    def redirect(self, effect: Redirect) -> None:
        """Let the evaluator ask the shard's new server."""
        if self._run.shards.serve(effect.shard, effect.epoch, effect.copy) and self._has_evaluator:
            self._tell_evaluator(Moved(self._lead.lead.term, effect.shard, effect.epoch, effect.copy))

    @property
    def _has_evaluator(self) -> bool:
        return self.evaluator in self._run.evaluators

    def _tell_evaluator(self, message: Any) -> None:
        name = self.evaluator
        delay_s = self._authority.trip(self._lead.role, Role.member(name))
        self._engine.later(name, delay_s, self._run.evaluators.feed, name, message)

    @property
    def lead(self) -> str:
        """The name of the coordinator whose pool it is."""
        return self._lead.name

    @property
    def addresses(self) -> Collection[str]:
        """Where there are gradient workers, those that are only being made included."""
        return self._supervisor.addresses

    @property
    def copies(self) -> Collection[str]:
        """Where there are copies of shards."""
        return self._around.copies

    @property
    def names(self) -> Collection[str]:
        """The gradient workers that are watched over."""
        return self._supervisor.workers.keys()

    @property
    def evaluator(self) -> str:
        """The evaluator's name, empty while there is none."""
        return self._supervisor.evaluator

    # --- what it hears ---

    def _hear(self, name: str) -> None:
        """Take a sign of life: of a worker or the evaluator, or of a process in which one was lost."""
        if not self._supervisor.hears(name, self._engine.agenda.now) and self.unavailable.heard(name):
            self._on_processes_changed()

    def beside(self, feed: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return what takes all that `feed` is to be told, and learns from it who leaves by itself, and who joins."""

        def take(event: Any) -> None:
            now, workers = self._engine.agenda.now, self._supervisor.workers
            if isinstance(event, Join) and event.member not in workers.keys() | self._let_go:
                # One that a coordinator before has started since, or let go: where processes are real, it is refused.
                if event.member in self._refused or not self._supervisor.has_room:
                    self._refused.add(event.member)
                    self._engine.processes.do(event.member, self._run.workers.leave, event.member, SLOTS_TAKEN)
                    return
                self._supervisor.adopt({event.member: self._engine.processes.of(event.member)}, None, now)
                self._supervisor.hears(event.member, now)
            elif isinstance(event, Leave):
                address = workers.get(event.member, "")
                self._execute(self._supervisor.on_leave(event.member, event.reason))
                if address:
                    self._cluster.on_placing.on_left(self, address, event.reason)
            feed(event)

        return take

    def on_lost(self, name: str, reason: str) -> None:
        """Replace a gradient worker that is lost."""
        self._authority.do(lambda: self._execute(self._supervisor.on_lost(name, reason)))

    def on_silent(self, name: str) -> None:
        """Do nothing: leases are looked at here."""

    # --- what is decided ---

    def _execute(self, decisions: Iterable[Decision]) -> None:
        for one in decisions:
            self._execute_by_kind[type(one)](one)

    def _wants(self, name: str) -> bool:
        """Whether an actor of that name is still to be made: without its coordinator, nobody holds it."""
        return name not in self._let_go and self._authority.holds

    def _release(self, one: LetGo) -> None:
        self._let_go.add(one.name)
        if one.name.startswith(EVALUATOR):
            self._orders = []  # the coordinator gives those again that it still wants carried out

    def _start_worker(self, one: StartWorker) -> None:
        def start() -> bool:
            if self._cluster.refuses(one.name, one.address):
                return False
            if self._wants(one.name):
                self._engine.processes.share(one.name, one.address)
                self._run.workers.begin(one.name, self._lead.lead.term)
                self._beat(one.name, lambda: self._run.workers.nodes[one.name].closed)
            return True

        def on_answer(*, done: bool) -> None:
            if not done:
                self._let_go.add(one.name)
                self._cluster.on_placing.on_not_started(self, one.address)
                self._execute(self._supervisor.on_not_started(one.name, ClusterError(f"{one.address} made no worker")))

        self._cluster.on_placing.on_starting(self, one.address)
        self._authority.ask(one.address, start, on_answer)

    def _start_evaluator(self, one: StartEvaluator) -> None:
        def start() -> bool:
            if self._wants(one.name):
                self._engine.processes.share(one.name, one.address)
                self._engine.network.introduce(one.name, self._lead.lead.term)
                self._run.evaluators.make(one.name)
                self._beat(one.name, lambda: self._run.leads[-1].workers.evaluator != one.name)
            return True

        def on_answer(*, done: bool) -> None:
            if not done:
                self._execute(self._supervisor.on_evaluator_lost(one.name, f"{one.address} made no evaluator"))
            elif self.evaluator == one.name:
                orders, self._orders = self._orders, []
                for order in orders:
                    self.order(order)

        self._authority.ask(one.address, start, on_answer)

    def _examine(self, one: Examine) -> None:
        address = one.process.address

        def on_answer(*, done: bool) -> None:
            self._cluster.on_placing.on_answered(self, address, fits=done)
            self._execute(self._supervisor.on_examined(address, fits=done))

        self._cluster.on_placing.on_asked(self, address)
        self._authority.ask(address, lambda: True, on_answer)

    def _ask_of_death(self, one: AskOfDeath) -> None:
        answer = partial(self._on_death, one)
        self._engine.agenda.enter(self._run.supervision.look_s, self._authority.do, answer)

    def _on_death(self, one: AskOfDeath) -> None:
        by_itself = one.address in self._engine.processes.dead and not self._run.retirements.began(one.address)
        error = None
        if by_itself and self._cluster.has_nanny(one.address):
            error = ProcessDied(f"{one.address} was killed", kind="SIGKILL", peer=one.address, pid=None, code=-9)
        self._execute(self._supervisor.on_death(one, error, self._engine.agenda.now))

    def _await_waking(self, one: AwaitWaking) -> None:
        def answer() -> None:
            self.on_beat(one.name, self._authority.trip(Role.member(one.name), self._lead.role))

        self._engine.processes.do(one.name, answer)

    def _on_processes_changed(self) -> None:
        if self._run.leads[-1] is self._lead:
            self._run.on_processes_changed()
        self._execute(self._supervisor.fill())

    # --- watching ---

    def watch(self) -> None:
        """Look at the cluster and at leases, now and every `Supervision.look_s`."""
        if not self._authority.holds:
            return
        there = [one for one in self._cluster.there if one.address not in self._engine.processes.dead]
        unheard_s, _ = self._engine.world.claim_s(self._engine.processes.of(self._lead.name), self._engine.agenda.now)
        if unheard_s <= 0.0:  # else the scheduler cannot be asked who is there
            self.sighted = [one.address for one in there]
            self._execute(self._supervisor.on_sight(there, {one.address for one in there}, self._engine.agenda.now))
        self._execute(self._supervisor.on_silence(self._engine.agenda.now))
        self._engine.later(self._lead.name, self._run.supervision.look_s, self.watch)

    def _beat(self, name: str, has_ended: Callable[[], bool]) -> None:
        """Let a worker or the evaluator give signs of life, the last one when it has ended."""
        ended = has_ended()
        for lead in self._run.leads:
            if lead.role == self._engine.network.obeyed(name):
                lead.workers.on_beat(name, self._authority.trip(Role.member(name), lead.role))
        if not ended and self._run.finish is None:
            self._engine.later(name, self._run.supervision.worker_lease_s / 8, self._beat, name, has_ended)

    def on_beat(self, name: str, delay_s: float) -> None:
        """Take a sign of life that arrives later on."""
        self._engine.agenda.enter(delay_s, self._authority.do, lambda: self._hear(name))
