"""One trial, to its end or to the first violation."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from psplatform.core.coordination.epochs import MOST_TRIES
from psplatform.core.coordination.invariants import check_tally
from psplatform.core.plan import Cuts, Plan, Protection, Stop
from psplatform.core.policy import Policy, Scope
from psplatform.core.protocol.effects import Finish
from psplatform.core.transfers import Fabric
from psplatform.errors import ClusterError, InvariantViolation, ProcessDied, PsplatformError
from psplatform.jobs.job import Job
from psplatform.jobs.optimizers import Optimizer
from psplatform.jobs.schedules import Constant
from psplatform.memory import MemoryRun
from psplatform.memory.losses import Supervision
from psplatform.memory.machines import Machines
from psplatform.memory.training import TensorArithmetic
from psplatform.network.learning import learned_rates
from psplatform.network.planner import FabricPlanner
from psplatform.policies.registry import make_policy
from psplatform.replication.accounts import Account
from psplatform.simulation.faults.checks.coverage import Coverage
from psplatform.simulation.faults.checks.distance import Distances
from psplatform.simulation.faults.checks.observation import Observation
from psplatform.simulation.faults.checks.participation import Case
from psplatform.simulation.faults.checks.promises import (
    check_batches,
    check_handed_over,
    check_names,
    check_order,
    check_promises,
    check_same_on_all_shards,
    check_told_losses,
)
from psplatform.simulation.faults.checks.reference_model import ReferenceModel, violated
from psplatform.simulation.faults.checks.replacement import Replacement
from psplatform.simulation.faults.checks.serial import SerialLoop, check_serial
from psplatform.simulation.faults.checks.staleness import Staleness
from psplatform.simulation.faults.injection import Injection
from psplatform.simulation.faults.random_planner import RandomPlanner
from psplatform.simulation.faults.schedules.hosts import Nannies, machines_of
from psplatform.simulation.faults.schedules.schedule import Fault
from psplatform.simulation.faults.schedules.trial import LIVENESS, Copying, Trial
from psplatform.simulation.faults.storage import Storage
from psplatform.simulation.faults.world import TrialWorld
from psplatform.tasks.seam import Task
from psplatform.tasks.supervised import SupervisedTask
from psplatform.workloads.networks import of_pixels
from psplatform.workloads.subject import task_of

_ENDS_AT: Final = 3
"""Updates between cuts with which the first and the last version are cut as well: runs with and without are tried."""

_EVENTS: Final = 60_000
"""More than any trial needs: one that is not over then turns in circles."""

_PATIENCE_S: Final = 30.0
"""Seconds after the last fault and the last visible commit after which none is to be expected: leases, a takeover, a
promotion and the absence of all workers take less."""

_REINFORCEMENTS: Final = 6

PROBED: Final = 0.02
"""Share of the messages after which old ones are tried."""

_AFTERWARDS_S: Final = 15.0
"""Seconds after the end of a run in which everything that was under way has arrived, and every timer was due."""

_BEAT_S: Final = 0.4
_LONGEST_LEASE_S: Final = 6.0
_BLOCK_ELEMENTS: Final = 16
_HIDDEN: Final = 3
"""Units of the network that reads digits here: every state is compared bit by bit, all the time."""

_GRADIENT_BYTES: Final = 1e6
_WORKER_HOSTS: Final = 4
_AT_RANDOM: Final = 0.7
"""Share of the trials with aggregators in which sums are made at random: by what is believed, there would be few."""

_STEADY: Final = 0.5
"""Share of the other planners that expect rates to stay as they are."""

_BELIEVED_S: Final = (1e-4, 0.05, 0.5, 2.0)
"""Seconds that a shard's part of a gradient is believed to take, where transfers are planned."""

_TASKS: dict[tuple[str, str], Task | SupervisedTask] = {}


@dataclass
class Verdict:
    """What came of a trial.

    Attributes
    ----------
    invariant, found
        The first that was violated, and how; empty where none was.
    outcome
        How the run ended: as its last effect says, or ``lost`` where nobody was left to end it.
    met
        Faults by kind and phase.
    counts
        How often what happened that faults provoke.
    """

    trial: Trial
    invariant: str = ""
    found: str = ""
    outcome: str = ""
    detail: str = ""
    events: int = 0
    seconds: float = 0.0
    met: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)

    def summary(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "seed": self.trial.seed,
            "invariant": self.invariant or None,
            "found": self.found,
            "outcome": self.outcome,
            "detail": self.detail,
            "events": self.events,
            "seconds": self.seconds,
            "schedule": self.trial.to_plain(),
        }


