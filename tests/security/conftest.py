"""A scheduler that sends a pickle to all who connect, and a user who is not the owner of a run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed.comm import listen
from distributed.protocol.serialize import ToPickle


class Payload:
    """Unpickled, it makes a folder: the mark of code that has run."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.mkdir, (self._mark, 0o777, True, True)


class CraftedScheduler:
    """Listens like a Dask scheduler and answers everything with the payload.

    Attributes
    ----------
    address
        Where it listens.
    mark
        The folder that is there once the payload was unpickled.
    connections
        How many programs have connected to it.
    """

    def __init__(self, mark: Path) -> None:
        self.mark, self.address, self.connections = mark, "", 0
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        assert self._ready.wait(180.0)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        listener = listen("tcp://127.0.0.1:0", self._answer)
        listener.on_connection = self._count(listener.on_connection)  # before Dask's own greeting
        self._loop.run_until_complete(listener.start())
        self.address = listener.contact_address
        self._ready.set()
        self._loop.run_forever()
        listener.stop()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def _count(self, greet: Any) -> Any:
        async def counted(comm: Any, handshake_overrides: Any = None) -> None:
            self.connections += 1
            await greet(comm, handshake_overrides)

        return counted

    async def _answer(self, comm: Any) -> None:
        try:
            while True:
                await comm.read()
                await comm.write({"op": "stream-start", "payload": ToPickle(Payload(self.mark))})
        except OSError:
            await comm.close()

    def end(self) -> None:
        """Listen no more."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30.0)


@pytest.fixture
def crafted(tmp_path: Path) -> Iterator[CraftedScheduler]:
    """Return a scheduler whose answers run code where they are unpickled."""
    found = CraftedScheduler(tmp_path / "code has run")
    yield found
    found.end()
