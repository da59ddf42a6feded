"""Starting a job: checked first, on what it will run on, so that nothing is started that cannot run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any, Final

from distributed import Client, LocalCluster

from psplatform.client.clusters.connecting import address_of, usable
from psplatform.client.clusters.credentials import credentials_of
from psplatform.client.clusters.embedded import end_cluster, serving_processes, start_cluster
from psplatform.client.clusters.forking import begin, require_main_module
from psplatform.client.clusters.open_files import require_files, require_files_on
from psplatform.client.run import Run
from psplatform.client.runs import records
from psplatform.client.runs.claiming import claim
from psplatform.client.starting.first_gradient import try_here, try_on
from psplatform.client.starting.freed import give_back_freed
from psplatform.client.starting.importable import require_importable, require_imported
from psplatform.client.starting.preflight import able_workers, require_visible_store
from psplatform.client.starting.prepared import Prepared, prepare, program_of
from psplatform.core.supervision.placement import Placement, place
from psplatform.errors import ClusterError, ConfigurationError, UserCodeError
from psplatform.jobs.job import Job
from psplatform.jobs.replication import NoReplication, Replication, replicas_of
from psplatform.policies import readiness
from psplatform.replication.stores.objects import file_system_of
from psplatform.replication.stores.store import create_run, reopen_run, update_run
from psplatform.runtime.actors.coordinator.host import CoordinatorHost
from psplatform.runtime.comms.calls import Peer, call
from psplatform.runtime.comms.hosting import call_named, dataset_name, key_of
from psplatform.runtime.comms.hosting import name_of as hosted_name
from psplatform.runtime.comms.publication import withdraw
from psplatform.runtime.pools.fleet import made
from psplatform.runtime.program import Program
from psplatform.runtime.trial import Trial

_OPEN_LIMIT_S: Final = 60.0
_EMBEDDED_WORKERS: Final = 2

Report = Callable[[str], None]


def train(job: Job, client: Client | None = None, *, report: Report = lambda text: None) -> Run:
    """Start `job` and return the run, which goes on in the background.

    Parameters
    ----------
    client
        A client of the cluster to run on; without one, a cluster on this machine is made for the run and ends with
        `Run.close`, which stops the run in good order first, or with the program.
    report
        Called with a few words at each step of starting.

    Raises
    ------
    ConfigurationError
        If the job cannot run here; nothing was started and nothing written.
    UserCodeError
        If the user's code raises at a first gradient.
    ProcessDied
        If it ends the process of the cluster in which that is tried.
    """
    client = usable(client) if client is not None else None
    return start(prepare(job), client, report)


def start(prepared: Prepared, client: Client | None, report: Report) -> Run:
    """Start what was prepared, on the client's cluster or on one of its own."""
    job = prepared.job
    if client is not None:
        try:
            return _launch(prepared, client, report, on_close=None, embedded=False)
        except OSError as error:
            raise ClusterError(f"lost the scheduler while the run was starting ({error}); start it again") from error
    require_main_module()
    workers = job.workers or _EMBEDDED_WORKERS
    processes = workers + serving_processes(job.shards, replicas_of(job.replication))
    require_files(processes)
    begin()
    report("trying a first gradient")
    trial = try_here(prepared)
    report("starting a cluster on this machine")
    readiness.check(prepared.policy, workers)
    cluster, own = start_cluster(processes)
    try:
        on_close = partial(_end, prepared.run, own, cluster)
        return _launch(prepared, own, report, on_close=on_close, embedded=True, trial=trial)
    except BaseException:
        end_cluster(own, cluster)
        raise


def _end(run: str, client: Client, cluster: LocalCluster) -> None:
    """End the cluster of a run's own, and forget how it was asked."""
    address = address_of(client)
    try:
        end_cluster(client, cluster)
    finally:
        records.forget(run, address)


def _launch(
    prepared: Prepared,
    client: Client,
    report: Report,
    *,
    on_close: Callable[[], None] | None,
    embedded: bool,
    trial: Trial | None = None,
) -> Run:
    report("looking at the cluster")
    placement, replication = client.sync(_place, prepared, client, report)
    if not embedded:
        client.sync(require_files_on, client, placement)
    client.sync(require_importable, client, prepared.references, placement.addresses)
    if trial is None:
        report("trying a first gradient")
        try:
            trial = client.sync(try_on, client, prepared, placement.workers[0])
        except UserCodeError as error:
            client.sync(require_imported, client, error, placement.addresses)
            raise
    workers = len(placement.workers)
    readiness.check(prepared.policy, workers)
    program = program_of(prepared, trial, workers, replication)
    with (
        _record_of(client, prepared, report, embedded=embedded),
        _store_of(client, prepared, program, placement, embedded=embedded),
    ):
        report("starting servers")
        coordinator, future, process = client.sync(_start, client, program, placement, prepared.initial)
    give_back_freed()
    return Run(
        prepared.run,
        prepared.store,
        client=client,
        coordinator=coordinator,
        process=process,
        module=prepared.module,
        keep=future,
        on_close=on_close,
        embedded=embedded,
    )


