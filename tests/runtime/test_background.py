"""Work in the background: what it raises is told, and what must go on goes on."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

from psplatform.runtime.comms.background import Background

Jump = Callable[[Any], Any]


def test_what_nobody_awaits_is_told_when_it_raises(jump: Jump, caplog: Any) -> None:
    told: list[str] = []

    async def fail() -> None:
        raise LookupError("no such thing")

    async def work() -> None:
        Background(told.append).do(fail())
        await asyncio.sleep(1)

    jump(work())
    assert told == ["LookupError: no such thing"]
    assert "Traceback" in caplog.text


def test_what_is_kept_begins_again_when_somebody_else_cancels_it(jump: Jump) -> None:
    """Until its owner ends it."""
    begun: list[float] = []

    async def tick() -> None:
        begun.append(asyncio.get_running_loop().time())
        await asyncio.sleep(99)

    async def work() -> None:
        background = Background()
        background.keep(tick)
        await asyncio.sleep(1)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(1)
        background.close()
        await asyncio.sleep(1)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    jump(work())
    assert begun == [0.0, 1.0]


def test_whoever_closes_it_is_not_cancelled_by_that(jump: Jump) -> None:
    done: list[str] = []

    async def work() -> None:
        background = Background()

        async def close() -> None:
            background.close()
            await asyncio.sleep(1)
            done.append("went on")

        background.do(close())
        background.do(asyncio.sleep(99))
        await asyncio.sleep(2)

    jump(work())
    assert done == ["went on"]


def test_what_is_kept_says_nothing_when_its_loop_ends(caplog: Any) -> None:
    """A loop that closes cancels everything once, and what has begun again ends with it."""

    async def work() -> None:
        Background().keep(lambda: asyncio.sleep(99))
        await asyncio.sleep(0)

    asyncio.run(work())
    gc.collect()
    assert caplog.text == ""
