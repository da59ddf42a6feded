"""Timers on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from psplatform.runtime.comms.timers import LoopTimers

Jump = Callable[[Any], Any]


def fired(jump: Jump, act: Callable[[LoopTimers], None]) -> list[tuple[str, float]]:
    """Return which timers fire, and when by a clock that began at 100 s."""
    found: list[tuple[str, float]] = []

    async def wait() -> None:
        def clock() -> float:
            return 100.0 + asyncio.get_running_loop().time()

        act(LoopTimers(clock, lambda tag: found.append((tag, clock()))))
        await asyncio.sleep(9.0)

    jump(wait())
    return found


def test_timers_fire_by_the_clock_of_their_node_and_at_once_where_it_is_past(jump: Jump) -> None:
    def act(timers: LoopTimers) -> None:
        timers.set("later", 103.0)
        timers.set("past", 1.0)
        assert timers.due == {"later": 103.0, "past": 1.0}

    assert fired(jump, act) == [("past", 100.0), ("later", 103.0)]


def test_a_timer_of_the_same_tag_replaces_the_one_before(jump: Jump) -> None:
    """Each pull sets one: with a long patience they would pile up."""

    def act(timers: LoopTimers) -> None:
        for at in (101.0, 103.0, 102.0):
            timers.set("pull", at)

    assert fired(jump, act) == [("pull", 102.0)]


def test_what_is_cancelled_or_closed_does_not_fire(jump: Jump) -> None:
    def cancel(timers: LoopTimers) -> None:
        timers.set("a", 101.0)
        timers.set("b", 102.0)
        timers.cancel("a")
        timers.cancel("c")

    def close(timers: LoopTimers) -> None:
        cancel(timers)
        timers.close()
        assert timers.due == {}

    assert fired(jump, cancel) == [("b", 102.0)]
    assert fired(jump, close) == []
