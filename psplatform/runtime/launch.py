"""Starting a job: checked first, on what it will run on, so that nothing is started that cannot run."""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from distributed import Client, LocalCluster

from psplatform.core.plan import Plan
from psplatform.core.policy import Policy
from psplatform.errors import ConfigurationError, PsplatformError
from psplatform.jobs.job import Job
from psplatform.policies.registry import make_policy, name_of, parameter_values
from psplatform.replication.store import create_run, update_run
from psplatform.runtime.calls import Peer, call
from psplatform.runtime.coordinator_host import CoordinatorHost, dataset_name
from psplatform.runtime.fleet import made
from psplatform.runtime.hosting import call_named
from psplatform.runtime.hosting import name_of as hosted_name
from psplatform.runtime.placement import Placement, place
from psplatform.runtime.preflight import (
    processes_of,
    require_same_version,
    require_visible_store,
    require_workers,
)
from psplatform.runtime.program import Program, pickle_task
from psplatform.runtime.run import Run
from psplatform.runtime.trial import Trial, TrialHost, try_task
from psplatform.tasks.seam import Task
from psplatform.tasks.supervised import SupervisedTask
from psplatform.workloads.registry import find_workload

_CONNECT_S: Final = 8
"""Seconds to reach a scheduler: the user hears within ten."""

_TRIAL_LIMIT_S: Final = 600.0
"""For a first gradient: data may have to be read and a large model built."""

_OPEN_LIMIT_S: Final = 60.0
_EMBEDDED_WORKERS: Final = 2
_TRIAL_SETTINGS: Final = ("seed", "device", "batch_size", "micro_batches", "shards", "block_elements")

Report = Callable[[str], None]


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


def train(job: Job, client: Client | None = None, *, report: Report = lambda text: None) -> Run:
    """Start `job` and return the run, which goes on in the background.

    Parameters
    ----------
    client
        A client of the cluster to run on; without one, a cluster on this machine is made for the run and ends with
        `Run.close`, or with the program.
    report
        Called with a few words at each step of starting.

    Raises
    ------
    ConfigurationError
        If the job cannot run here; nothing was started and nothing written.
    UserCodeError
        If the user's code raises at a first gradient.
    """
    prepared = prepare(job)
    if client is not None:
        return _launch(prepared, client, report, on_close=lambda: None, embedded=False)
    report("trying a first gradient")
    trial = try_task(prepared.pickled, job.optimizer, prepared.settings)
    report("starting a cluster on this machine")
    cluster, own = embedded_cluster(prepared)
    try:
        return _launch(prepared, own, report, on_close=partial(_close, own, cluster), embedded=True, trial=trial)
    except BaseException:
        _close(own, cluster)
        raise


def prepare(job: Job) -> Prepared:
    """Find the job's policy and task, and check that they fit and travel.

    Raises
    ------
    ConfigurationError
        If they do not.
    """
    policy = job.policy if isinstance(job.policy, Policy) else make_policy(job.policy, job.policy_options)
    if isinstance(job.policy, Policy) and job.policy_options:
        raise ConfigurationError("policy_options go with a policy's name, not with a Policy", field="policy_options")
    if job.workers is not None:
        policy.check(job.workers)
    task, workload = _task_of(job)
    if job.stop.needs_evaluation and isinstance(task, SupervisedTask) and task.test is None:
        raise ConfigurationError("a target needs held-out data to be measured on; give the job test=...", field="test")
    parts = {"model": task.model, "loss": task.loss, "data": task.data, "test": task.test} if _supervised(task) else {}
    pickled = pickle_task(task, parts)
    run = f"{workload}-{name_of(policy).lower()}-{uuid.uuid4().hex[:6]}"
    store = _absolute(job.store or f"runs/{run}.zarr")
    settings = {name: getattr(job, name) for name in _TRIAL_SETTINGS}
    return Prepared(job, policy, task, pickled, run, store, workload, settings)


def _task_of(job: Job) -> tuple[Any, str]:
    if job.workload is not None:
        return find_workload(job.workload).make(job.options), job.workload
    if job.task is not None:
        return job.task, type(job.task).__name__.lower()
    name = getattr(job.model, "__name__", type(job.model).__name__).lower()
    return SupervisedTask(job.model, job.loss, job.data, job.test), "".join(c for c in name if c.isalnum()) or "model"


def _supervised(task: object) -> bool:
    return isinstance(task, SupervisedTask)


def _absolute(store: str) -> str:
    return store if "://" in store else str(Path(store).expanduser().absolute())


def embedded_cluster(prepared: Prepared) -> tuple[LocalCluster, Client]:
    """Start a cluster on this machine with a process for every role."""
    workers = prepared.job.workers or _EMBEDDED_WORKERS
    prepared.policy.check(workers)
    cluster = LocalCluster(
        n_workers=workers + prepared.job.shards,
        threads_per_worker=1,
        memory_limit=None,
        # Without Dask's dashboard; its port still has to be a free one, or Dask warns.
        dashboard_address="127.0.0.1:0",
        scheduler_kwargs={"dashboard": False},
        host="127.0.0.1",
        # Processes that need long to end are killed, which is what is wanted here and no news to the user.
        silence_logs=logging.ERROR,
    )
    return cluster, Client(cluster, set_as_default=False, direct_to_workers=True)


