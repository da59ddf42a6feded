"""Processes of this host, real ones: their end is noticed, whatever brings it, and nothing else is taken for it."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import subprocess
from collections.abc import Callable

import pytest

from psplatform.runtime.comms.processes import (
    NotSeen,
    ProcessId,
    Witness,
    mark_of_this_process,
    this_process,
    until_dying,
)

LIMIT_S = 180.0
A_WHILE_S = 0.3

Child = tuple["subprocess.Popen[str]", ProcessId]


def watched(process: ProcessId, hurt: Callable[[], object], before: Callable[[], object] = lambda: None) -> None:
    """Require that nothing is noticed while `before` is done, and the end once `hurt` was."""

    async def run() -> None:
        looking = asyncio.create_task(until_dying(process))
        await asyncio.sleep(0.05)
        before()
        await asyncio.sleep(A_WHILE_S)
        assert not looking.done()
        hurt()
        await asyncio.wait_for(looking, LIMIT_S)

    asyncio.run(run())


def test_a_process_that_is_killed_is_seen_to_die(begin: Callable[[int], Child]) -> None:
    running, process = begin(4)
    watched(process, running.kill)


def test_one_that_ends_by_itself_is_seen_to_die(begin: Callable[[int], Child]) -> None:
    running, process = begin(4)
    watched(process, lambda: print("end", file=running.stdin, flush=True))


def test_one_that_is_stopped_is_not_taken_for_dead_before_it_is(begin: Callable[[int], Child]) -> None:
    running, process = begin(4)
    watched(process, running.kill, before=lambda: running.send_signal(signal.SIGSTOP))


def test_threads_that_end_are_not_the_process(begin: Callable[[int], Child]) -> None:
    running, process = begin(4)

    def end_threads() -> None:
        assert running.stdout is not None
        for number in range(4):
            print(number, file=running.stdin, flush=True)
            running.stdout.readline()

    watched(process, running.kill, before=end_threads)


@pytest.mark.parametrize("threads", [0, 1])
def test_one_with_few_threads_is_seen_to_die(begin: Callable[[int], Child], threads: int) -> None:
    running, process = begin(threads)
    watched(process, running.kill)


def test_several_may_look(begin: Callable[[int], Child]) -> None:
    running, process = begin(4)

    async def look() -> None:
        looking = [asyncio.create_task(until_dying(process)) for _ in range(3)]
        await asyncio.sleep(0.05)
        running.kill()
        await asyncio.wait_for(asyncio.gather(*looking), LIMIT_S)

    asyncio.run(look())


@pytest.mark.parametrize(
    "other",
    [
        lambda here: dataclasses.replace(here, host="another host"),
        lambda here: dataclasses.replace(here, began=here.began - 1),
        lambda here: dataclasses.replace(here, pid=2**22 + 1),
    ],
    ids=["another host", "its number is another's by now", "gone, or hidden"],
)
def test_what_cannot_be_seen_is_not_taken_for_dead(other: Callable[[ProcessId], ProcessId]) -> None:
    here = this_process()
    assert here is not None
    with pytest.raises(NotSeen, match=r"process \d+"):
        asyncio.run(until_dying(other(here)))


def test_where_the_kernel_does_not_tell_of_threads_nothing_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_old(pid: int, flags: int = 0) -> int:
        raise OSError(22, "Invalid argument")

    here = this_process()
    assert here is not None
    monkeypatch.setattr("os.pidfd_open", too_old)
    with pytest.raises(NotSeen, match="cannot be watched"):
        asyncio.run(until_dying(here))


def test_numbers_of_another_namespaces_proc_are_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """There, this process has another number, and its own number is that of another process."""
    mark = mark_of_this_process()
    assert not Witness(mark).sees_it_dying()
    monkeypatch.setattr("os.getpid", lambda: 1)
    assert mark_of_this_process() == (0, 0, 0)
    assert this_process() is None
    with pytest.raises(NotSeen, match="cannot be seen"):
        Witness(mark)
