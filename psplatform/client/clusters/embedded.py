"""A Dask cluster on this machine, for one run."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from typing import Any, Final

import dask
from distributed import Client, LocalCluster, Nanny, Security, SpecCluster, Status, utils

from psplatform.client.clusters.credentials import make_credentials, security_of
from psplatform.client.clusters.forking import (
    BEFORE_START,
    HUGE_PAGES,
    UNGUARDED,
    UNGUARDED_TEXT,
    begin,
    keyboard_is_ours,
    require_main_module,
)
from psplatform.errors import ConfigurationError
from psplatform.runtime.comms.closing import closing_is_no_error
from psplatform.runtime.store.recording import recording_settings
from psplatform.runtime.timeouts import TIMEOUTS
from psplatform.tasks.randomness import OWN_PROCESS

_METHOD: Final = "distributed.worker.multiprocessing-method"

_CONFIG: Final[dict[str, Any]] = {
    # How often each of Dask's servers looks whether its event loop answers: several in this program and two in a
    # process take a few per cent of a small machine's cores for it otherwise.
    "distributed.admin.tick.interval": "500ms",
    # Nor does anybody look at the profile that each process takes of itself a hundred times a second.
    "distributed.worker.profile.enabled": False,
    # Every user of the machine could read them: names of actors, logs, addresses.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}

_MOST_SERVING: Final = 16
"""Processes for servers on a machine with fewer cores than that: further shards share them, as a process of its own
costs each some 200 MB and gains nothing where no core is free for it."""


def serving_processes(shards: int, replicas: int) -> int:
    """Return how many processes a cluster on this machine has for its servers and their replicas."""
    most = max(_MOST_SERVING, os.cpu_count() or 1)
    return max(min(shards, most), replicas + 1)


class PatientNanny(Nanny):
    """Starts a process that was lost again a little later: first the run must go on, on whatever cores there are."""

    _unguarded = False

    async def instantiate(self) -> Status:
        """Start the process; wait before that if there was one.

        Raises
        ------
        ConfigurationError
            If the process ended because it would have started a run while it imported the program.
        """
        if self.process is not None:
            await asyncio.sleep(TIMEOUTS.replace_after_s)
            if self.status is not Status.running:
                return self.status
        status = await super().instantiate()
        if self._unguarded:
            raise ConfigurationError(UNGUARDED_TEXT)
        return status

    def _on_worker_exit_sync(self, exitcode: int) -> None:
        self._unguarded = exitcode == UNGUARDED
        super()._on_worker_exit_sync(exitcode)  # type: ignore[no-untyped-call]  # Dask's are not typed


class PatientCluster(LocalCluster):
    """Leaves it to the nannies to start processes again.

    Dask ends the nanny of a process that is away at one moment, 15 s after it was lost.  Whether it has only been slow
    to come back, or was back and is lost once more, Dask does not see, and that place would stay empty.
    """

    def _update_worker_status(self, op: str, msg: Any) -> None:
        super(SpecCluster, self)._update_worker_status(op, msg)  # type: ignore[no-untyped-call]  # Dask's are not typed


class _Clusters:
    """How many there are, and how Dask started processes before there was one."""

    lock: Final = threading.Lock()
    count: int = 0
    method: str = ""


def start_cluster(processes: int, *, encrypted: bool = True) -> tuple[LocalCluster, Client]:
    """Start a cluster of so many Dask workers, each a process with one thread, that listens on localhost only.

    Its processes speak to nobody who has not the client's certificate, which is made here: other users of this machine
    reach localhost, too.  To be ended with `end_cluster`.

    Parameters
    ----------
    encrypted
        False lets them speak to everybody, in plain TCP: for measurements beside what does so.

    Raises
    ------
    ConfigurationError
        If its processes cannot import the program's main module, or importing it would start a cluster.
    """
    require_main_module()
    if forks := not _is_environment_other():
        begin()
    _begin_forking(forks=forks)
    cluster: LocalCluster | None = None
    try:
        with keyboard_is_ours(), dask.config.set(_CONFIG):
            cluster = PatientCluster(  # type: ignore[no-untyped-call]  # as above
                n_workers=processes,
                threads_per_worker=1,
                memory_limit=None,
                # Without Dask's dashboard; its port still has to be a free one, or Dask warns.
                dashboard_address="127.0.0.1:0",
                scheduler_kwargs={"dashboard": False},
                host="127.0.0.1",
                # No news to the user: a process that needs long to end is killed, as is wanted here, and one that
                # reports to the scheduler while the cluster ends says at length that it cannot.
                silence_logs=logging.CRITICAL,
                worker_class=PatientNanny,
                security=security_of(make_credentials()) if encrypted else Security(),
                env={**HUGE_PAGES, **recording_settings(), OWN_PROCESS: "1"},
            )
        return cluster, Client(cluster, set_as_default=False, direct_to_workers=True)
    except BaseException as error:
        _close(cluster)
        if isinstance(error.__cause__, ConfigurationError):  # which Dask has wrapped
            raise error.__cause__.with_traceback(None) from None
        raise


def end_cluster(client: Client, cluster: LocalCluster) -> None:
    """End the cluster and its client, whatever is left of them."""
    with closing_is_no_error():
        try:
            with contextlib.suppress(OSError, TimeoutError):  # the latter where the event loop that they share is busy
                client.close(timeout=5)
        finally:
            _close(cluster)


def _close(cluster: LocalCluster | None) -> None:
    """Close the cluster, if it was made, and count it as ended."""
    try:
        if cluster is not None:
            with contextlib.suppress(OSError, TimeoutError):
                cluster.close(timeout=30)
    finally:
        _end_forking()


def _is_environment_other() -> bool:
    """Whether Dask was configured to start processes with other variables than the fork server has."""
    wanted = dask.config.get("distributed.nanny.pre-spawn-environ", default={})
    return any(BEFORE_START.get(name) != str(value) for name, value in wanted.items())


def _begin_forking(*, forks: bool) -> None:
    """Let Dask fork processes from the server that `begin` starts, until as many clusters have ended as were begun."""
    utils._forkserver_preload_set = True  # noqa: SLF001  else it sets what its own tests need, when it first forks
    with _Clusters.lock:
        if not _Clusters.count:
            _Clusters.method = dask.config.get(_METHOD)
            dask.config.set({_METHOD: "forkserver" if forks else _Clusters.method})
        _Clusters.count += 1


def _end_forking() -> None:
    with _Clusters.lock:
        _Clusters.count -= 1
        if not _Clusters.count:
            dask.config.set({_METHOD: _Clusters.method})
