"""What a job trains, found by whichever of its fields says it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from psplatform.jobs.job import Job
from psplatform.jobs.optimizers import SGD
from psplatform.tasks.data.loaders import batch_size_of, unwrapped
from psplatform.tasks.seam import Task
from psplatform.tasks.supervised import SupervisedTask
from psplatform.workloads.registry import find_workload


def with_defaults(job: Job) -> Job:
    """Return the job with what suits its bundled workload or its `DataLoader`, for what it leaves open."""
    if job.workload is None:
        size = batch_size_of(job.data)
        named = size is None or "batch_size" in job.model_fields_set
        return job if named else job.model_copy(update={"batch_size": size})
    workload = find_workload(job.workload)
    suiting: dict[str, Any] = {
        "optimizer": SGD(lr=workload.defaults["lr"], momentum=workload.defaults["momentum"]),
        "batch_size": int(workload.defaults["batch_size"]),
        **workload.settings,
    }
    return job.model_copy(update={name: value for name, value in suiting.items() if name not in job.model_fields_set})


def task_of(job: Job) -> tuple[Task | SupervisedTask, str]:
    """Return what the job trains, and a word for it.

    Raises
    ------
    ConfigurationError
        If its workload or the workload's options are unknown, or its data cannot be read by index.
    """
    task, name = _named_task(job)
    if isinstance(task, SupervisedTask):
        task = replace(task, metrics=job.metrics)
    if job.evaluate_on == "training" and isinstance(task, SupervisedTask):
        task = replace(task, test=task.data)
    return task, name


def _named_task(job: Job) -> tuple[Task | SupervisedTask, str]:
    if job.workload is not None:
        return find_workload(job.workload).make(job.options), job.workload
    if job.task is not None:
        return job.task, type(job.task).__name__.lower()
    name = getattr(job.model, "__name__", type(job.model).__name__).lower()
    data, test = unwrapped(job.data), unwrapped(job.test)  # here, because a loader may hold what does not travel
    task = SupervisedTask(job.model, job.loss, data, test, job.step, job.collate, job.predict)
    return task, "".join(c for c in name if c.isalnum()) or "model"
