"""Timers on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from psplatform.runtime.comms.timers import Deadlines, LoopTimers

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


class Watch:
    """Things that may take 5 s each, and which of them did not end in time, and when."""

    def __init__(self) -> None:
        self.passed: list[tuple[str, float]] = []
        self.deadlines: Deadlines[str] = Deadlines(5.0, self._on_passed)
        self.fails = False

    def _on_passed(self, one: str) -> None:
        self.passed.append((one, asyncio.get_running_loop().time()))
        if self.fails:
            raise ValueError(one)


def test_each_that_has_not_ended_in_time_is_told_at_its_deadline(jump: Jump) -> None:
    async def watch() -> list[tuple[str, float]]:
        one = Watch()
        for name in "abcd":
            one.deadlines.begin(name)
            await asyncio.sleep(1.0)
        one.deadlines.end("b")
        one.deadlines.end("nothing")
        await asyncio.sleep(20.0)
        one.deadlines.begin("e")
        await asyncio.sleep(20.0)
        return one.passed

    assert jump(watch()) == [("a", 5.0), ("c", 7.0), ("d", 8.0), ("e", 29.0)]


def test_one_that_begins_again_has_all_its_time_again(jump: Jump) -> None:
    async def watch() -> list[tuple[str, float]]:
        one = Watch()
        one.deadlines.begin("a")
        one.deadlines.begin("b")
        await asyncio.sleep(2.0)
        one.deadlines.begin("a")
        await asyncio.sleep(20.0)
        return one.passed

    assert jump(watch()) == [("b", 5.0), ("a", 7.0)]


def test_a_deadline_that_cannot_be_told_of_does_not_hold_up_the_others(jump: Jump) -> None:
    async def watch() -> list[tuple[str, float]]:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        one = Watch()
        one.fails = True
        for name in "abc":
            one.deadlines.begin(name)
        await asyncio.sleep(1.0)
        one.deadlines.begin("d")
        await asyncio.sleep(20.0)
        return one.passed

    assert jump(watch()) == [("a", 5.0), ("b", 5.0), ("c", 5.0), ("d", 6.0)]


def test_however_many_end_in_time_take_one_timer(jump: Jump) -> None:
    async def watch() -> int:
        loop, timers = asyncio.get_running_loop(), list[float]()
        call_at = loop.call_at
        loop.call_at = lambda at, *call: (timers.append(at), call_at(at, *call))[1]  # type: ignore[assignment,method-assign]
        deadlines = Watch().deadlines
        for number in range(100):
            deadlines.begin(str(number))
            deadlines.end(str(number))
        return len(timers)

    assert jump(watch()) == 1
