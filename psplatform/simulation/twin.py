"""Simulating a job: the twin of the run that the same job would be on a cluster."""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from psplatform.core.plan import Plan
from psplatform.core.policy import Policy, Scope
from psplatform.errors import ClusterError, ConfigurationError
from psplatform.jobs.job import Job
from psplatform.jobs.planning import description_of, plan_of
from psplatform.memory import MemoryRun
from psplatform.memory.arithmetic import Arithmetic
from psplatform.memory.training import TensorArithmetic
from psplatform.policies.registry import name_of, parameter_values, policy_of
from psplatform.simulation.chronicle import Chronicle
from psplatform.simulation.conditions import Conditions, parse_network
from psplatform.simulation.network import Network
from psplatform.simulation.run_times import RunTimes
from psplatform.simulation.synthetic import SyntheticGradients
from psplatform.simulation.world import SimulatedWorld
from psplatform.tasks.foreign import user_code
from psplatform.tasks.layouts import require_trainable
from psplatform.telemetry.read_model import RunView
from psplatform.tensors.layout import Layout
from psplatform.tensors.vectors import size_bytes
from psplatform.workloads.subject import task_of, with_defaults

WORKERS: Final = 8
"""Workers of a simulated cluster where the job does not say."""

_EVENTS: Final = 2_000_000_000
"""More than any machine handles in a day: a run that goes on for ever must end some day."""


@dataclass(frozen=True)
class Simulated:
    """What came of a simulation.

    Attributes
    ----------
    view
        The run's picture: losses, evaluations, delays, drops, waiting.
    virtual_seconds
        From the first worker's arrival to the end.
    reached_target
        Whether the run ended because its target was reached; ``None`` where it had none.
    events
        Events handled.
    trace_sha256
        Digest of the event log.
    records
        The event log, where it was asked for.
    model
        The tensors that were saved, by name; empty in a simulation of times only.
    """

    view: RunView
    virtual_seconds: float
    reached_target: bool | None
    events: int
    trace_sha256: str
    records: list[dict[str, Any]]
    model: dict[str, torch.Tensor]

    def summary(self) -> dict[str, Any]:
        """Return the object that ``psplatform simulate --json`` ends with: plain values."""
        return {
            **self.view.to_summary(),
            "virtual_seconds": self.virtual_seconds,
            "reached_target": self.reached_target,
            "events": self.events,
            "trace_sha256": self.trace_sha256,
        }


def simulate(job: Job, conditions: Conditions | None = None, *, keep_records: bool = False) -> Simulated:
    """Run `job` to its end in a simulated cluster of `conditions`.

    Raises
    ------
    ConfigurationError
        If the job or the conditions make no sense; nothing was run.
    PsplatformError
        What a real run would have failed with: an error in the user's code or the policy, or divergence.
    """
    conditions = conditions or Conditions()
    job = with_defaults(job)
    workers = job.workers or WORKERS
    policy = copy.deepcopy(policy_of(job))
    policy.load(_read_bytes)
    policy.check(workers)
    run_times = conditions.run_times(seed=job.seed, workers=workers, stragglers=job.stragglers, read=_read_text)
    with _one_thread():
        subject = _open(job, policy, timing_only=conditions.timing_only)
        plan = plan_of(job, "simulated", workers=workers, samples=subject.samples, evaluates=subject.evaluates)
        world = _world(job, conditions, run_times, subject.layout)
        chronicle = Chronicle(keep=keep_records)
        chronicle.append(_description(job, policy, subject, workers))
        return run_world(plan, policy, subject.arithmetic, world, chronicle, seed=job.seed)


def run_world(
    plan: Plan, policy: Policy, arithmetic: Arithmetic, world: SimulatedWorld, chronicle: Chronicle, *, seed: int = 0
) -> Simulated:
    """Run a plan to its end in a world: what `simulate` makes of a job's parts.

    Raises
    ------
    ClusterError
        If nobody goes on any more although the run is not over; it names who waits for what.
    """
    run = MemoryRun(plan, policy, arithmetic=arithmetic, world=world, sink=chronicle, seed=seed)
    for number in range(plan.workers):
        run.join(f"w{number}")
    try:
        with _few_collections():
            finish = run.run(events=_EVENTS)
    except RuntimeError as stuck:
        raise ClusterError(f"{stuck}; the policy lets nobody go on") from stuck
    if finish.failure is not None:
        raise finish.failure
    view = chronicle.view
    reached = finish.outcome == "reached target" if plan.stop.needs_evaluation else None
    seconds = view.outcome.seconds if view.outcome else run.agenda.now
    model = arithmetic.saved if isinstance(arithmetic, TensorArithmetic) else {}
    return Simulated(view, seconds, reached, run.agenda.done, chronicle.sha256, chronicle.records, model)


@dataclass(frozen=True)
class _Subject:
    arithmetic: Arithmetic
    layout: Layout
    samples: int
    evaluates: bool
    workload: str


def _open(job: Job, policy: Policy, *, timing_only: bool) -> _Subject:
    if timing_only and job.stop.needs_evaluation:
        raise ConfigurationError(
            "a simulation of times only has no loss to reach a target with; stop it by updates, epochs or seconds",
            field="stop",
        )
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
        )
    require_trainable(tensors.layout.parameters, tensors.samples, job.batch_size)
    if timing_only:
        figures = SyntheticGradients(job.shards, job.batch_size)
        return _Subject(figures, tensors.layout, tensors.samples, evaluates=False, workload=workload)
    return _Subject(tensors, tensors.layout, tensors.samples, tensors.evaluates, workload)


def _world(job: Job, conditions: Conditions, run_times: RunTimes, layout: Layout) -> SimulatedWorld:
    links, update_s = parse_network(conditions.network) if conditions.network is not None else (None, 0.0)
    return SimulatedWorld(
        run_times,
        job.seed,
        Network(links, job.seed) if links is not None else None,
        tuple(float(size_bytes(layout, shard)) for shard in range(job.shards)),
        job.slow_servers,
        update_s,
    )


def _description(job: Job, policy: Policy, subject: _Subject, workers: int) -> dict[str, Any]:
    described = description_of(
        job,
        "simulated",
        subject.workload,
        workers,
        policy=name_of(policy),
        policy_parameters=parameter_values(policy),
        samples=subject.samples,
        parameters=subject.layout.parameters,
    )
    return {"kind": "run", "at": 0.0, **described}


@contextmanager
def _one_thread() -> Iterator[None]:
    # Sums over several threads depend on their number, and several threads are slower on models of this size.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _few_collections() -> Iterator[None]:
    # What a run makes is freed by counting references; looking for cycles among ten thousand workers costs a third.
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(200_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _read_text(path: str) -> str:
    return Path(path).expanduser().read_text()


def _read_bytes(path: str) -> bytes:
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error}; name a file that is there", field="policy") from error
