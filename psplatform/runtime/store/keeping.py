"""A run's store as its coordinator keeps it: looked at before each writing, and described anew where it was removed."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Self

from psplatform.errors import StoreError
from psplatform.replication.stores.guard import RENEWED, StoreGone, StoreGuard
from psplatform.replication.stores.store import describe_run
from psplatform.runtime.program import Program
from psplatform.runtime.timeouts import TIMEOUTS


@dataclass(frozen=True)
class StoreKeeper:
    """The one who describes a run in its store, as long as that is the run's own.

    Attributes
    ----------
    description
        What the store says of its run, or said before it was removed.
    """

    store: str
    description: dict[str, Any]
    guard: StoreGuard

    @classmethod
    def of(cls, program: Program, description: dict[str, Any]) -> Self:
        """Return the keeper of a run's store."""
        return cls(program.store, description, StoreGuard(program.store, program.run, program.term))

    def ensure(self, written: str = "") -> bool:
        """See that the store describes the run; return whether it, or what was `written` there, had been removed.

        Raises
        ------
        StoreTaken
            If another run is there: nothing must be written then.
        StoreError
            If the storage fails.
        """
        try:
            self.guard.check(written)
        except StoreGone:
            self.guard.renew({**self.description, RENEWED: time.time()})
            return True
        return False


async def is_seen_here(program: Program) -> bool:
    """Whether this process sees the store, and as the run's own; one that does not answer soon is not seen."""
    try:
        async with asyncio.timeout(TIMEOUTS.store_look_s):
            # In the thread, because making a guard may connect to the storage.
            await asyncio.to_thread(lambda: StoreGuard(program.store, program.run, program.term).check())
    except (StoreError, TimeoutError):
        return False
    return True


async def keeper_of(program: Program) -> StoreKeeper:
    """Return the keeper of the store that a run begins or goes on in."""
    description = await asyncio.to_thread(describe_run, program.store)
    description.pop("format", None)
    return StoreKeeper.of(program, description)
