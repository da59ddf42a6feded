"""From a job to what its processes run: the parts found, checked against each other, and pickled."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from psplatform.core.plan import Plan
from psplatform.core.policy import Policy
from psplatform.errors import ConfigurationError
from psplatform.jobs.job import Job
from psplatform.jobs.optimizers import SGD
from psplatform.policies.registry import make_policy, name_of, parameter_values
from psplatform.replication.store import require_free
from psplatform.runtime.program import Program, pickle_task
from psplatform.runtime.trial import Trial
from psplatform.tasks.seam import Task
from psplatform.tasks.supervised import SupervisedTask, build_module
from psplatform.workloads.registry import find_workload

if TYPE_CHECKING:
    from torch import nn

_TRIAL_SETTINGS: Final = ("seed", "device", "batch_size", "micro_batches", "shards", "block_elements")


@dataclass
class Prepared:
    """A job whose parts have been found and fit together, before any process is asked."""

    job: Job
    policy: Policy
    task: Task | SupervisedTask
    pickled: bytes
    run: str
    store: str
    workload: str
    settings: dict[str, Any] = field(default_factory=dict)


def prepare(job: Job) -> Prepared:
    """Find the job's policy and task, and check that they fit and travel.

    Raises
    ------
    ConfigurationError
        If they do not.
    """
    job = _with_defaults(job)
    policy = job.policy if isinstance(job.policy, Policy) else make_policy(job.policy, job.policy_options)
    if isinstance(job.policy, Policy) and job.policy_options:
        raise ConfigurationError("policy_options go with a policy's name, not with a Policy", field="policy_options")
    if job.workers is not None:
        policy.check(job.workers)
    task, workload = _task_of(job)
    supervised = isinstance(task, SupervisedTask)
    if job.stop.needs_evaluation and supervised and task.test is None:
        raise ConfigurationError("a target needs held-out data to be measured on; give the job test=...", field="test")
    parts = {"model": task.model, "loss": task.loss, "data": task.data, "test": task.test} if supervised else {}
    pickled = pickle_task(task, parts)
    run = f"{workload}-{name_of(policy).lower()}-{uuid.uuid4().hex[:6]}"
    store = _absolute(job.store or f"runs/{run}.zarr")
    require_free(store)
    settings = {name: getattr(job, name) for name in _TRIAL_SETTINGS}
    return Prepared(job, policy, task, pickled, run, store, workload, settings)


def _with_defaults(job: Job) -> Job:
    # What suits a bundled workload, for what the job leaves open.
    if job.workload is None:
        return job
    defaults = find_workload(job.workload).defaults
    suiting = {
        "optimizer": SGD(lr=defaults["lr"], momentum=defaults["momentum"]),
        "batch_size": int(defaults["batch_size"]),
    }
    return job.model_copy(update={name: value for name, value in suiting.items() if name not in job.model_fields_set})


def _task_of(job: Job) -> tuple[Any, str]:
    if job.workload is not None:
        return find_workload(job.workload).make(job.options), job.workload
    if job.task is not None:
        return job.task, type(job.task).__name__.lower()
    name = getattr(job.model, "__name__", type(job.model).__name__).lower()
    return SupervisedTask(job.model, job.loss, job.data, job.test), "".join(c for c in name if c.isalnum()) or "model"


def _absolute(store: str) -> str:
    return store if "://" in store else str(Path(store).expanduser().absolute())


def program_of(prepared: Prepared, trial: Trial, workers: int) -> Program:
    """Return what every process of the run gets to know, once a trial has told about the data.

    Raises
    ------
    ConfigurationError
        If the job wants a target that the task cannot be measured against.
    """
    job = prepared.job
    if job.stop.needs_evaluation and not trial.evaluates:
        raise ConfigurationError("a target needs a task that can be evaluated on held-out data", field="stop")
    plan = Plan(
        run=prepared.run,
        workers=workers,
        shards=job.shards,
        samples=trial.samples,
        batch_size=job.batch_size,
        stop=job.stop,
        schedule=job.schedule,
        max_workers=job.max_workers,
        deal_epochs=job.sampling == "epoch",
        clip_norm=job.clip_norm,
        evaluate_every=job.evaluate_every,
        evaluates=trial.evaluates,
        absence_limit_s=job.absence_limit_s,
        finish_limit_s=job.finish_limit_s,
    )
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
        description=_description(prepared, trial, workers),
    )


def _description(prepared: Prepared, trial: Trial, workers: int) -> dict[str, Any]:
    job = prepared.job
    return {
        "run": prepared.run,
        "workload": prepared.workload,
        "policy": name_of(prepared.policy),
        "policy_parameters": parameter_values(prepared.policy),
        "optimizer": job.optimizer.to_plain(),
        "workers": workers,
        "shards": job.shards,
        "seed": job.seed,
        "store": prepared.store,
        "parameters": trial.parameters,
        "samples": trial.samples,
        "batch_size": job.batch_size,
        "sampling": job.sampling,
        "started": time.time(),
    }


def module_of(prepared: Prepared) -> Callable[[], nn.Module] | None:
    """Return what builds the user's module, or ``None`` where the task has none."""
    task = prepared.task
    return partial(build_module, task, prepared.job.seed) if isinstance(task, SupervisedTask) else None
