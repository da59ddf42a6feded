"""Which processes have imported what a role needs; others import it in a thread, before anything is made there.

Importing torch takes seconds of a core.  On the event loop of a process it would keep everything waiting that goes
through it, the roles of other runs included, and a shard that waits for a new replica is not protected meanwhile.  This
module is light, because a process must load it before it is warm.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from distributed import Client

from psplatform.core.supervision.placement import Process
from psplatform.runtime.timeouts import TIMEOUTS

MODULES: Final = (
    "psplatform.runtime.actors.coordinator.host",
    "psplatform.runtime.actors.copy_host",
    "psplatform.runtime.actors.evaluator_host",
    "psplatform.runtime.actors.worker.host",
)
"""What roles are made of; with them comes everything that they need."""


_MOST_SPARES: Final = 8


async def warm_here() -> None:
    """Import what every role needs, in a thread of this process."""
    await asyncio.to_thread(_import_all)


def _import_all() -> None:
    for name in MODULES:
        importlib.import_module(name)


async def is_warm_here() -> bool:
    """Whether this process has imported what every role needs."""
    return all(name in sys.modules for name in MODULES)


class Warmth:
    """What one run knows of the processes that are warm.

    Parameters
    ----------
    client
        An asynchronous client.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._warm: set[str] = set()
        self._warming: dict[str, asyncio.Task[None]] = {}

    @property
    def known(self) -> frozenset[str]:
        """The processes that are known to be warm."""
        return frozenset(self._warm)

    def note(self, addresses: Iterable[str]) -> None:
        """Count these processes as warm: a role was made there."""
        self._warm.update(addresses)

    def forget(self, address: str) -> None:
        """Count the process at that address as cold: it is another one now."""
        self._warm.discard(address)

    def cold(self, addresses: Iterable[str]) -> set[str]:
        """Return which of these processes are not known to be warm."""
        return set(addresses) - self._warm

    async def ask(self, addresses: Collection[str]) -> None:
        """Learn which of these processes are warm, from those that answer in time."""
        for address, answer in (await self._run(is_warm_here, sorted(addresses), TIMEOUTS.warm_ask_s)).items():
            if answer is True:
                self._warm.add(address)

    async def warm(self, address: str) -> None:
        """Let a process become warm, unless it is; return after a minute, or when it cannot, as well."""
        if address in self._warm:
            return
        if address not in self._warming:
            self._warming[address] = asyncio.create_task(self._let_import(address))
        await asyncio.shield(self._warming[address])

    async def _let_import(self, address: str) -> None:
        try:
            if (await self._run(warm_here, [address], TIMEOUTS.warm_s)).get(address, False) is None:
                self._warm.add(address)
        finally:
            self._warming.pop(address, None)

    async def _run(self, function: Any, addresses: Sequence[str], limit_s: float) -> dict[str, Any]:
        if not addresses:
            return {}
        try:
            async with asyncio.timeout(limit_s):
                found: Any = await self._client.run(function, workers=list(addresses), on_error="return")
        except (OSError, TimeoutError, RuntimeError):  # the last where the client is closed
            return {}
        return dict(found)


def next_spare(processes: Sequence[Process], taken: Collection[str], cold: Collection[str]) -> str | None:
    """Return which process is to become warm next, or ``None`` where there are enough that are.

    There shall be as many warm processes without a role as there are with one, at most eight, on all hosts alike:
    whatever is lost is made again in one of them.

    Parameters
    ----------
    taken
        Processes with a role.
    cold
        Processes that are not warm.
    """
    idle = [one for one in processes if one.address not in taken]
    spare = Counter(one.host for one in idle if one.address not in cold)
    if spare.total() >= min(_MOST_SPARES, max(1, len(taken))):
        return None
    best = min(
        (one for one in idle if one.address in cold), key=lambda one: (spare[one.host], one.address), default=None
    )
    return best.address if best is not None else None