async def _place(prepared: Prepared, client: Client, report: Report) -> tuple[Placement, Replication]:
    """Return where everything goes, and how servers are replicated on what there is."""
    job = prepared.job
    copies = 1 + (replicas_of(job.replication) if job.replication_asked else 0)
    processes = await able_workers(client, max(job.workers or 1, copies), report)
    where = partial(
        place,
        processes,
        workers=job.workers,
        shards=job.shards,
        for_worker=job.resources.get("worker"),
        for_server=job.resources.get("server"),
    )
    try:
        return where(replicas=replicas_of(job.replication)), job.replication
    except ConfigurationError as error:
        if error.field != "replication" or job.replication_asked:
            raise
    # No replicas were asked for: where there is no process for them, the run does without.
    return where(replicas=0), NoReplication()


@contextlib.contextmanager
def _record_of(client: Client, prepared: Prepared, report: Report, *, embedded: bool) -> Iterator[None]:
    """Let this user's other programs find the run's scheduler, from before its store is there; not if it fails.

    Where nothing can be noted, the run starts all the same.
    """
    before = records.find(prepared.run)
    credentials = credentials_of(client) if embedded else None
    record = records.record_of(prepared.run, prepared.store, address_of(client), credentials)
    try:
        records.remember(record)
    except OSError as error:
        report(f"your other programs will not find this run's scheduler: it could not be noted for them ({error})")
    try:
        yield
    except BaseException:
        records.forget(record.run, record.scheduler)
        if before is not None:
            with contextlib.suppress(OSError):
                records.remember(before)
        raise


@contextlib.contextmanager
def _store_of(
    client: Client, prepared: Prepared, program: Program, placement: Placement, *, embedded: bool
) -> Iterator[None]:
    """Make or reopen the store, and see that every process of the run can use it; what fails leaves it as it was."""
    # The scheduler of an embedded cluster is asked by those only who find it in the user's own records.
    address = {} if embedded else {"scheduler": client.scheduler.address if client.scheduler is not None else ""}
    of_store = {"job": prepared.plain, "embedded": embedded, **address}
    undo = _describe(program, program.description | of_store)
    addresses = {placement.coordinator, placement.evaluator, *placement.servers, *chain(*placement.replicas)}
    try:
        client.sync(require_visible_store, client, program.store, sorted(addresses))
    except BaseException:
        undo()
        raise
    try:
        yield
    except BaseException as error:  # Ctrl-C too: readers of the store must not wait for this run
        update_run(program.store, outcome="failed", error=str(error))
        raise


def _describe(program: Program, description: dict[str, Any]) -> Callable[[], None]:
    """Make the store or describe its run anew; return what leaves it as it was."""
    store, resume = program.store, program.resume
    if resume is None:
        create_run(store, description)
        return partial(_remove_new, store)
    with contextlib.ExitStack() as undo:
        before = claim(store, resume, undo)
        undo.callback(reopen_run, store, before)
        reopen_run(store, description)
        return undo.pop_all().close


def _remove_new(store: str) -> None:
    files, root = file_system_of(store)
    files.rm(root, recursive=True)


async def _start(client: Client, program: Program, placement: Placement, initial: bytes) -> tuple[Peer, Any, Any]:
    name = dataset_name(program.run)
    key = key_of(program.run, program.term, "coordinator")
    peer = Peer(placement.coordinator, key)
    if program.resume is not None:  # the coordinator before may have been lost on this cluster
        await withdraw(client, program.run)
    arguments = hosted_name(CoordinatorHost), program.run
    future = client.submit(call_named, *arguments, actor=True, key=key, workers=[peer.address], pure=False)
    await made(future, "coordinator", peer.address)
    await call(client.rpc, peer, "open", program, placement, key, initial, deadline_s=_OPEN_LIMIT_S)
    # What the coordinator says of itself later must not be written over: no other can have replaced it yet.
    if await client.get_metadata([name], default=None) is None:
        await client.set_metadata([name], {"address": peer.address, "key": key, "store": program.store})
    await client.publish_dataset(future, name=name)
    # A run that was over before it was published has not withdrawn this.
    status = await call(client.rpc, peer, "status", 0.0, deadline_s=_OPEN_LIMIT_S)
    if status["phase"] == "over":
        await withdraw(client, program.run)
    return peer, future, status.get("process")
