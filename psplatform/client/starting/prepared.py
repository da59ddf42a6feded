"""From a job to what its processes run: the parts found, checked against each other, and pickled."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

from torch import nn

from psplatform.core.policy import Policy
from psplatform.core.transfers import require_plannable
from psplatform.errors import ConfigurationError
from psplatform.jobs.job import Job, require_job, require_slow_shards
from psplatform.jobs.planning import description_of, plan_of, wants_evaluations
from psplatform.jobs.replication import Replication
from psplatform.policies import readiness
from psplatform.policies.registry import name_of, parameter_values, policy_names, policy_of
from psplatform.replication.stores.places import place_of
from psplatform.replication.stores.store import require_free
from psplatform.runtime.initial import Initial, initial_of
from psplatform.runtime.program import Program, Resume, pickle_parts, references_of
from psplatform.runtime.references import References
from psplatform.runtime.trial import Trial
from psplatform.tasks.seam import Task
from psplatform.tasks.supervised import SupervisedTask, build_module
from psplatform.tensors.flat import skeleton_of, with_memory
from psplatform.workloads.files import read_file
from psplatform.workloads.subject import task_of, with_defaults

_TRIAL_SETTINGS: Final = ("seed", "device", "batch_size", "micro_batches", "shards", "block_elements")


@dataclass
class Prepared:
    """A job whose parts have been found and fit together, before any process is asked."""

    job: Job
    policy: Policy
    task: Task | SupervisedTask
    pickled: bytes
    initial: bytes
    run: str
    store: str
    workload: str
    settings: dict[str, Any] = field(default_factory=dict)
    resume: Resume | None = None
    references: References = field(default_factory=dict)
    module: Callable[[], nn.Module] | None = None

    @property
    def plain(self) -> dict[str, Any]:
        """The job as the store keeps it, from which the run can be recovered."""
        name = name_of(self.policy)
        return self.job.to_plain(policy=name if name in policy_names() else None)


def prepare(job: Job, *, run: str | None = None, resume: Resume | None = None) -> Prepared:
    """Find the job's policy and task, and check that they fit and travel.

    Parameters
    ----------
    run, resume
        Of a run that goes on in its store, the id and where it goes on from.

    Raises
    ------
    ConfigurationError
        If they do not.
    """
    require_job(job)
    job = with_defaults(job)
    policy = policy_of(job)
    if job.network.fabric is not None:
        require_plannable(policy.traits, sums=job.network.fabric.aggregators > 0)
        if job.workers is not None:
            job.network.fabric.require_workers(job.workers)
    readiness.load(policy, read_file)
    if job.workers is not None:
        readiness.check(policy, job.workers)
    task, workload = task_of(job)
    parts: dict[str, Any] = {}
    if isinstance(task, SupervisedTask):
        parts = {one.name: getattr(task, one.name) for one in fields(task)}
        if wants_evaluations(job) and task.test is None:
            text = "a target, patience, metrics and keep_best need held-out data; give the job test=..."
            raise ConfigurationError(text, field="test")
    initial = initial_of(task, [parts[name] for name in parts if name != "model"])
    pickled, references = pickle_parts(task, parts, initial.stand_ins)
    if job.workload is not None:
        references = {"workload": tuple(sorted(set(chain(*references.values()))))}
    references |= {
        "policy": references_of(policy, "policy"),
        "optimizer": references_of(job.optimizer, "optimizer"),
        "schedule": references_of(job.schedule, "schedule"),
    }
    run = run or f"{workload}-{name_of(policy).lower()}-{uuid.uuid4().hex[:6]}"
    store = _absolute(place_of(job.store or f"runs/{run}.zarr"))
    settings = {name: getattr(job, name) for name in _TRIAL_SETTINGS}
    if resume is None:
        require_slow_shards(job)
        require_free(store)
    else:
        settings |= {"store": store, "checkpoint": resume.number}
    return Prepared(
        job,
        policy,
        task,
        pickled,
        initial.pickled,
        run,
        store,
        workload,
        settings,
        resume,
        references,
        _builder_of(task, initial, job.seed),
    )


def _absolute(store: str) -> str:
    return store if "://" in store else str(Path(store).absolute())


def program_of(prepared: Prepared, trial: Trial, workers: int, replication: Replication) -> Program:
    """Return what every process of the run gets to know, once a trial has told about the data.

    Parameters
    ----------
    replication
        What the cluster has processes for.

    Raises
    ------
    ConfigurationError
        If the job wants a target that the task cannot be measured against.
    """
    job = prepared.job
    plan = plan_of(job, prepared.run, workers=workers, samples=trial.samples, evaluates=trial.evaluates)
    if replication.mode == "none":
        plan = replace(plan, protection=None)
    return Program(
        run=prepared.run,
        task=prepared.pickled,
        plan=plan,
        policy=prepared.policy,
        optimizer=job.optimizer,
        seed=job.seed,
        block_elements=job.block_elements,
        micro_batches=job.micro_batches,
        store=prepared.store,
        device=job.device,
        transport=job.transport,
        torch_threads=job.torch_threads,
        stragglers=job.stragglers,
        slow_servers=job.slow_servers,
        worker_lease_s=job.worker_lease_s,
        server_lease_s=job.server_lease_s,
        resources=job.resources,
        replication=replication,
        checkpoints=job.checkpoints,
        compression=job.compression,
        fabric=job.network.fabric,
        gradient_bytes=trial.gradient_bytes,
        resume=prepared.resume,
        references=prepared.references,
        description=_description(prepared, trial, workers, replication),
    )


def _description(prepared: Prepared, trial: Trial, workers: int, replication: Replication) -> dict[str, Any]:
    resume = prepared.resume
    return description_of(
        prepared.job,
        prepared.run,
        prepared.workload,
        workers,
        policy=name_of(prepared.policy),
        policy_parameters=parameter_values(prepared.policy),
        staleness_bound=prepared.policy.staleness_bound(workers),
        samples=trial.samples,
        parameters=trial.parameters,
        gradient_bytes=sum(trial.gradient_bytes),
        store=prepared.store,
        started=time.time(),
        replication=replication.to_plain(),
        term=resume.term if resume is not None else 1,
        from_version=resume.state["version"] if resume is not None else 0,
    )


def _builder_of(task: Task | SupervisedTask, initial: Initial, seed: int) -> Callable[[], nn.Module] | None:
    """Return what builds the user's module for numbers that were saved, or ``None`` where the task has none.

    It keeps neither the data nor, where the module's numbers travel beside the task, those: the run that it is for may
    live long.
    """
    if not isinstance(task, SupervisedTask):
        return None
    are_plain = all(tensor.device.type == "cpu" and tensor.is_contiguous() for tensor in initial.tensors)
    if isinstance(task.model, nn.Module) and initial.stand_ins and are_plain:
        return partial(with_memory, skeleton_of(task.model, initial.stand_ins))
    return partial(build_module, task.model, seed)
