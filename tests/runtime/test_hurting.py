"""A process that stops itself goes on again for certain."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from process_states import has_ended, state_of

Until = Callable[..., None]

PAUSE_S = 5.0
"""Long enough to be seen."""

PAUSING = """
import asyncio, sys
from psplatform.runtime.actors.hurting import pause_this_process

async def main():
    print(pause_this_process(float(sys.argv[1])), flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


@pytest.fixture
def pausing() -> Iterator[Callable[[float], int]]:
    """Start a process that stops itself for so long; return its id, as it says it before it is stopped."""
    started: list[subprocess.Popen[str]] = []

    def begin(seconds: float) -> int:
        command = [sys.executable, "-c", PAUSING, str(seconds)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert int(process.stdout.readline()) == process.pid
        return process.pid

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def helpers_of(pid: int) -> list[int]:
    children = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(child) for found in children for child in found]


def test_it_goes_on_and_no_zombie_is_left(pausing: Callable[[float], int], until: Until) -> None:
    pid = pausing(PAUSE_S)
    until(lambda: state_of(pid) == "T", "it is stopped")
    until(lambda: state_of(pid) == "S", "it goes on")
    until(lambda: helpers_of(pid) == [], "its helper has ended and was waited for")


def test_it_goes_on_whatever_is_asked_of_its_helper(pausing: Callable[[float], int], until: Until) -> None:
    """Which is in a session of its own, so that no terminal ends it, and takes no polite signal."""
    pid = pausing(PAUSE_S)
    until(lambda: state_of(pid) == "T", "it is stopped")
    (helper,) = helpers_of(pid)
    assert os.getsid(helper) == helper != os.getsid(pid)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(helper, number)
    until(lambda: state_of(pid) == "S", "it goes on")


def test_a_helper_ends_with_the_process_that_it_would_wake(pausing: Callable[[float], int], until: Until) -> None:
    pid = pausing(PAUSE_S)
    until(lambda: state_of(pid) == "T", "it is stopped")
    (helper,) = helpers_of(pid)
    os.kill(pid, signal.SIGKILL)
    until(lambda: has_ended(helper), "the helper has ended")
