"""A flag by which one thread asks another to give up a computation."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_heeded = threading.local()


class Cancelled(BaseException):
    """The computation was given up on request.

    Like ``asyncio.CancelledError`` it is no ``Exception``: user code that catches those cannot swallow it.
    """


class Cancellation:
    """A thread-safe flag that is raised once and never lowered."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = threading.Event()

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._event.is_set()

    def cancel(self) -> None:
        """Ask the computation to stop at its next check; calling again changes nothing."""
        self._event.set()

    def check(self) -> None:
        """Raise `Cancelled` if the flag is up."""
        if self._event.is_set():
            raise Cancelled

    def wait(self, seconds: float) -> bool:
        """Sleep until cancelled or until `seconds` are over; tell whether it was cancelled."""
        return self._event.wait(seconds)


@contextmanager
def heeding(cancel: Cancellation) -> Iterator[None]:
    """Let `check` look at `cancel` in this thread while the block runs."""
    _heeded.cancellation = cancel
    try:
        yield
    finally:
        _heeded.cancellation = None


def check() -> None:
    """Raise `Cancelled` if nobody wants any more what this thread computes.

    A task's `compute` may call it now and then: the worker is free sooner when the model has moved on.
    """
    cancellation: Cancellation | None = getattr(_heeded, "cancellation", None)
    if cancellation is not None:
        cancellation.check()
