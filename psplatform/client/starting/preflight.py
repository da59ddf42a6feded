"""What must hold before anything is started; each check ends in one sentence with the remedy."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

from distributed import Client

from psplatform.core.supervision.placement import Process
from psplatform.errors import ClusterError, ConfigurationError, StoreError
from psplatform.replication.stores.objects import file_system_of
from psplatform.runtime.cluster import cluster_of, foreign_workers, restarting

RESTART_S: Final = 15.0
"""For a nanny to start a process again, and for that to import what it needs."""

_LOOK_S: Final = 0.3


async def able_workers(client: Client, wanted: int, report: Callable[[str], None]) -> list[Process]:
    """Return the Dask workers that run this psplatform, having waited for those that restart.

    A Dask worker whose process has died is started again by its nanny, which takes a few seconds.  It is waited for, up
    to `RESTART_S`, where it does not answer, or where there are fewer than `wanted` of them.

    Parameters
    ----------
    report
        Told what is waited for, and which workers are left out.

    Raises
    ------
    ConfigurationError
        Naming the first Dask worker that lacks psplatform or has another version.
    ClusterError
        If there is none, or none that answers.
    """
    deadline = time.monotonic() + RESTART_S
    while True:
        processes, _ = await cluster_of(client)
        foreign, silent = (
            await foreign_workers(client, [one.address for one in processes]) if processes else ({}, set())
        )
        _refuse(foreign)
        left = {one.address for one in processes} - silent
        few = len(left) < max(wanted, 1)
        restart = await restarting(client, RESTART_S) if few else 0
        if not silent and not restart:
            if few and len((await cluster_of(client))[0]) > len(processes):
                continue  # it has come back since the first look
            break
        if time.monotonic() > deadline:
            report(_done_without(silent, restart))
            break
        report(f"waiting for {max(len(silent), restart)} Dask workers that are not ready")
        await asyncio.sleep(_LOOK_S)
    able = [one for one in processes if one.address in left]
    if silent and not able:
        text = f"none of the {len(silent)} Dask workers answered within {RESTART_S:g} s; see whether they are stopped"
        raise ClusterError(f"{text} or restart again and again, and start others", peer=min(silent))
    require_workers(able)
    return able


def _done_without(silent: set[str], restart: int) -> str:
    if silent:
        return f"going on without {', '.join(sorted(silent))}: no answer within {RESTART_S:g} s"
    return f"going on without {restart} Dask workers that did not start within {RESTART_S:g} s"


def _refuse(foreign: dict[str, str]) -> None:
    if foreign:
        address, complaint = min(foreign.items())
        more = f" (and {len(foreign) - 1} more)" if len(foreign) > 1 else ""
        raise ConfigurationError(
            f"the Dask worker {address} {complaint}{more}; install the same psplatform in every worker's environment",
            field="scheduler",
        )


def see_store(store: str) -> str:
    """Return ``""`` if this process sees the run's store and can write to it, else what is wrong."""
    try:
        files, root = file_system_of(store)
        probe = f"{root}/.probe-{uuid.uuid4().hex}"  # several processes look at the same time
        if not files.exists(f"{root}/zarr.json"):
            return "does not see it"
        if not _may_read(files, f"{root}/zarr.json"):
            return "is another user's and may not read its zarr.json (give your group the right to write: umask 002)"
        files.pipe_file(probe, b"")
        files.rm_file(probe)
    except Exception as error:  # noqa: BLE001  every fsspec driver has exceptions of its own
        return f"cannot write to it ({error})"
    return ""


def _may_read(files: Any, path: str) -> bool:
    try:
        files.cat_file(path)
    except PermissionError:
        return False
    return True


async def require_visible_store(client: Client, store: str, addresses: Sequence[str]) -> None:
    """Refuse a store that a process of the run cannot use.

    Raises
    ------
    StoreError
        Naming the first such Dask worker.
    """
    remedy = "choose a store on a file system that every host shares, or a URL"
    if "://" in store:
        remedy = "choose a store that every host can reach, and give each its driver, its credentials and its endpoint"
    found = await client.run(see_store, store, workers=sorted(set(addresses)), on_error="return")
    for address, complaint in sorted(found.items()):
        if complaint:
            raise StoreError(f"the Dask worker {address} {complaint}: {store}; {remedy}", store=store)


def require_workers(processes: Sequence[Process]) -> None:
    """Refuse a cluster without any Dask worker."""
    if not processes:
        raise ClusterError("the scheduler has no Dask workers; start some with `dask worker ADDRESS`")
