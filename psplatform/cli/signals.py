"""Signals that ask a program to end interrupt it as Ctrl-C does, so that a run is stopped in good order."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Final, NoReturn

_ENDING: Final = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class AskedToEnd(KeyboardInterrupt):
    """A signal, not the keyboard, has asked the program to end."""


def _interrupt(number: int, _frame: FrameType | None) -> NoReturn:
    raise AskedToEnd(f"interrupted by {signal.Signals(number).name}")


@contextlib.contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Raise `AskedToEnd` in the main thread where SIGTERM or SIGHUP would end the program.

    What it was started to ignore, as by ``nohup``, it goes on to ignore.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _ENDING}
    taken = [number for number, handler in before.items() if handler is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
