"""Where a run's coordinator is, for programs that look for it: in the metadata of its scheduler."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

from distributed import Client, Security, Worker

from psplatform.runtime.calls import Peer
from psplatform.runtime.hosting import dataset_name


async def open_client(worker: Worker, run: str) -> Client:
    """Return a client of a coordinator's own, by which it holds the run's actors."""
    client: Client = await Client(
        worker.scheduler.address,
        asynchronous=True,
        set_as_default=False,
        security=_as_client(worker.security),
        direct_to_workers=True,
        name=f"psplatform-{run}",
    )
    return client


def _as_client(security: Security) -> Security:
    """Return what a client shows in a process that was given a worker's certificate only, as Dask's flags do."""
    found: Any = copy.copy(security)  # Dask's attributes are not typed
    if found.tls_client_cert is None:
        found.tls_client_cert, found.tls_client_key = found.tls_worker_cert, found.tls_worker_key
    secured: Security = found
    return secured


async def announce(client: Client, run: str, store: str, coordinator: Peer, *, standby: bool) -> None:
    """Let programs find the coordinator there, and know whether another would take over from it."""
    card: dict[str, Any] = {
        "address": coordinator.address,
        "key": coordinator.key,
        "store": store,
        "standby": standby,
    }
    with contextlib.suppress(OSError, KeyError):
        await client.set_metadata([dataset_name(run)], card)


async def withdraw(client: Client, run: str) -> None:
    """Let nobody find the run any more."""
    with contextlib.suppress(KeyError, OSError):  # it may have been done before, or not been published yet
        await client.unpublish_dataset(dataset_name(run))
