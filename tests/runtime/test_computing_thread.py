"""The thread that gradients are computed in: in order, one after the other, and gone when it is closed."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from queue import Queue
from typing import Any

import pytest

from psplatform.runtime.actors.worker.computing_thread import ComputingThread, call_in_loop

LIMIT_S = 180.0


class Opened:
    """A thread with what it has opened, and what its tasks have put down."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files: list[int] = []
        self.done: Queue[Any] = Queue()
        pipe = os.pipe

        def noted() -> tuple[int, int]:
            found = pipe()
            self.files.extend(found)
            return found

        monkeypatch.setattr(os, "pipe", noted)
        self.thread = ComputingThread("computes")

    def ask(self, task: Callable[[], object] = lambda: None) -> Any:
        """Run a task; return its result."""
        self.thread.submit(lambda: self.done.put((task(), threading.current_thread())))
        found, self.where = self.done.get(timeout=LIMIT_S)
        return found

    def ends(self) -> None:
        """Wait for the end of the thread; nothing it has opened is open."""
        self.where.join(LIMIT_S)
        assert not self.where.is_alive()
        for file in self.files:
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(file)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    one = Opened(monkeypatch)
    yield one
    one.thread.close()


def test_tasks_are_run_in_their_order_in_one_thread_that_ends_when_it_is_closed(opened: Opened) -> None:
    for number in range(50):
        opened.thread.submit(lambda number=number: opened.done.put((number, threading.current_thread())))  # type: ignore[misc]
    found = [opened.done.get(timeout=LIMIT_S) for _ in range(50)]
    assert [number for number, _ in found] == list(range(50))
    (opened.where,) = {thread for _, thread in found}
    assert opened.where.name == "computes"
    opened.thread.close()
    opened.ends()


def test_closed_it_ends_after_the_task_at_hand_and_runs_no_other(opened: Opened) -> None:
    begins, goes_on = threading.Event(), threading.Event()
    opened.ask()
    opened.thread.submit(lambda: (begins.set(), goes_on.wait(LIMIT_S), opened.done.put("at hand")))
    assert begins.wait(LIMIT_S)
    opened.thread.submit(lambda: opened.done.put("submitted before"))
    opened.thread.close()
    opened.thread.close()
    opened.thread.submit(lambda: opened.done.put("submitted afterwards"))
    goes_on.set()
    opened.ends()
    found = [opened.done.get_nowait() for _ in range(opened.done.qsize())]
    assert found == ["at hand"]
    assert not opened.thread.has_begun


def test_one_that_is_never_given_a_task_takes_nothing(opened: Opened) -> None:
    assert not opened.thread.has_begun
    opened.thread.close()
    assert opened.files == []


@pytest.mark.parametrize("error", [ValueError("no such thing"), SystemExit(1)])
def test_it_goes_on_after_a_task_that_failed_and_tells_of_it(
    opened: Opened, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise error

    with caplog.at_level(logging.ERROR):
        opened.thread.submit(fail)
        assert opened.ask(lambda: "goes on") == "goes on"
    assert [one.message for one in caplog.records] == ["a task of computes failed"]


def test_where_no_thread_can_be_begun_nothing_is_left_open(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            opened.thread.submit(lambda: None)
    assert not opened.thread.has_begun
    assert len(opened.files) == 2
    for file in opened.files:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(file)
    assert opened.ask(lambda: "later") == "later"


def test_nothing_is_called_in_a_loop_that_is_closed() -> None:
    loop, called = asyncio.new_event_loop(), list[str]()
    call_in_loop(loop, called.append, "before")
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    call_in_loop(loop, called.append, "afterwards")
    assert called == ["before"]


WITH_A_THREAD = """
import atexit, os, sys, threading, time
from psplatform.runtime.actors.worker.computing_thread import ComputingThread
thread = ComputingThread("computes")
begins, ends = threading.Event(), threading.Event()
def task():
    begins.set()
    ends.wait(180)
    time.sleep(0.3)
    print("ended", flush=True)
thread.submit(task)
begins.wait(180)
"""

EXITS = """
atexit.register(ends.set)
"""

FORKS = """
child = os.fork()
if not child:
    sys.exit()
os.waitpid(child, 0)
child = os.fork()
if not child:
    time.sleep(180)
thread.submit(lambda: print("goes on", flush=True))
ends.set()
(where,) = [one for one in threading.enumerate() if one.name == "computes"]
goes_on = threading.Event()
thread.submit(goes_on.set)
goes_on.wait(60)
thread.close()
where.join(60)
os.kill(child, 9)
print("over" if not where.is_alive() else "does not end", flush=True)
"""


@pytest.mark.parametrize(
    ("what", "said"), [(EXITS, ["ended"]), (FORKS, ["ended", "goes on", "over"])], ids=["exits", "forks"]
)
def test_the_thread_ends_with_its_own_process_and_not_with_a_child(what: str, said: list[str]) -> None:
    """The interpreter waits at its exit for the task at hand; no child ends the thread, or keeps it running."""
    command = [sys.executable, "-W", "ignore", "-c", WITH_A_THREAD + what]
    found = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert (found.stdout.split("\n"), found.stderr) == ([*said, ""], "")