def connect(scheduler: str) -> Client:
    """Return a client of the scheduler at that address, or of that scheduler file.

    Raises
    ------
    ConfigurationError
        If it cannot be reached within ten seconds.
    """
    try:
        if Path(scheduler).is_file():
            return Client(scheduler_file=scheduler, timeout=_CONNECT_S, set_as_default=False, direct_to_workers=True)
        return Client(scheduler, timeout=_CONNECT_S, set_as_default=False, direct_to_workers=True)
    except (OSError, ValueError, TimeoutError) as error:
        raise ConfigurationError(
            f"no scheduler answers at {scheduler}; start one with `dask scheduler` and give its address",
            field="scheduler",
        ) from error


def _close(client: Client, cluster: LocalCluster) -> None:
    with contextlib.suppress(OSError, TimeoutError):
        client.close(timeout=5)
        cluster.close(timeout=30)


def _launch(
    prepared: Prepared,
    client: Client,
    report: Report,
    *,
    on_close: Callable[[], None],
    embedded: bool,
    trial: Trial | None = None,
) -> Run:
    job = prepared.job
    report("looking at the cluster")
    placement = client.sync(_place, prepared, client)
    if trial is None:
        report("trying a first gradient")
        trial = client.sync(_try_on, client, prepared, placement)
    workers = len(placement.workers)
    prepared.policy.check(workers)
    program = _program(prepared, trial, workers)
    with _new_store(client, prepared, program, placement):
        report("starting servers")
        coordinator, future = client.sync(_start, client, program, placement, publish=not embedded)
    return Run(
        prepared.run,
        prepared.store,
        client=client,
        coordinator=coordinator,
        module=_module_of(prepared.task, job.seed),
        keep=future,
        on_close=on_close,
    )


async def _place(prepared: Prepared, client: Client) -> Placement:
    processes = await processes_of(client)
    require_workers(processes)
    await require_same_version(client, processes)
    job = prepared.job
    return place(
        processes,
        workers=job.workers,
        shards=job.shards,
        for_worker=job.resources.get("worker"),
        for_server=job.resources.get("server"),
    )


async def _try_on(client: Client, prepared: Prepared, placement: Placement) -> Trial:
    # In a gradient worker's process, because that is where the data must be and the device.
    address = placement.workers[0]
    peer = Peer(address, f"psplatform-{prepared.run}-trial")
    future = client.submit(
        call_named, hosted_name(TrialHost), actor=True, key=peer.key, workers=[address], pure=False
    )
    try:
        await made(future, "trial", address)
        arguments = prepared.pickled, prepared.job.optimizer, prepared.settings
        trial: Trial = await call(client.rpc, peer, "run", *arguments, deadline_s=_TRIAL_LIMIT_S)
    finally:
        future.release()
    return trial


def _program(prepared: Prepared, trial: Trial, workers: int) -> Program:
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


@contextlib.contextmanager
def _new_store(client: Client, prepared: Prepared, program: Program, placement: Placement) -> Iterator[None]:
    """Make the store and see that every process of the run can use it; what could not start leaves no store behind."""
    address = client.scheduler.address if client.scheduler is not None else ""
    create_run(prepared.store, {**program.description, "scheduler": address})
    addresses = [placement.coordinator, placement.evaluator]
    try:
        client.sync(require_visible_store, client, prepared.store, addresses)
    except PsplatformError:
        _remove_new(prepared.store)
        raise
    try:
        yield
    except PsplatformError as error:
        update_run(prepared.store, outcome="failed", error=str(error))
        raise


def _remove_new(store: str) -> None:
    import fsspec  # noqa: PLC0415  needed on this path only

    files, root = fsspec.url_to_fs(store)
    files.rm(root, recursive=True)


async def _start(client: Client, program: Program, placement: Placement, *, publish: bool) -> tuple[Peer, Any]:
    name = dataset_name(program.run)
    key = f"{name}-coordinator"
    peer = Peer(placement.coordinator, key)
    arguments = hosted_name(CoordinatorHost), program.run
    future = client.submit(call_named, *arguments, actor=True, key=key, workers=[peer.address], pure=False)
    await made(future, "coordinator", peer.address)
    await call(client.rpc, peer, "open", program, placement, key, deadline_s=_OPEN_LIMIT_S)
    if publish:
        await client.set_metadata([name], {"address": peer.address, "key": key, "store": program.store})
        await client.publish_dataset(future, name=name)
    return peer, future


def _module_of(task: object, seed: int) -> Any:
    if not isinstance(task, SupervisedTask):
        return None
    from psplatform.tasks.supervised import build_module  # noqa: PLC0415

    return partial(build_module, task, seed)
