"""The event log as the coordinator's process keeps it: written to the store in the background, and folded into a view.

A store that fails for a while, a full disk say, holds nothing up: records wait in memory and the failure is shown.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from psplatform.errors import StoreError
from psplatform.telemetry.read_model import RunView
from psplatform.telemetry.writer import EventLog

_FLUSH_S: Final = 0.5
_LAST_TRIES: Final = 3


class Journal:
    """One run's log under one term.

    Attributes
    ----------
    view
        What the records so far add up to.
    trouble
        Why the store could not be written to last time, or empty.
    """

    def __init__(self, store: str, term: int) -> None:
        self.view = RunView()
        self.trouble = ""
        self._log = EventLog(store, term)
        self._task = asyncio.create_task(self._flush_now_and_then())

    def append(self, record: dict[str, Any]) -> None:
        """Add a record."""
        self.view.apply(record)
        self._log.buffer(record)

    async def close(self) -> None:
        """Bring out what is still in memory; what the store refuses is named in `trouble`."""
        self._task.cancel()
        for _ in range(_LAST_TRIES):
            if await self._flush():
                return
            await asyncio.sleep(_FLUSH_S)

    async def _flush_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_S)
            await self._flush()

    async def _flush(self) -> bool:
        try:
            await asyncio.shield(asyncio.to_thread(self._log.flush))
        except StoreError as error:
            self.trouble = str(error)
            return False
        self.trouble = ""
        return True
