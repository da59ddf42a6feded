"""Being told before a process ends in good order.

Dask refuses to retire a worker that has actors, and then closes it all the same (adaptive clusters, lifetimes,
signals).  What it does before is to wait a few seconds for the worker's plugins.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from distributed import Worker, WorkerPlugin
from distributed.worker import WORKER_ANY_RUNNING

from psplatform.runtime.timeouts import TIMEOUTS


class BeforeTheEnd(WorkerPlugin):
    """Lets an actor do something before its process ends.

    Parameters
    ----------
    name
        Of this plugin; one of the same name replaces it.
    action
        Awaited while the process closes; it must take less than four seconds.
    """

    def __init__(self, name: str, action: Callable[[], Awaitable[None]]) -> None:
        self.name = name
        self._action: Callable[[], Awaitable[None]] | None = action

    def disarm(self) -> None:
        """Do nothing any more."""
        self._action = None

    async def teardown(self, worker: Worker) -> None:
        """Do it."""
        if self._action is not None:
            await self._action()


async def before_the_end(worker: Any, name: str, action: Callable[[], Awaitable[None]]) -> None:
    """Have `action` awaited before the Dask worker `worker` ends."""
    await worker.plugin_add(plugin=BeforeTheEnd(f"psplatform-{name}", action), name=f"psplatform-{name}")


async def not_before_the_end(worker: Any, name: str) -> None:
    """Forget what `before_the_end` was given under that name."""
    plugin = worker.plugins.get(f"psplatform-{name}")
    if plugin is not None:
        plugin.disarm()
    if (
        worker.status in WORKER_ANY_RUNNING
    ):  # else Dask is about to ask every plugin, and misses those that are not there
        worker.plugins.pop(f"psplatform-{name}", None)


def begin_to_forget_the_end(worker: Any, name: str) -> None:
    """Do what `not_before_the_end` does, in a task of the running event loop."""
    asyncio.get_running_loop().create_task(not_before_the_end(worker, name))


class Retirement:
    """The end in good order of an actor whose part another has to take over first.

    Parameters
    ----------
    announce
        Says that it is about to end; awaited once.

    Attributes
    ----------
    has_begun
        Whether it is about to end.
    """

    def __init__(self, announce: Callable[[], Awaitable[None]]) -> None:
        self._announce = announce
        self._over = asyncio.Event()
        self.has_begun = False

    @property
    def is_over(self) -> bool:
        """Whether it is not needed any more."""
        return self._over.is_set()

    def end(self) -> None:
        """Let it end: it is not needed any more."""
        self._over.set()

    async def take_place(self) -> None:
        """Say that it is about to end, and wait until it is not needed any more, or for a while."""
        self.has_begun = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TIMEOUTS.retirement_s):
                await self._announce()
                await self._over.wait()
