"""A thread that does what it is asked for, one thing after the other, and is woken through a pipe.

Which core a thread goes on at is the kernel's choice.  It lets the reader of a pipe follow its writer, who is about to
rest, but a thread that waits for a lock, as in executors of the standard library, mostly wakes at another core, and
then takes three times as long until it has the interpreter: small models would feel that in each gradient.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from threading import Thread


class ComputingThread:
    """The thread, from when it is first asked for something."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._asked: deque[Callable[[], object]] = deque()
        self._pipe: tuple[int, int] | None = None
        self._closed = False

    def do(self, what: Callable[[], object]) -> None:
        """Do that after everything asked for before; nothing, once it is closed."""
        if self._closed:
            return
        if self._pipe is None:
            self._pipe = os.pipe()
            Thread(target=self._work, args=(self._pipe[0],), name=self._name, daemon=True).start()
        self._asked.append(what)
        os.write(self._pipe[1], b"+")

    def close(self) -> None:
        """Do nothing more after what is at hand."""
        self._closed = True
        self._asked.clear()
        if self._pipe is not None:
            os.close(self._pipe[1])
            self._pipe = None

    def _work(self, pipe: int) -> None:
        try:
            while os.read(pipe, 1):
                if self._asked:
                    self._asked.popleft()()
        finally:
            os.close(pipe)
