"""From a job to the plan that a coordinator acts on, and to what the event log says of the run."""

from __future__ import annotations

from typing import Any

from psplatform.core.coordination.order.epochs import MOST_TRIES
from psplatform.core.plan import Cuts, Plan, Protection
from psplatform.core.quality import Watch
from psplatform.errors import ConfigurationError
from psplatform.jobs.checkpoints import Checkpoints
from psplatform.jobs.job import Job
from psplatform.jobs.replication import Bounded, Chain, Replication


def plan_of(job: Job, run: str, *, workers: int, samples: int, evaluates: bool) -> Plan:
    """Return the coordinator's plan.

    Parameters
    ----------
    run
        The run's name.
    workers
        Number of workers to begin with.
    samples, evaluates
        What is known of the task: the size of its data, and whether it can be evaluated.

    Raises
    ------
    ConfigurationError
        If the job wants a target that the task cannot be measured against.
    """
    if wants_evaluations(job) and not evaluates:
        text = "a target, patience, metrics and keep_best need a task that can be evaluated on held-out data"
        raise ConfigurationError(text, field="stop")
    return Plan(
        run=run,
        workers=workers,
        shards=job.shards,
        samples=samples,
        batch_size=job.batch_size,
        stop=job.stop,
        schedule=job.schedule,
        max_workers=job.max_workers,
        deal_epochs=job.sampling == "epoch",
        tries=MOST_TRIES,
        ends_at_bad_batch=job.bad_batches == "end",
        clip_norm=job.clip_norm,
        evaluate_every=job.evaluate_every,
        evaluates=evaluates,
        watch=watch_of(job),
        absence_limit_s=job.absence_limit_s,
        finish_limit_s=job.finish_limit_s,
        protection=protection_of(job.replication, job.shards),
        cuts=cuts_of(job.checkpoints),
    )


def wants_evaluations(job: Job) -> bool:
    """Return whether something in the job makes no sense without evaluations."""
    return job.stop.needs_evaluation or bool(job.metrics) or job.keep_best


def watch_of(job: Job) -> Watch:
    """Return what the job's versions are compared by."""
    lower = {name for name, metric in job.metrics.items() if metric.better == "lower"}
    return Watch(job.watch, frozenset({"loss", *lower}), job.keep_best)


def protection_of(replication: Replication, shards: int) -> Protection | None:
    """Return what the coordinator must know of how its servers are replicated, ``None`` where they are not."""
    bound, shard_bound, unit = replication.bound, replication.shard_bound(shards), replication.unit
    if not isinstance(replication, Chain | Bounded) or bound is None or shard_bound is None or unit is None:
        return None
    pause, cold = replication.on_replica_loss == "pause", replication.target == "store"
    from_workers, alone = replication.source == "workers", replication.on_isolation == "continue"
    return Protection(replication.replicas, bound, unit, shard_bound, pause, cold, from_workers, alone)


def cuts_of(checkpoints: Checkpoints) -> Cuts | None:
    """Return when the coordinator cuts checkpoints, ``None`` for never."""
    return Cuts(checkpoints.every_updates, checkpoints.every_seconds) if checkpoints.written else None


def description_of(
    job: Job, run: str, workload: str, workers: int, *, gradient_bytes: float = 0.0, **known: Any
) -> dict[str, Any]:
    """Return what the event log's first record says of the run.

    Parameters
    ----------
    workload
        A word for what is trained.
    gradient_bytes
        How many bytes a gradient has on its way to all servers; said where transfers are planned.
    known
        What the job itself does not say, such as the policy in force and the number of parameters, or what replaces
        the job's word, such as the replication in force where a cluster is too small for replicas.
    """
    return {
        "run": run,
        "workload": workload,
        "optimizer": job.optimizer.to_plain(),
        "workers": workers,
        "shards": job.shards,
        "seed": job.seed,
        "batch_size": job.batch_size,
        "sampling": job.sampling,
        "evaluate_on": job.evaluate_on,
        "watch": {"metric": job.watch, "lower": sorted(watch_of(job).lower)},
        "replication": job.replication.to_plain(),
        "checkpoints": job.checkpoints.to_plain(),
        "compression": str(job.compression),
        **({"network": {**job.network.to_plain(), "gradient_bytes": gradient_bytes}} if job.network.fabric else {}),
        **known,
    }
