"""Starting programs from a thread that has the priority the dashboard was started with.

A process inherits the priority of the thread that starts it, and threads that serve pages give way to training.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from psplatform.errors import ConfigurationError

T = TypeVar("T")

_STARTS_S: Final = 30.0
"""For starting a program: forking, not what it does then."""


class _Thread:
    executor: ThreadPoolExecutor | None = None


def begin() -> None:
    """Start the thread, unless it runs."""
    if _Thread.executor is None:
        _Thread.executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="launcher")
        _Thread.executor.submit(int).result()


def launch(start: Callable[[], T]) -> T:
    """Return what `start` returns, called in that thread.

    Raises
    ------
    ConfigurationError
        If it takes too long; the program may start yet.
    """
    begin()
    if _Thread.executor is None:
        return start()
    try:
        return _Thread.executor.submit(start).result(timeout=_STARTS_S)
    except TimeoutError as error:
        message = (
            f"starting the program took longer than {_STARTS_S:g} s; look at the page Programs before trying again"
        )
        raise ConfigurationError(message) from error
