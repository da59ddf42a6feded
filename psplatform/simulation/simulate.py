"""Simulating a job: the twin of the run that the same job would be on a cluster."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import Any, Final

from psplatform.core.policy import Policy, Scope
from psplatform.core.transfers import Fabric, require_plannable
from psplatform.errors import ConfigurationError
from psplatform.jobs.checkpoints import Checkpoints
from psplatform.jobs.job import Job, require_job, require_slow_shards
from psplatform.jobs.planning import description_of, plan_of
from psplatform.jobs.replication import NoReplication
from psplatform.memory.arithmetic import Arithmetic
from psplatform.memory.training import TensorArithmetic
from psplatform.network.learning import learned_rates
from psplatform.network.planner import FabricPlanner
from psplatform.policies import readiness
from psplatform.policies.registry import name_of, parameter_values, policy_of
from psplatform.replication.accounts import account_factory
from psplatform.simulation.conditions import Conditions, SimulatedNetwork, parse_network
from psplatform.simulation.driver import Simulated, run_world
from psplatform.simulation.event_trace import EventTrace
from psplatform.simulation.monitoring import Reports
from psplatform.simulation.network import Network
from psplatform.simulation.run_times import RunTimes, seconds_of
from psplatform.simulation.synthetic import SyntheticGradients
from psplatform.simulation.threads import one_thread
from psplatform.simulation.world import SimulatedWorld
from psplatform.tasks.foreign import user_code
from psplatform.tasks.layouts import require_trainable
from psplatform.tensors.compression import UNPACKED, Packing, packing_of
from psplatform.tensors.layout import Layout
from psplatform.tensors.optimizers import make_rule
from psplatform.tensors.vectors import size_bytes, sizes
from psplatform.untrusted.files import read_named
from psplatform.workloads.files import read_file
from psplatform.workloads.subject import task_of, with_defaults

WORKERS: Final = 8
"""Workers of a simulated cluster where the job does not say."""


def simulate(job: Job, conditions: Conditions | None = None, *, keep_records: bool = False) -> Simulated:
    """Run `job` to its end in a simulated cluster of `conditions`.

    Raises
    ------
    ConfigurationError
        If the job or the conditions make no sense; nothing was run.
    PsplatformError
        What a real run would have failed with: an error in the user's code or the policy, or divergence.
    """
    return prepare(job, conditions).run(keep_records=keep_records)


def prepare(job: Job, conditions: Conditions | None = None) -> Prepared:
    """Return the job's simulation, all that can be known to be wrong with it ruled out but for what is trained.

    Raises
    ------
    ConfigurationError
        If the job, its policy or the conditions make no sense.
    """
    conditions = Conditions() if conditions is None else conditions
    require_job(job)
    if not isinstance(conditions, Conditions):
        text = f"conditions must be a ps.Conditions, not {conditions!r}; write ps.Conditions(compute=...)"
        raise ConfigurationError(text, field="conditions")
    require_slow_shards(job)
    job = with_defaults(job)
    workers = job.workers or WORKERS
    if conditions.timing_only and job.stop.needs_evaluation:
        raise ConfigurationError(
            "a simulation of times only has no loss to reach a target with; stop it by updates, epochs or seconds",
            field="stop",
        )
    network = SimulatedNetwork() if conditions.network is None else parse_network(conditions.network)
    run_times = conditions.run_times(seed=job.seed, workers=workers, stragglers=job.stragglers, read=_read_text)
    policy = copy.deepcopy(policy_of(job))
    if job.network.fabric is not None:
        require_plannable(policy.traits, sums=job.network.fabric.aggregators > 0)
        job.network.fabric.require_workers(workers)
    readiness.load(policy, read_file)
    readiness.foresee(policy, lambda slot, sequence: seconds_of(run_times, slot, sequence))
    readiness.check(policy, workers)
    return Prepared(job, workers, policy, run_times, network, timing_only=conditions.timing_only)


@dataclass(frozen=True)
class Prepared:
    """A simulation that can begin; once, because its policy learns."""

    job: Job
    workers: int
    policy: Policy
    run_times: RunTimes
    network: SimulatedNetwork
    timing_only: bool

    def run(self, *, keep_records: bool = False) -> Simulated:
        """Run it to its end; see `simulate`."""
        job, policy = self.job, self.policy
        with one_thread():
            subject = _open(job, policy, timing_only=self.timing_only)
            plan = plan_of(job, "simulated", workers=self.workers, samples=subject.samples, evaluates=subject.evaluates)
            # They guard against processes that fall silent; here nobody does, and what is slow may be meant so.
            plan = replace(plan, absence_limit_s=math.inf, finish_limit_s=math.inf, cuts=None)
            if not job.replication_asked:
                # Nothing fails here, so replicas that nobody asked about would only cost time.
                plan = replace(plan, protection=None)
            event_trace = EventTrace(keep=keep_records)
            event_trace.append(self._description(subject))
            world, make_account = self._world(subject.layout), account_factory(job.replication, job.shards)
            return run_world(
                plan,
                policy,
                subject.arithmetic,
                world,
                event_trace,
                seed=job.seed,
                make_account=make_account,
                fabric=self._fabric(world),
            )

    def _fabric(self, world: SimulatedWorld) -> Fabric | None:
        """Return what plans transfers where the job asks for it.

        It knows as little of rates as that of a real run, or what monitors report.
        """
        asked, lag_s, network = self.job.network.fabric, self.network.lag_s, world.network
        if asked is None:
            return None
        hosts = list(dict.fromkeys(world.host_of(f"w{number}") for number in range(self.workers)))[: asked.aggregators]
        told = Reports(network, lag_s) if lag_s is not None and network is not None else None
        known = told or learned_rates(asked.changes_s)
        planner = FabricPlanner(world.gradients_to(), hosts, known, asked.tick_s, relays=hosts)
        return Fabric(planner, world.host_of)

    def _world(self, layout: Layout) -> SimulatedWorld:
        job, network = self.job, self.network
        contents = _sizes(layout)
        scale = 1.0 if network.model_bytes is None else network.model_bytes / sum(contents)
        packing = packing_of(job.compression)
        shares = [_share(packing, sizes(layout, shard)) for shard in range(layout.shards)]
        return SimulatedWorld(
            self.run_times,
            job.seed,
            Network(network.links, job.seed) if network.links is not None else None,
            tuple(scale * size for size in contents),
            job.slow_servers,
            network.update_s,
            state_vectors=1 + len(make_rule(job.optimizer).slot_names),
            gradient_bytes=tuple(scale * size * share for size, share in zip(contents, shares, strict=True)),
        )

    def _description(self, subject: _Subject) -> dict[str, Any]:
        described = description_of(
            self.job,
            "simulated",
            subject.workload,
            self.workers,
            policy=name_of(self.policy),
            policy_parameters=parameter_values(self.policy),
            staleness_bound=self.policy.staleness_bound(self.workers),
            samples=subject.samples,
            parameters=subject.layout.parameters,
            gradient_bytes=self.network.model_bytes or sum(_sizes(subject.layout)),
            store=None,
            replication=(self.job.replication if self.job.replication_asked else NoReplication()).to_plain(),
            checkpoints=Checkpoints.never().to_plain(),
        )
        return {"kind": "run", "at": 0.0, **described}


@dataclass(frozen=True)
class _Subject:
    arithmetic: Arithmetic
    layout: Layout
    samples: int
    evaluates: bool
    workload: str


def _open(job: Job, policy: Policy, *, timing_only: bool) -> _Subject:
    task, workload = task_of(job)
    with user_code("opening the task"):
        tensors = TensorArithmetic(
            task,
            job.optimizer,
            shards=job.shards,
            batch_size=job.batch_size,
            block_elements=job.block_elements,
            micro_batches=job.micro_batches,
            seed=job.seed,
            per_block=policy.traits.scope is Scope.BLOCK,
            measures_steps=job.replication_asked and job.replication.bound is not None,
            compression=job.compression,
        )
    require_trainable(tensors.layout, tensors.samples, job.batch_size)
    if timing_only:
        figures = SyntheticGradients(job.shards, job.batch_size)
        return _Subject(figures, tensors.layout, tensors.samples, evaluates=False, workload=workload)
    return _Subject(tensors, tensors.layout, tensors.samples, tensors.evaluates, workload)


def _sizes(layout: Layout) -> list[float]:
    """Return what each shard's content takes in a transfer, in bytes."""
    return [float(size_bytes(layout, shard)) for shard in range(layout.shards)]


def _share(packing: Packing, wanted: dict[str, tuple[str, int]]) -> float:
    """Return which part of their bytes vectors are sent in."""
    return packing.size_bytes(wanted) / max(1, UNPACKED.size_bytes(wanted))


def _read_text(path: str) -> str:
    return read_named(path).decode()
