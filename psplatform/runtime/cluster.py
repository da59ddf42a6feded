"""Which Dask workers a cluster has, and which of them can run this psplatform."""

from __future__ import annotations

import asyncio
import pkgutil
import time
from collections.abc import Sequence
from typing import Any, Final

from distributed import Client

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


def seen_by(dask_scheduler: Any) -> dict[str, tuple[int, float]]:
    """Return the process id of each Dask worker and for how many seconds it has not been heard; runs on the scheduler.

    What a worker says of itself has no process id, and when it was heard is told by the scheduler's clock.
    """
    now = time.time()
    workers = dask_scheduler.workers.items()
    return {address: (one.pid, max(0.0, now - one.last_seen)) for address, one in workers}


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
