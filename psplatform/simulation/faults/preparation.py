"""What a trial is run with: its plan, its run in memory, its arithmetic and its planner of transfers."""

from __future__ import annotations

import random
import zlib
from dataclasses import replace
from functools import partial
from typing import Any, Final

from psplatform.core.coordination.order.epochs import MOST_TRIES
from psplatform.core.plan import Cuts, Plan, Protection, Stop
from psplatform.core.policy import Policy, Scope
from psplatform.core.transfers import Fabric
from psplatform.jobs.job import Job
from psplatform.jobs.optimizers import Optimizer
from psplatform.jobs.schedules import Constant
from psplatform.memory import MemoryRun
from psplatform.memory.processes.losses import Supervision
from psplatform.memory.processes.machines import Machines
from psplatform.network.learning import learned_rates
from psplatform.network.planner import FabricPlanner
from psplatform.replication.accounts import Account
from psplatform.simulation.faults.checks.reference_model import ReferenceModel
from psplatform.simulation.faults.random_planner import RandomPlanner
from psplatform.simulation.faults.schedules.trial import Copying, Trial
from psplatform.simulation.faults.storage import Storage
from psplatform.simulation.faults.world import TrialWorld
from psplatform.tasks.seam import Task
from psplatform.tasks.supervised import SupervisedTask
from psplatform.workloads.networks import of_pixels
from psplatform.workloads.subject import task_of

_ENDS_AT: Final = 3
"""Updates between cuts with which the first and the last version are cut as well: runs with and without are tried."""

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


def run_of(
    trial: Trial, policy: Policy, reference: ReferenceModel, world: TrialWorld, machines: Machines | None
) -> MemoryRun:
    """Return the run of a trial, before its first event."""
    supervision = Supervision(
        standby=trial.standby,
        spares=trial.spares,
        notice_s=0.05,
        beat_s=_BEAT_S if trial.leases else 0.0,
        shortest_lease_s=1.0,
        longest_lease_s=_LONGEST_LEASE_S,
        worker_lease_s=2.0,
        closes=trial.closes,
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


def reference_of(trial: Trial, policy: Policy, storage: Storage) -> ReferenceModel:
    """Return the arithmetic of a trial, which checks what it is asked for."""
    return ReferenceModel(
        **tensors_of(trial),
        shards=trial.shards,
        per_block=policy.traits.scope is Scope.BLOCK,
        measures_steps=True,
        exact=policy.traits.exact,
        storage=storage,
    )


def tensors_of(trial: Trial) -> dict[str, Any]:
    """Return what makes the arithmetic of a trial, but for its shards."""
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
