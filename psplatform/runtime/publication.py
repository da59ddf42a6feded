"""Where a run's coordinator is, for programs that look for it: in the metadata of its scheduler."""

from __future__ import annotations

import contextlib
from typing import Any

from distributed import Client, Worker

from psplatform.runtime.calls import Peer
from psplatform.runtime.hosting import dataset_name


async def open_client(worker: Worker, run: str) -> Client:
    """Return a client of a coordinator's own, by which it holds the run's actors."""
    client: Client = await Client(
        worker.scheduler.address,
        asynchronous=True,
        set_as_default=False,
        security=worker.security,
        direct_to_workers=True,
        name=f"psplatform-{run}",
    )
    return client


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
