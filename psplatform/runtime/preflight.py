"""What must hold before anything is started; each check ends in one sentence with the remedy."""

from __future__ import annotations

import asyncio
import pkgutil
from collections.abc import Sequence
from typing import Any, Final

from distributed import Client

from psplatform.errors import ClusterError, ConfigurationError, StoreError
from psplatform.replication.objects import file_system_of
from psplatform.runtime.placement import Process

_ASK_LIMIT_S: Final = 10.0
_VERSION: Final = "psplatform:__version__"


async def cluster_of(client: Client) -> tuple[list[Process], set[str]]:
    """Return the running Dask workers in the order of their addresses, and the addresses of all there are.

    One that is paused, for memory say, takes no new task, but its actors go on: it is there and not to be hired.
    """
    scheduler: Any = client.scheduler
    workers = (await scheduler.identity(n_workers=-1))["workers"]
    running = {address: one for address, one in workers.items() if one.get("status") == "running"}
    processes = [Process(address, one["host"], one["resources"] or {}) for address, one in sorted(running.items())]
    return processes, set(workers)


async def foreign_workers(client: Client, addresses: Sequence[str]) -> dict[str, str]:
    """Return, for each Dask worker that cannot run this psplatform, what is wrong with it."""
    ours = pkgutil.resolve_name(_VERSION)
    try:
        async with asyncio.timeout(_ASK_LIMIT_S):
            found = await client.run(pkgutil.resolve_name, _VERSION, workers=list(addresses), on_error="return")
    except TimeoutError:
        return dict.fromkeys(addresses, f"did not say its version within {_ASK_LIMIT_S:g} s")
    return {address: _complaint(version, ours) for address, version in found.items() if version != ours}


def _complaint(version: object, ours: str) -> str:
    if isinstance(version, BaseException):
        return f"has no psplatform ({version})"
    return f"has psplatform {version}, not {ours}"


async def require_same_version(client: Client, processes: Sequence[Process]) -> None:
    """Refuse a cluster whose environments differ from this one's.

    Raises
    ------
    ConfigurationError
        Naming the first Dask worker that lacks psplatform or has another version.
    """
    foreign = await foreign_workers(client, [one.address for one in processes])
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
        probe = f"{root}/.probe-{id(files):x}"
        if not files.exists(f"{root}/zarr.json"):
            return "does not see it"
        files.pipe_file(probe, b"")
        files.rm_file(probe)
    except Exception as error:  # noqa: BLE001  every fsspec driver has exceptions of its own
        return f"cannot write to it ({error})"
    return ""


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
