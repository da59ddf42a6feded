"""The thread that gradients are computed in: in order, one after the other, and gone when it is closed."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from queue import Queue

import pytest

from psplatform.runtime.actors.worker.computing_thread import ComputingThread

LIMIT_S = 180.0


def pipes() -> list[Path]:
    found = []
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if str(one.readlink()).startswith("pipe:"):
                found.append(one)
    return sorted(found)


@pytest.fixture
def done() -> Queue[object]:
    return Queue()


def test_what_is_asked_for_is_done_in_order_in_one_thread(done: Queue[object]) -> None:
    thread = ComputingThread("computes")
    for number in range(50):
        thread.do(lambda number=number: done.put((number, threading.current_thread())))  # type: ignore[misc]
    found = [done.get(timeout=LIMIT_S) for _ in range(50)]
    assert [number for number, _ in found] == list(range(50))
    (where,) = {thread for _, thread in found}
    assert where.name == "computes"
    thread.close()
    where.join(LIMIT_S)
    assert not where.is_alive()


def test_closed_it_ends_after_what_is_at_hand_and_does_nothing_more(done: Queue[object]) -> None:
    thread, goes_on = ComputingThread("computes"), threading.Event()
    before = pipes()

    def at_hand() -> None:
        done.put(threading.current_thread())
        goes_on.wait(LIMIT_S)
        done.put("done")

    thread.do(at_hand)
    thread.do(lambda: done.put("asked for before"))
    where = done.get(timeout=LIMIT_S)
    thread.close()
    thread.close()
    thread.do(lambda: done.put("asked for afterwards"))
    goes_on.set()
    assert isinstance(where, threading.Thread)
    where.join(LIMIT_S)
    assert done.get(timeout=LIMIT_S) == "done"
    assert done.empty()
    assert pipes() == before


def test_one_that_is_never_asked_for_anything_takes_nothing() -> None:
    before = threading.active_count(), pipes()
    thread = ComputingThread("computes")
    assert (threading.active_count(), pipes()) == before
    thread.close()