class Execution:
    """A trial that can begin.

    Attributes
    ----------
    run, reference
        The run, and what is true of it.
    """

    def __init__(self, trial: Trial, policy: Policy | None = None) -> None:
        self.trial = trial
        self.coverage = Coverage()
        self.storage = Storage()
        self.policy = policy or make_policy(trial.policy, trial.parameters)
        self._world = TrialWorld(trial.seed, trial.noise, sends=trial.fabric)
        self.reference = _reference(trial, self.policy, self.storage)
        self._machines = machines_of(trial)
        self.run = _run(trial, self.policy, self.reference, self._world, self._machines)
        self._nannies = Nannies(self.run, self._machines, trial.nannies) if self._machines is not None else None
        self._replacement = (
            Replacement(self.run, self._machines, trial.most_workers) if self._machines is not None else None
        )
        self._world.process_of = self.run.process_of
        self._world.server_of = lambda shard: self.run.coordinator.state.shards[shard].server
        self.observation = Observation(self.run, self.reference, self._world.was_heard)
        self._staleness = Staleness(self.run, trial.seed, PROBED)
        self.run.network.on_arrival = self._staleness.hand_over
        self._distances = Distances(self.run, self.reference, trial.copying or Copying())
        self._shown: Any = None
        self._adopted: list[int] = []
        self._shown_at = 0.0
        self._reinforced = False
        self._injection = Injection(self.run, self._world, self.storage, trial.faults, self._note, self._machines)

    def _note(self, fault: Fault, process: str) -> None:
        self.coverage.note(self.run, fault)

    def to_its_end(self) -> Verdict:
        """Run the trial, and judge it."""
        verdict = Verdict(self.trial, met=self.coverage.met, counts=self.observation.counts)
        try:
            verdict.outcome, verdict.detail = self._run_to_its_end()
            self._check_end()
            self._check_after_the_end()
        except InvariantViolation as violation:
            name, named, found = str(violation.args[0]).partition(" is violated: ")
            verdict.invariant, verdict.found = (name, found) if named else ("error", name)
        except PsplatformError as error:
            verdict.invariant, verdict.found = "error", f"{type(error).__name__}: {error}"
        except Exception as error:  # noqa: BLE001  a role that raises is what is looked for
            verdict.invariant, verdict.found = "error", f"{type(error).__name__}: {error}"
        verdict.events, verdict.seconds = self.run.agenda.done, self.run.agenda.now
        self._count(verdict.counts)
        return verdict

    # --- on the way ---

    def _run_to_its_end(self) -> tuple[str, str]:
        run, injection = self.run, self._injection
        for number in range(_EVENTS):
            if run.finish is not None:
                return self._finished(run.finish)
            if self._nobody_leads():
                return "lost", "the coordinator is lost, and no standby takes over"
            injection.before_event(number)
            if self._nannies is not None:
                self._nannies.look()  # at once: nothing is placed in a process that is known to have ended
            if (self._stands_still() or not run.agenda.do_next()) and not self._reinforce():
                break
            self._check_now()
        raise violated("liveness", f"the run does not end; at {run.agenda.now:.2f} s {self._who_waits()}")

    def _stands_still(self) -> bool:
        """Whether nothing has become visible for so long that nothing will."""
        run, coordinator = self.run, self.run.coordinator
        shown = sum(one.visible for one in coordinator.state.shards), len(run.leads), coordinator.ending.phase
        if shown != self._shown:
            self._shown, self._shown_at = shown, run.agenda.now
        return run.agenda.now - max(self._shown_at, self._injection.quiet_at) > _PATIENCE_S and not self._injection.left

    def _reinforce(self) -> bool:
        """Let processes come from which replicas can be made, once, where servers wait for one as they were told to."""
        waits = any(one.replaced for one in self.run.coordinator.state.shards)
        if not waits or self._reinforced or self.trial.mode == LIVENESS:
            return False
        self._reinforced = True
        self._shown_at = self.run.agenda.now
        self.run.reinforce(_REINFORCEMENTS)
        return True

    def _check_now(self) -> None:
        self._note_takeover()
        if self.reference.dirty:
            self._distances.check(self.reference.dirty)
            self.reference.dirty.clear()
        check_tally(self.run.coordinator.state)
        if self._replacement is not None:
            self._replacement.check(self._injection.quiet_at)

    def _note_takeover(self) -> None:
        adopted = self.run.coordinator.takeover.adopted
        if adopted and adopted is not self._adopted:
            self._adopted = adopted
            self.reference.settled.append(adopted)

    def _nobody_leads(self) -> bool:
        run = self.run
        if not run.processes.is_dead(run.leads[-1].name) and not run.leads[-1].lead.replaced:
            return False
        return run.standby is None or run.processes.is_dead(run.standby.name)

    def _finished(self, finish: Finish) -> tuple[str, str]:
        if finish.outcome == "failed":
            named = isinstance(finish.failure, ClusterError | ProcessDied)
            if not named or self.trial.mode == LIVENESS:
                raise violated("liveness", f"the run failed although enough was alive: {finish.detail}")
        elif finish.outcome != "updates":
            raise violated("liveness", f"the run ended by {finish.outcome}: {finish.detail}")
        return finish.outcome, finish.detail

    def _who_waits(self) -> str:
        run = self.run
        waits = run.workers.waiting
        state = run.coordinator.state
        commit_logs = [(commit_log.position, len(commit_log.ledger)) for commit_log in state.commit_logs]
        servers = [(one.server, one.epoch, one.promoting, one.in_sync, one.joining) for one in state.shards]
        return (
            f"these wait: {waits}; phase {run.coordinator.ending.phase.value}, commit logs {commit_logs}, "
            f"shards {servers}, "
            f"takeover awaits {sorted(run.coordinator.takeover.awaited_shards)}"
        )

    # --- at the end ---

    def _check_end(self) -> None:
        if self.trial.mode == LIVENESS and self.run.finish is None:
            raise violated("liveness", "nobody is left to lead the run although enough was alive")
        check_order(self.run.records)
        check_names(self.run.records)
        check_told_losses(self.run.records)
        check_batches(self.run, self.reference)
        check_same_on_all_shards(self.run, self.reference)
        self.observation.counts["serial loops"] += self._equals_serial_loop()
        check_handed_over(self.run.records, self.observation.handed_over, self.reference.histories.values())
        check_promises(self.trial.policy, Case(self.policy, self.run.plan, self.run.records))

    def _check_after_the_end(self) -> None:
        """Let what is still under way arrive: the coordinator that has ended the run decides nothing any more."""
        run = self.run
        if run.finish is None:
            return
        records, positions = len(run.records), [one.position for one in run.coordinator.state.commit_logs]
        until = run.agenda.now + _AFTERWARDS_S
        leads = len(run.leads)
        for _ in range(_EVENTS):
            if run.agenda.now >= until or len(run.leads) > leads or not run.agenda.do_next():
                break
        if len(run.leads) > leads:
            return  # it was lost since, and another may not know that the run is over
        decided = [one.position for one in run.coordinator.state.commit_logs]
        if decided != positions or len(run.records) != records:
            raise violated("S10", f"the run is over, and its coordinator logs {run.records[records:]}")

    def _equals_serial_loop(self) -> bool:
        if not self.policy.traits.exact:
            return False
        arithmetic = TensorArithmetic(**_tensors(self.trial), per_block=True)
        return check_serial(self.run, self.reference, SerialLoop(arithmetic, self.trial.clip))

    def _count(self, counts: Counter[str]) -> None:
        run = self.run
        counts["takeovers"] += len(run.leads) - 1
        for one in run.records:
            if one["kind"] == "lost positions":
                counts["lost positions"] += one["last"] - one["first"] + 1
            elif one["kind"] == "checkpoint":
                counts[f"checkpoints {one['event']}"] += 1
            elif one["kind"] == "commit":
                counts["commits"] += 1
        counts["faults"] += self._injection.done
        for kind, number in self.reference.transfers.items():
            counts[f"transfers: {kind}"] += number


