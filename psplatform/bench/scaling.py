"""How many samples a second workers train on models of some sizes, beside torch's DistributedDataParallel.

Ours, with and without replicas, and DistributedDataParallel with gloo train the same models (`bench.tasks.models`) by
SGD with momentum on random batches of the same size for each worker, a core for each, in rounds whose order alternates.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import median
from typing import Final

from psplatform.bench.clusters.watched import device_of, endless, measure_run, watched
from psplatform.bench.measuring.rounds import Measured, Report, Row, in_rounds, spread
from psplatform.bench.rivals.running import run_rival
from psplatform.errors import ConfigurationError
from psplatform.jobs.job import Job
from psplatform.jobs.optimizers import SGD

TASKS: Final = ("digits:32", "digits:128", "mlp:32", "mlp:128", "resnet:8", "resnet:32")
"""Models with the batch size of each worker."""

WORKERS: Final = (1, 2)
OURS: Final = {"psplatform": True, "psplatform-unreplicated": False}
"""By name, whether servers have their default replicas."""

DDP: Final = "ddp"
_LEARNING_RATE: Final = 1e-3


def measure(
    report: Report | None = None,
    *,
    tasks: Sequence[str] = TASKS,
    workers: Sequence[int] = WORKERS,
    policy: str = "bsp",
    device: str = "auto",
    rounds: int = 3,
    seconds: float = 5.0,
) -> Row:
    """Measure ours, with and without replicas, and DistributedDataParallel.

    Parameters
    ----------
    tasks
        Of `TASKS`, or the like with another batch size.
    policy
        Of ours.
    device
        On which all compute.
    rounds
        In which each system is measured once.
    seconds
        Of each measurement; starting takes about as long again.

    Returns
    -------
    dict
        ``results``, for each system, task and number of workers: ``samples_per_s``, the median of the rounds,
        ``ratio_to_ddp``, the median of those of the rounds, and between which values those lie, ``low`` and ``high``.

    Raises
    ------
    ConfigurationError
        If there is no such task or device.
    """
    from psplatform.bench.tasks.models import MODELS  # noqa: PLC0415  brings torch

    rows = []
    device = device_of(device)
    for task in tasks:
        name, _, size = task.partition(":")
        if name not in MODELS or not size.isdecimal() or int(size) < 1:
            text = f"there is no task {task!r}; give a model of {', '.join(MODELS)} and its batch size, such as mlp:32"
            raise ConfigurationError(text, field="task")
        for count in workers:
            systems = {
                one: partial(_ours, name, int(size), count, policy, device, seconds, replicated=OURS[one])
                for one in OURS
            }
            found = in_rounds({**systems, DDP: partial(run_rival, DDP, count, task, seconds, device)}, rounds, report)
            rows += [_row(one, task, count, int(size) * count, found[one], found[DDP]) for one in found]
    return {"results": rows}


def _row(
    system: str, task: str, workers: int, samples: int, found: Sequence[Measured], beside: Sequence[Measured]
) -> Row:
    ratio, low, high = spread([theirs.ms / one.ms for one, theirs in zip(found, beside, strict=True)])
    return {
        "system": system,
        "task": task,
        "workers": workers,
        "samples_per_s": samples / median(one.ms for one in found) * 1e3,
        "ratio_to_ddp": ratio,
        "low": low,
        "high": high,
    }


def _ours(
    name: str, batch: int, workers: int, policy: str, device: str, seconds: float, *, replicated: bool
) -> Measured:
    job = partial(_job, name, batch, workers, policy, device, replicated=replicated)
    with watched(job, workers + 2) as (run, cluster):
        return measure_run(run, cluster, seconds)


def _job(name: str, batch: int, workers: int, policy: str, device: str, store: str, *, replicated: bool) -> Job:
    from torch.nn.functional import cross_entropy  # noqa: PLC0415  torch is not needed to refuse a task

    from psplatform.bench.tasks.models import MODELS  # noqa: PLC0415  likewise

    return Job(
        model=MODELS[name].build,
        loss=cross_entropy,
        data=MODELS[name].samples(),
        batch_size=batch,
        policy=policy,
        device=device,
        optimizer=SGD(lr=_LEARNING_RATE, momentum=0.9),
        workers=workers,
        **endless(store, replicated=replicated),
    )
