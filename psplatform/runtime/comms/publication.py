"""Where a run's coordinator is, for programs that look for it: in the metadata of its scheduler."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import Awaitable, Callable
from typing import Any

from distributed import Client, Security, Worker

from psplatform.runtime.comms.calls import Peer
from psplatform.runtime.comms.hosting import dataset_name
from psplatform.runtime.comms.scheduler_side import forget_run, show_card, take_card
from psplatform.runtime.timeouts import TIMEOUTS


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


class Card:
    """What programs find of a run on its scheduler: shown while it goes on, gone when it is over.

    Parameters
    ----------
    client
        The coordinator's own.
    """

    def __init__(self, client: Client, run: str, store: str, coordinator: Peer) -> None:
        self._client, self._run, self._store = client, run, store
        self._coordinator = coordinator
        self._withdrawn = False
        self._turn = asyncio.Lock()

    async def show(self, term: int, *, standby: bool) -> None:
        """Let programs find the coordinator of that term, and know whether another would take over from it.

        One that was replaced and does not know it does not stand in the way of its successor.
        """
        async with self._turn:
            if not self._withdrawn:
                here = {"address": self._coordinator.address, "key": self._coordinator.key}
                await _show(self._client, self._run, {**here, "store": self._store, "standby": standby, "term": term})

    async def retract(self) -> None:
        """Let nobody find the coordinator here any more: it leads no longer; its successor's card stays."""
        async with self._turn:
            self._withdrawn = True
            with contextlib.suppress(OSError, TimeoutError):
                await _on_scheduler(self._client, take_card, run=self._run, key=self._coordinator.key)

    async def withdraw(self) -> None:
        """Let nobody find the run any more, and have its scheduler forget it."""
        async with self._turn:
            self._withdrawn = True
            await withdraw(self._client, self._run)


async def _show(client: Client, run: str, card: dict[str, Any]) -> None:
    with contextlib.suppress(OSError, KeyError, TimeoutError):
        if not await _on_scheduler(client, show_card, run=run, card=card):
            await _answered_in_time(client.set_metadata([dataset_name(run)], card))


async def withdraw(client: Client, run: str) -> None:
    """Let nobody find a run any more, and have its scheduler forget it: it is over, or begins anew."""
    with contextlib.suppress(KeyError, OSError, TimeoutError):  # it may have been done before, or not been published
        await _answered_in_time(client.unpublish_dataset(dataset_name(run)))
    with contextlib.suppress(KeyError, OSError, TimeoutError):
        if not await _on_scheduler(client, forget_run, run=run):
            await _answered_in_time(client.set_metadata([dataset_name(run)], None))


async def _answered_in_time(asking: Awaitable[Any]) -> None:
    """Wait for an answer of the scheduler, for a while: it may be stopped, and Dask would wait for ever."""
    async with asyncio.timeout(TIMEOUTS.card_s):
        await asking


async def _on_scheduler(client: Client, function: Callable[..., None], **arguments: Any) -> bool:
    """Have the scheduler call a function; return whether it has it: it may run another psplatform."""
    if client.scheduler is None:  # Dask has given it up
        return True
    try:
        await _answered_in_time(client.run_on_scheduler(function, **arguments))
    except (OSError, TimeoutError):
        raise
    except Exception:  # noqa: BLE001  Dask raises here whatever was raised there, an ImportError for example
        return False
    return True
