"""Which Dask workers a cluster has, and which of them can run this psplatform."""

from __future__ import annotations

import asyncio
import pkgutil
import time
from collections.abc import Sequence
from typing import Any, Final

from distributed import Client

from psplatform.core.supervision.placement import Process
from psplatform.runtime.timeouts import TIMEOUTS

_VERSION: Final = "psplatform:__version__"


async def cluster_of(client: Client) -> tuple[list[Process], set[str]]:
    """Return the running Dask workers in the order of their addresses, and the addresses of all there are.

    One that is paused, for memory say, takes no new task, but its actors go on: it is there, and gets no role.
    """
    scheduler: Any = client.scheduler
    workers = (await scheduler.identity(n_workers=-1))["workers"]
    running = {address: one for address, one in workers.items() if one.get("status") == "running"}
    processes = [
        Process(address, one["host"], one["resources"] or {}, one.get("nanny") or "")
        for address, one in sorted(running.items())
    ]
    return processes, set(workers)


def seen_by(dask_scheduler: Any) -> dict[str, tuple[int, float]]:
    """Return the process id of each Dask worker and for how many seconds it has not been heard; runs on the scheduler.

    What a worker says of itself has no process id, and when it was heard is told by the scheduler's clock.
    """
    now = time.time()
    workers = dask_scheduler.workers.items()
    return {address: (one.pid, max(0.0, now - one.last_seen)) for address, one in workers}


async def foreign_workers(client: Client, addresses: Sequence[str]) -> tuple[dict[str, str], set[str]]:
    """Return what is wrong with each Dask worker that cannot run this psplatform, and those that do not answer.

    The latter restart, have ended or are stopped: what is installed there is not known.
    """
    ours = pkgutil.resolve_name(_VERSION)
    found = await _versions(client, addresses, TIMEOUTS.ask_all_s)
    if found is None:  # one of them keeps the others waiting
        alone = await asyncio.gather(*(_versions(client, [address], TIMEOUTS.ask_one_s) for address in addresses))
        found = {address: version for one in alone if one is not None for address, version in one.items()}
    silent = {one for one in addresses if one not in found or isinstance(found[one], OSError | TimeoutError)}
    told = {address: version for address, version in found.items() if address not in silent}
    return {address: _complaint(version, ours) for address, version in told.items() if version != ours}, silent


async def _versions(client: Client, addresses: Sequence[str], limit_s: float) -> dict[str, object] | None:
    try:
        async with asyncio.timeout(limit_s):
            found: dict[str, object] = await client.run(
                pkgutil.resolve_name, _VERSION, workers=list(addresses), on_error="return"
            )
    except TimeoutError:
        return None
    return found


async def restarting(client: Client, within_s: float) -> int:
    """Return how many Dask workers are to come: lost in the last `within_s` seconds, or registered and not running yet.

    Those that were lost and that no other has replaced since are started again by their nannies, if they have any.
    """
    scheduler: Any = client.scheduler
    since, missing = time.time() - within_s, 0
    for at, event in await scheduler.events(topic="all"):
        if at < since or not isinstance(event, dict):
            continue
        if event.get("action") == "remove-worker" and not event.get("expected"):
            missing += 1
        elif event.get("action") == "add-worker":
            missing = max(0, missing - 1)
    # Asked after the events, so that one that registers in between counts twice rather than never.
    workers = (await scheduler.identity(n_workers=-1))["workers"]
    beginning = [address for address, one in workers.items() if one.get("status") == "init"]
    return missing + len(beginning)


async def left_unannounced(client: Client, address: str, limit_s: float) -> bool:
    """Whether the Dask worker at `address` was last seen to leave without notice; no where the scheduler cannot say.

    Dask calls every removal unexpected but a retirement's; one that closes in good order announces that before.
    """
    scheduler: Any = client.scheduler
    if scheduler is None:
        return False
    try:
        async with asyncio.timeout(limit_s):
            events = await scheduler.events(topic=address)
    except (OSError, TimeoutError, RuntimeError):
        return False
    announced, left = False, False
    for _, event in events:
        action = event.get("action") if isinstance(event, dict) else None
        if action == "add-worker":
            announced, left = False, False
        elif action == "closing-worker":
            announced = True
        elif action == "remove-worker":
            announced, left = announced or bool(event.get("expected")), True
    return left and not announced


def _complaint(version: object, ours: str) -> str:
    if isinstance(version, BaseException):
        return f"has no psplatform ({version})"
    return f"has psplatform {version}, not {ours}"
