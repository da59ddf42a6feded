"""Which Dask workers a cluster has, and which of them can run this psplatform."""

from __future__ import annotations

import asyncio
import pkgutil
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
