"""What programs are told of a run by its coordinator's process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from psplatform.runtime.coordinator_host import CoordinatorHost
from psplatform.runtime.journal import Journal

Jump = Callable[[Any], Any]


@pytest.mark.parametrize("phase", ["starting", "running", "ending", "over"])
def test_a_run_is_over_for_others_when_everything_is_written(tmp_path: Path, jump: Jump, phase: str) -> None:
    """Whoever has waited for it finds the whole log and the outcome in the store."""

    async def ask() -> tuple[str, str]:
        host = CoordinatorHost("run")
        host.journal = await Journal.open(str(tmp_path), 1)
        host.phase = phase
        before = (await host.status(1.0))["phase"]
        host.phase = "over"
        host._over.set()
        after = (await host.status(1.0))["phase"]
        await host.journal.close()
        return before, after

    assert jump(ask()) == ("ending" if phase == "over" else phase, "over")


def test_asking_waits_for_the_end(tmp_path: Path, jump: Jump) -> None:
    """A long poll: it is answered as soon as the run is over, and at the latest after the time asked for."""

    async def ask() -> list[float]:
        clock = asyncio.get_running_loop().time
        host = CoordinatorHost("run")
        host.journal = await Journal.open(str(tmp_path), 1)
        asyncio.get_running_loop().call_later(5.0, host._over.set)
        times = []
        for wait_s in (2.0, 99.0, 99.0):
            await host.status(wait_s)
            times.append(clock())
        await host.journal.close()
        return times

    assert jump(ask()) == [2.0, 5.0, 5.0]
