"""The event log as the coordinator's process keeps it: written to the store in the background, and folded into a view.

A store that fails for a while, a full disk say, holds nothing up: records wait in memory and the failure is shown.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

from psplatform.errors import StoreError
from psplatform.runtime.background import Background
from psplatform.runtime.recording import LogHistory
from psplatform.telemetry.read_model import RunView
from psplatform.telemetry.segments import Position
from psplatform.telemetry.writer import EventLog

_FLUSH_S: Final = 0.5
_LAST_TRIES: Final = 3
_OPENING_TRIES: Final = 60
_OPENING_PAUSE_S: Final = 1.0


class Journal:
    """One run's log under one term.

    Parameters
    ----------
    log, term
        Opened where this term's records go.
    view
        What the records before add up to.
    on_mark
        Called with the place in the log, and the records of this term up to there, when more of them are in the store.

    Attributes
    ----------
    view
        What the records so far add up to.
    unwritten
        The latest records, which may not be in the store yet.
    trouble
        Why the store could not be written to last time, or empty.
    """

    def __init__(self, log: EventLog, term: int, view: RunView | None = None) -> None:
        self.view = view or RunView()
        self._history = LogHistory(term)
        self.trouble = ""
        self.on_mark: Callable[[Position, int], None] = lambda position, records: None
        self.unwritten: list[dict[str, Any]] = []
        self._written = 0
        self._log = log
        self._background = Background()
        self._background.keep(self._flush_now_and_then)

    @classmethod
    async def open(
        cls,
        store: str,
        term: int,
        *,
        after: Position | None = None,
        view: RunView | None = None,
        again: list[dict[str, Any]] | None = None,
    ) -> Journal:
        """Return a journal of `term` that continues the log of a store.

        Parameters
        ----------
        after
            The place that it continues; by default the end.
        again
            Records beyond that place which `view` knows, and which are written again under this term.
        """
        journal = cls(await asyncio.to_thread(EventLog, store, term, after=after), term, view)
        for record in again or ():
            journal._buffer(record)
        return journal

    @classmethod
    async def succeed(
        cls, store: str, term: int, after: Position, view: RunView, again: list[dict[str, Any]]
    ) -> Journal:
        """Return a journal that continues a coordinator's that is lost, as `open` does, however long the store fails.

        Raises
        ------
        StoreError
            If it fails for a minute.
        """
        for _ in range(_OPENING_TRIES):
            with contextlib.suppress(StoreError):
                return await cls.open(store, term, after=after, view=view, again=again)
            await asyncio.sleep(_OPENING_PAUSE_S)
        return await cls.open(store, term, after=after, view=view, again=again)

    @property
    def place(self) -> tuple[Position, int]:
        """The place in the log up to which everything is in the store, and how many of this term's records that is."""
        return self._log.mark.position, self._written

    def append(self, record: dict[str, Any]) -> None:
        """Add a record."""
        self.view.apply(record)
        self._buffer(record)

    def _buffer(self, record: dict[str, Any]) -> None:
        self._history.note(self.view.run.get("run", ""), record)
        self.unwritten.append(record)
        self._log.buffer(record)

    async def close(self) -> None:
        """Bring out what is still in memory; what the store refuses is named in `trouble`."""
        self.abandon()
        for _ in range(_LAST_TRIES):
            if await self._flush():
                return
            await asyncio.sleep(_FLUSH_S)

    def abandon(self) -> None:
        """Write nothing more: another goes on with the log."""
        self._background.close()

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
        finally:
            self._note_mark()
        self.trouble = ""
        return True

    def _note_mark(self) -> None:
        mark = self._log.mark
        if mark.records > self._written:
            del self.unwritten[: mark.records - self._written]
            self._written = mark.records
            self.on_mark(mark.position, mark.records)
