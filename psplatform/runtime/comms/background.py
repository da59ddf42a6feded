"""Work in the background of one actor: nothing of it is forgotten, and what it raises is told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from psplatform.tasks.foreign import describe

LOGGER: Final = logging.getLogger(__name__)

Log = logging.Logger | logging.LoggerAdapter[logging.Logger]
Work = Callable[[], Coroutine[Any, Any, None]]


class Background:
    """Tasks that nobody awaits.

    Parameters
    ----------
    on_failure
        Called with words for what a task raised; whatever it is, it was not foreseen.
    log
        Where that is written with its traceback.
    """

    def __init__(self, on_failure: Callable[[str], None] = lambda text: None, log: Log = LOGGER) -> None:
        self._on_failure, self._log = on_failure, log
        self._tasks: set[asyncio.Task[None]] = set()
        self._kept: set[Kept] = set()

    def do(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do `work` from now on; return its task."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    def keep(self, work: Work) -> Kept:
        """Do `work` from now on, and again when it was cancelled from elsewhere; return what ends it."""
        kept = Kept(work, self)
        self._kept.add(kept)
        return kept

    def forget(self, kept: Kept) -> None:
        """Keep this no longer."""
        self._kept.discard(kept)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self.tell_of(error)

    def tell_of(self, error: Exception) -> None:
        """Tell what was raised, as if a task had raised it."""
        kind, text, trace = describe(error)
        self._log.error("%s: %s\n%s", kind, text, trace)
        self._on_failure(f"{kind}: {text}")

    def close(self) -> None:
        """Cancel whatever is under way, except for who calls this."""
        current = asyncio.current_task()
        for kept in list(self._kept):
            kept.end(but=current)
        for task in self._tasks - {current}:
            task.cancel()


class Kept:
    """Work that goes on until it is done or ended by its owner.

    Where a signal ends a Dask worker, everything on its event loop is cancelled before its plugins are asked, and its
    actors are needed for some seconds more.
    """

    def __init__(self, work: Work, background: Background) -> None:
        self._work = work
        self._background = background
        self._ended = False
        self._begin()

    def _begin(self) -> None:
        self._task = self._background.do(self._work())
        # It may go on until its loop is closed, or begin again when that is about to happen: no news to anybody.
        self._task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001  there is no other way
        self._task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() and not self._ended and not asyncio.get_running_loop().is_closed():
            self._begin()
        else:
            self._background.forget(self)

    def end(self, but: asyncio.Task[Any] | None = None) -> None:
        """Cancel it for good, unless it is the task `but` that asks."""
        self._ended = True
        if self._task is not but:
            self._task.cancel()