def run_trial(trial: Trial, policy: Policy | None = None) -> Verdict:
    """Run a trial to its end or to its first violation, under `policy` instead of the one that it names."""
    try:
        return Execution(trial, policy).to_its_end()
    except InvariantViolation as violation:
        return Verdict(trial, "error", str(violation))


def _run(
    trial: Trial, policy: Policy, reference: ReferenceModel, world: TrialWorld, machines: Machines | None
) -> MemoryRun:
    supervision = Supervision(
        standby=trial.standby,
        spares=trial.spares,
        notice_s=0.05,
        beat_s=_BEAT_S if trial.leases else 0.0,
        shortest_lease_s=1.0,
        longest_lease_s=_LONGEST_LEASE_S,
        worker_lease_s=2.0,
    )
    plan = _plan(trial, reference)
    run = MemoryRun(
        plan,
        policy,
        arithmetic=reference,
        world=world,
        seed=trial.seed,
        make_account=_account(trial.copying, trial.shards) if trial.copying is not None else None,
        supervision=supervision,
        seating=machines,
        fabric=_fabric(trial, policy) if trial.fabric else None,
    )
    run.processes.rates.update(trial.rates)
    if trial.shared and machines is None:
        run.processes.share(run.leads[0].name, "server-0")
    if machines is not None:
        for number, at in enumerate(trial.late):
            run.agenda.enter_at(at, machines.start, f"host-{number % trial.hosts}")
        return run
    for number in range(trial.workers):
        run.join(f"w{number}")
    for number, at in enumerate(trial.late):
        run.join(f"late{number}", at)
    return run


