"""Starting programs from a thread that has the priority the dashboard was started with.

A process inherits the priority of the thread that starts it, and threads that serve pages give way to training.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

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
    """Return what `start` returns, called in that thread."""
    begin()
    if _Thread.executor is None:
        return start()
    return _Thread.executor.submit(start).result(timeout=_STARTS_S)
