"""The event log as the coordinator's process keeps it: written to the store in the background, and folded into a view.

A store that fails for a while, a full disk say, holds nothing up: records wait in memory and the failure is shown.  One
that was removed is described anew, with a log that begins where the run stands; one that is another's by now gets
nothing more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Any, Final

from psplatform.errors import StoreError
from psplatform.replication.stores.guard import StoreTaken
from psplatform.runtime.comms.background import Background
from psplatform.runtime.store.keeping import StoreKeeper
from psplatform.runtime.store.recording import LogHistory
from psplatform.runtime.timeouts import TIMEOUTS
from psplatform.telemetry.log.folder import SegmentFolder
from psplatform.telemetry.log.reader import LogReader
from psplatform.telemetry.log.renewal import records_to_go_on
from psplatform.telemetry.log.segments import START, Position, Record
from psplatform.telemetry.log.writer import EventLog
from psplatform.telemetry.read_model import RunView

_LAST_TRIES: Final = 3
_OPENING_TRIES: Final = 60
_RENEWED: Final = "the store was removed while the run went on, and is made anew: its log begins at version {version}"
_DESCRIBED: Final = "the zarr.json of the store was removed while the run went on, and is written anew"


class RunLog:
    """One run's log under one term.

    Parameters
    ----------
    log
        Opened where this term's records go; ``None`` where the store is another's.
    view
        What the records before add up to.
    keeper
        Sees that the store is the run's own; without one, nobody does.
    term
        This log's.

    Attributes
    ----------
    view
        What the records so far add up to.
    unwritten
        The latest records, which may not be in the store yet.
    trouble
        Why the store could not be written to last time, or empty.
    on_mark
        Called with the place in the log, and the records of this term up to there, when more of them are in the store.
    on_news
        Called with words when the store was found to be removed or another's, and whether it was made anew.
    """

    def __init__(
        self,
        log: EventLog | None,
        view: RunView | None = None,
        keeper: StoreKeeper | None = None,
        term: int = 1,
        background: Background | None = None,
    ) -> None:
        self.view = view or RunView()
        self._history = LogHistory(term)
        self.trouble = ""
        self.on_mark: Callable[[Position, int], None] = lambda position, records: None
        self.on_news: Callable[[str, bool], None] = lambda text, renewed: None
        self.unwritten: list[Record] = []
        self.keeper = keeper
        self._term = term
        self._written = 0
        self._place = log.position if log is not None else START
        self._log = log
        # What a log begins with that was made anew is known to everybody and not counted.
        self._uncounted = log.mark.records if log is not None else 0
        self._news: str = _RENEWED.format(version=self.view.updates) if self._uncounted else ""
        self._turn = Lock()
        self._background = background or Background()
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
        keeper: StoreKeeper | None = None,
        background: Background | None = None,
    ) -> RunLog:
        """Return a run log of `term` that continues the log of a store.

        Parameters
        ----------
        after
            The place that it continues; by default the end.
        again
            Records beyond that place which `view` knows, and which are written again under this term.
        keeper
            With one, a store that was removed is made anew.
        background
            Does the writing now and then.
        """
        log = await asyncio.to_thread(_opened, store, term, after, view, keeper)
        run_log = cls(log, view, keeper, term, background)
        for record in again or ():
            run_log._buffer(record)
        return run_log

    @classmethod
    async def succeed(
        cls,
        store: str,
        term: int,
        after: Position,
        view: RunView,
        again: list[dict[str, Any]],
        keeper: StoreKeeper | None = None,
        background: Background | None = None,
    ) -> RunLog:
        """Return a run log that continues a coordinator's that is lost, as `open` does, however long the store fails.

        Raises
        ------
        StoreError
            If it fails for a minute.
        """
        open_log = partial(
            cls.open, store, term, after=after, view=view, again=again, keeper=keeper, background=background
        )
        for _ in range(_OPENING_TRIES):
            with contextlib.suppress(StoreError):
                return await open_log()
            await asyncio.sleep(TIMEOUTS.open_log_retry_s)
        return await open_log()

    @property
    def place(self) -> tuple[Position, int]:
        """The place in the log up to which everything is in the store, and how many of this term's records that is."""
        return self._place, self._written

    @property
    def taken(self) -> bool:
        """Whether the store is another's, and nothing of this run is kept."""
        return self._log is None

    def append(self, record: dict[str, Any]) -> None:
        """Add a record."""
        self.view.apply(record)
        self._buffer(record)

    def _buffer(self, record: dict[str, Any]) -> None:
        self._history.note(self.view.run.get("run", ""), record)
        self.unwritten.append(record)
        if self._log is not None:
            self._log.buffer(record)

    async def close(self) -> None:
        """Bring out what is still in memory; what the store refuses is named in `trouble`."""
        self.abandon()
        for _ in range(_LAST_TRIES):
            if await self._flush():
                return
            await asyncio.sleep(TIMEOUTS.flush_s)

    def abandon(self) -> None:
        """Write nothing more: another goes on with the log."""
        self._background.close()

    async def _flush_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(TIMEOUTS.flush_s)
            await self._flush()

    async def _flush(self) -> bool:
        """Bring out what waits; return whether nothing waits any more, be it because nothing will ever be taken."""
        if self._news:
            news, self._news = self._news, ""
            self.on_news(news, True)
        try:
            goes_on = await asyncio.shield(asyncio.to_thread(self._bring_out, self._log))
        except StoreTaken as error:
            self._give_up(str(error))
            return True
        except StoreError as error:
            self.trouble = str(error)
            return False
        finally:
            self._note_mark()
        self.trouble = ""
        if not goes_on:
            await self._renew()
        return goes_on

    def _bring_out(self, log: EventLog | None) -> bool:
        """Write what waits; return whether the log goes on, which it cannot where it was removed.  In a thread."""
        with self._turn:
            if self.keeper is not None:
                written = f"log/{self._place.name}" if self._place != START else ""
                removed = self.keeper.ensure(written)
                if log is None or (removed and not _continues(self.keeper.store, self._place)):
                    return False
                if removed:
                    self._news = _DESCRIBED
            if log is not None:
                log.flush()
            return True

    async def _renew(self) -> None:
        """Begin the log anew, where the run stands."""
        view, keeper = self.view, self.keeper
        if keeper is None:
            return
        version = view.updates
        try:
            log = await asyncio.shield(
                asyncio.to_thread(_begun, keeper.store, self._term, records_to_go_on(view), self._turn)
            )
        except StoreError as error:
            self.trouble = str(error)
            return
        self._log, self._uncounted = log, log.mark.records - self._written
        self._place = log.position
        for record in self.unwritten:
            log.buffer(record)
        self.on_mark(self._place, self._written)
        self.on_news(_RENEWED.format(version=version), True)

    def _give_up(self, text: str) -> None:
        """Keep nothing more: the store is another's."""
        if self.trouble != text:
            self.trouble = text
            self._log = None
            self.on_news(text, False)
        self._written += len(self.unwritten)
        self.unwritten.clear()
        self.on_mark(self._place, self._written)

    def _note_mark(self) -> None:
        if self._log is None:
            return
        mark = self._log.mark
        records = mark.records - self._uncounted
        if records > self._written:
            del self.unwritten[: records - self._written]
            self._written, self._place = records, mark.position
            self.on_mark(mark.position, records)


def _opened(
    store: str, term: int, after: Position | None, view: RunView | None, keeper: StoreKeeper | None
) -> EventLog | None:
    """Return the log of a store under `term`, ``None`` where the store is another's."""
    if keeper is None:
        return EventLog(store, term, after=after)
    try:
        removed = keeper.ensure()
    except StoreTaken:
        return None
    # A log that cannot be read may be read later, unless parts of it were removed.
    if after is None or (_continues(store, after) if removed else LogReader(store).history().holds(after)):
        return EventLog(store, term, after=after)
    return _begun(store, term, records_to_go_on(view or RunView()))


def _continues(store: str, place: Position) -> bool:
    """Return whether what is left of the log goes on at a place."""
    try:
        return LogReader(store).history().holds(place)
    except StoreError:
        return False


def _begun(store: str, term: int, records: list[Record], turn: Lock | None = None) -> EventLog:
    """Return a log of `term` that begins with these records, in place of what is left of the one before."""
    with turn or Lock():
        SegmentFolder(store).clear(term)
        log = EventLog(store, term, after=START)
        for record in records:
            log.buffer(record)
        log.flush()
    return log