def _fabric(trial: Trial, policy: Policy) -> Fabric:
    """Return what plans transfers, at rates that are wrong: what they really take is drawn (`TrialWorld`)."""
    chance = random.Random(f"rates {trial.seed}")
    believed = _GRADIENT_BYTES / chance.choice(_BELIEVED_S)
    hosts = chance.choice([1, trial.shards])
    servers = [(f"host {shard % hosts}", _GRADIENT_BYTES) for shard in range(trial.shards)]
    aggregators = [f"workers {number}" for number in range(chance.choice([0, 1, 2]))] if policy.traits.sums else []
    if aggregators and chance.random() < _AT_RANDOM:
        return Fabric(RandomPlanner(trial.seed, aggregators, tick_s=0.1), host_of=_host_of)
    estimates = learned_rates(None if chance.random() < _STEADY else 5.0, believed)
    return Fabric(FabricPlanner(servers, aggregators, estimates, tick_s=0.1), host_of=_host_of)


def _host_of(worker: str) -> str:
    return f"workers {zlib.crc32(worker.encode()) % _WORKER_HOSTS}"


def _plan(trial: Trial, reference: ReferenceModel) -> Plan:
    copying = trial.copying
    protection = None
    if copying is not None:
        protection = Protection(
            copying.replicas,
            copying.bound,
            copying.unit,
            copying.bound,
            copying.pause,
            from_workers=copying.source == "workers",
        )
    return Plan(
        run="trial",
        workers=trial.workers,
        max_workers=trial.most_workers,
        shards=trial.shards,
        samples=reference.samples,
        batch_size=trial.batch_size,
        stop=Stop(updates=trial.updates),
        schedule=Constant(),
        deal_epochs=trial.epochs,
        tries=MOST_TRIES,
        clip_norm=trial.clip,
        absence_limit_s=20.0,
        finish_limit_s=300.0,
        protection=protection,
        cuts=Cuts(trial.cut_every, limit_s=8.0, ends=trial.cut_every == _ENDS_AT) if trial.cut_every else None,
    )


def _account(copying: Copying, shards: int) -> Any:
    if copying.unit == "norm":
        return lambda: Account(most_distance=copying.bound / shards**0.5)
    most = 0.0 if not copying.bound else float("inf")
    return lambda: Account(most_distance=most, most_updates=copying.bound)


def _reference(trial: Trial, policy: Policy, storage: Storage) -> ReferenceModel:
    return ReferenceModel(
        **_tensors(trial),
        shards=trial.shards,
        per_block=policy.traits.scope is Scope.BLOCK,
        measures_steps=True,
        exact=policy.traits.exact,
        storage=storage,
    )


def _tensors(trial: Trial) -> dict[str, Any]:
    return {
        "task": _task(trial),
        "optimizer": Optimizer.from_plain(trial.optimizer),
        "batch_size": trial.batch_size,
        "block_elements": _BLOCK_ELEMENTS,
        "seed": trial.seed % 16,
    }


def _task(trial: Trial) -> Task | SupervisedTask:
    key = trial.workload, repr(sorted(trial.options.items()))
    if key not in _TASKS:
        task, _ = task_of(Job(workload=trial.workload, options=dict(trial.options)))
        if isinstance(task, SupervisedTask):
            task = replace(task, test=None)
            if trial.workload == "digits":
                task = replace(task, model=partial(of_pixels, side=8, maximum=16, hidden=_HIDDEN))
        _TASKS[key] = task
    return _TASKS[key]
