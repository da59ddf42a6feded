"""A flag by which one thread asks another to give up a computation."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_heeded = threading.local()
_making = threading.Lock()


class Cancelled(BaseException):
    """The computation was given up on request.

    Like ``asyncio.CancelledError`` it is no ``Exception``: user code that catches those cannot swallow it.
    """


class Cancellation:
    """A thread-safe flag that is raised once and never lowered."""

    __slots__ = ("_cancelled", "_waking")

    def __init__(self) -> None:
        self._cancelled = False
        self._waking: threading.Event | None = None  # made for who waits: of the many that there are, hardly any is

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled

    def cancel(self) -> None:
        """Ask the computation to stop at its next check; calling again changes nothing."""
        self._cancelled = True
        if self._waking is not None:
            self._waking.set()

    def check(self) -> None:
        """Raise `Cancelled` if the flag is up."""
        if self._cancelled:
            raise Cancelled

    def wait(self, seconds: float) -> bool:
        """Sleep until cancelled or until `seconds` are over; tell whether it was cancelled."""
        with _making:
            waking = self._waking = self._waking or threading.Event()
        if not self._cancelled:  # looked at last, as `cancel` looks for who sleeps last: one of them sees the other
            waking.wait(seconds)
        return self._cancelled


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
