"""Processes that are warm, and those that import first what a role needs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from psplatform.core.supervision.placement import Process
from psplatform.runtime.pools.warming import Warmth, is_warm_here, next_spare, warm_here
from psplatform.runtime.timeouts import TIMEOUTS

Jump = Callable[[Any], Any]
HERE, THERE = "tcp://10.0.0.1:1", "tcp://10.0.0.2:1"


class Cluster:
    """Stands for a client: its processes take `seconds` to import, and answer whether they are warm."""

    def __init__(self, *warm: str, seconds: float = 3.0) -> None:
        self.warm, self.seconds, self.imports = set(warm), seconds, list[str]()

    async def run(self, function: Any, *, workers: list[str], on_error: str) -> dict[str, Any]:
        if function is is_warm_here:
            return {address: address in self.warm for address in workers}
        assert function is warm_here
        self.imports += workers
        await asyncio.sleep(self.seconds)
        return dict.fromkeys(workers)


def test_a_cold_process_imports_once_whoever_waits_for_it(jump: Jump) -> None:
    async def warm() -> tuple[list[str], set[str]]:
        cluster = Cluster()
        warmth = Warmth(cast(Any, cluster))
        await asyncio.gather(warmth.warm(HERE), warmth.warm(HERE))
        await warmth.warm(HERE)
        return cluster.imports, warmth.cold([HERE, THERE])

    assert jump(warm()) == ([HERE], {THERE})


def test_one_that_is_known_to_be_warm_imports_nothing(jump: Jump) -> None:
    async def warm() -> list[str]:
        cluster = Cluster(HERE)
        warmth = Warmth(cast(Any, cluster))
        await warmth.ask([HERE, THERE])
        warmth.note(["tcp://10.0.0.3:1"])
        for address in (HERE, "tcp://10.0.0.3:1"):
            await warmth.warm(address)
        assert warmth.cold([HERE, THERE]) == {THERE}
        return cluster.imports

    assert jump(warm()) == []


def test_another_process_at_the_same_address_is_cold(jump: Jump) -> None:
    async def warm() -> list[str]:
        cluster = Cluster()
        warmth = Warmth(cast(Any, cluster))
        await warmth.warm(HERE)
        warmth.forget(HERE)
        await warmth.warm(HERE)
        return cluster.imports

    assert jump(warm()) == [HERE, HERE]


def test_whoever_imports_for_ever_is_not_waited_for_and_stays_cold(jump: Jump) -> None:
    """What is made there then may fail, and is made elsewhere."""

    async def warm() -> tuple[float, set[str]]:
        warmth = Warmth(cast(Any, Cluster(seconds=10_000.0)))
        await warmth.warm(HERE)
        return asyncio.get_running_loop().time(), warmth.cold([HERE])

    assert jump(warm()) == (TIMEOUTS.warm_s, {HERE})


def test_one_that_answers_with_an_error_stays_cold(jump: Jump) -> None:
    class Failing(Cluster):
        async def run(self, function: Any, *, workers: list[str], on_error: str) -> dict[str, Any]:
            return dict.fromkeys(workers, ImportError("no module torch"))

    async def warm() -> set[str]:
        warmth = Warmth(cast(Any, Failing()))
        await warmth.warm(HERE)
        await warmth.ask([HERE])
        return warmth.cold([HERE])

    assert jump(warm()) == {HERE}


def test_this_process_imports_on_a_thread_what_every_role_needs() -> None:
    program = """
import asyncio, sys, threading
from psplatform.runtime.pools.warming import is_warm_here, warm_here
import psplatform.runtime.actors.initial_role  # what a copy is made with
assert "torch" not in sys.modules
assert not asyncio.run(is_warm_here())
async def warm():
    turns, warming = 0, asyncio.ensure_future(warm_here())
    while not warming.done():
        await asyncio.sleep(0.001)
        turns += 1
    return turns
assert asyncio.run(warm()) > 10, "the event loop went on meanwhile"
assert asyncio.run(is_warm_here())
assert "torch" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=240)


# --- who is warmed ahead ---


def processes(names: str) -> list[Process]:
    return [Process(name, name[0], {}) for name in names.split()]


def test_there_shall_be_as_many_warm_processes_without_a_role_as_with_one() -> None:
    names = "a1 a2 a3 b1 b2 b3"
    assert next_spare(processes(names), taken={"a1", "b1"}, cold={"a2", "a3", "b2", "b3"}) == "a2"
    assert next_spare(processes(names), taken={"a1", "b1"}, cold={"a3", "b2", "b3"}) == "b2", "on all hosts alike"
    assert next_spare(processes(names), taken={"a1", "b1"}, cold={"a3", "b3"}) is None


@given(
    st.lists(st.sampled_from([host + number for host in "abc" for number in "12345"]), unique=True),
    st.sets(st.sampled_from(["a1", "a2", "b1", "b2", "c1"])),
    st.sets(st.sampled_from(["a1", "a2", "a3", "b2", "b3", "c1", "c2", "c3"])),
)
def test_only_a_cold_process_without_a_role_is_warmed(names: list[str], taken: set[str], cold: set[str]) -> None:
    found = next_spare(processes(" ".join(names)), taken, cold)
    idle = set(names) - taken
    assert found is None or found in idle & cold
    assert (found is None) == (not idle & cold or len(idle - cold) >= min(8, max(1, len(taken))))
