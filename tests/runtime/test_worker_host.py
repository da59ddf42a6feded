"""A gradient worker's actor while it is opened: what has been given up meanwhile takes no memory."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from psplatform.core.protocol.messages import Stop
from psplatform.runtime.actors.worker import host
from psplatform.runtime.actors.worker.host import WorkerHost
from psplatform.runtime.comms.calls import Peer

LIMIT_S = 180.0


class Opening:
    """A worker whose task is built, and that attaches to servers which do not answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.attaching, self.given_back = asyncio.Event(), False
        self.worker = WorkerHost("run", "worker-1", Peer("tcp://127.0.0.1:1", "coordinator"), {})
        monkeypatch.setattr(host, "get_worker", lambda: SimpleNamespace(address="tcp://127.0.0.1:2"))
        transport = SimpleNamespace(connections=self._connections)
        monkeypatch.setattr(host, "TRANSPORTS", {"auto": transport})
        self.may_be_built = threading.Event()
        monkeypatch.setattr(self.worker, "_build", self._build)
        monkeypatch.setattr(self.worker, "_make_node", lambda process: (None, SimpleNamespace(attach=self._attach)))
        self.opened = asyncio.ensure_future(self.worker.open(SimpleNamespace(transport="auto")))  # type: ignore[arg-type]

    def _build(self) -> None:
        self.worker._closing.callback(self._give_back)
        self.may_be_built.wait(LIMIT_S)

    def _give_back(self) -> None:
        self.given_back = True

    @staticmethod
    async def _connections(*_: Any) -> None:
        return None

    async def _attach(self, copies: Any) -> None:
        self.attaching.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize("when", ["while its task is built", "while it attaches"])
def test_one_that_is_closed_before_it_is_open_gives_back_its_memory(monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """The run has ended, and with it the servers that would have answered."""

    async def open_and_close() -> bool:
        opening = Opening(monkeypatch)
        if when == "while it attaches":
            opening.may_be_built.set()
            await opening.attaching.wait()
        assert not opening.given_back
        await asyncio.sleep(0)
        await opening.worker.close()
        opening.may_be_built.set()
        await opening.opened
        return opening.given_back

    assert asyncio.run(asyncio.wait_for(open_and_close(), LIMIT_S))


@pytest.mark.parametrize("way", ["take", "from a thread", "when a timer fires"])
def test_a_worker_that_cannot_handle_what_it_hears_leaves(way: str) -> None:
    """Raised, it would make the coordinator send the message again, which would be ignored as a duplicate."""
    told: list[str] = []

    def feed(event: Any) -> None:
        raise ValueError(f"cannot handle {event.reason}")

    async def hear() -> None:
        worker: Any = WorkerHost("run", "worker-1", Peer("tcp://127.0.0.1:1", "coordinator"), {})
        worker._node = SimpleNamespace(feed=feed)
        worker._background.tell_of = lambda error: told.append(str(error))
        said = Stop(1, "this")
        if way == "take":
            assert worker.take("coordinator-1", (said,))
        elif way == "from a thread":
            worker._loop = asyncio.get_running_loop()
            await asyncio.to_thread(worker._feed_from_thread, said)
            await asyncio.sleep(0)
        else:
            worker._try(feed, said)

    asyncio.run(hear())
    assert told == ["cannot handle this"]
