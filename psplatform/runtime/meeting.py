"""Connections made ahead: a call in a hurry, when all cores are busy, then takes no handshake.

Dask keeps the connection of a call for the next one to the same address.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection
from typing import Any, Final

from distributed import Client, Worker

_LIMIT_S: Final = 10.0


async def meet(client: Client, worker: Worker, addresses: Collection[str]) -> None:
    """Let `worker`, in whose process this runs, and the Dask workers at `addresses` connect to each other.

    Whoever is not there, or does not answer, is connected to when it is called.
    """
    others = sorted(set(addresses) - {worker.address})
    if others:
        meetings = [connect(one, worker) for one in others]
        await asyncio.gather(_let_connect(client, worker.address, others), *meetings)


async def _let_connect(client: Client, address: str, others: list[str]) -> None:
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_LIMIT_S):
            running: Any = client.run(connect, address, workers=others, on_error="ignore")
            await running


async def connect(address: str, dask_worker: Worker) -> None:
    """Let a Dask worker connect to the one at `address`; it is passed to what `Client.run` calls by that name."""
    with contextlib.suppress(OSError, RuntimeError, TimeoutError):
        async with asyncio.timeout(_LIMIT_S):
            await dask_worker.rpc(address).identity()
