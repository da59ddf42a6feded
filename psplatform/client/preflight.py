"""What must hold before anything is started; each check ends in one sentence with the remedy."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from distributed import Client

from psplatform.errors import ClusterError, ConfigurationError, StoreError
from psplatform.replication.objects import file_system_of
from psplatform.runtime.cluster import foreign_workers
from psplatform.runtime.placement import Process


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
        probe = f"{root}/.probe-{uuid.uuid4().hex}"  # several processes look at the same time
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
