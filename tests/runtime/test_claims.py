"""A term's number can be claimed once, on a real scheduler: the guard against two coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

from distributed import Client, Scheduler

from psplatform.runtime.claims import claim

Jump = Callable[[Any], Any]
Claims = Callable[..., Awaitable[bool]]


def program(term: int = 1) -> Any:
    return SimpleNamespace(run="run", term=term)


def with_scheduler(test: Callable[[Claims], Awaitable[Any]]) -> Any:
    """Let a test claim on a scheduler of its own, each time by another client."""

    async def run() -> Any:
        async with Scheduler(host="127.0.0.1", port=0, dashboard=False) as scheduler:

            async def once(number: int, claimant: str, *, term: int = 1) -> bool:
                async with Client(scheduler.address, asynchronous=True, set_as_default=False) as client:
                    return await claim(client, program(term), number, claimant)

            return await test(once)

    return asyncio.run(run())


def test_of_two_claimants_one_gets_a_number_and_hears_so_again() -> None:
    async def claims(once: Claims) -> list[bool]:
        return [await once(2, who) for who in ("standby-2", "coordinator-1", "standby-2", "coordinator-1")]

    assert with_scheduler(claims) == [True, False, True, False]


def test_of_many_at_once_exactly_one_gets_it() -> None:
    async def claims(once: Claims) -> list[bool]:
        return await asyncio.gather(*(once(2, f"claimant-{number}") for number in range(5)))

    assert sorted(with_scheduler(claims)) == [False] * 4 + [True]


def test_the_next_number_and_those_of_a_recovered_run_are_free() -> None:
    async def claims(once: Claims) -> list[bool]:
        return [await once(2, "standby-2"), await once(3, "standby-3"), await once(2, "other", term=9)]

    assert with_scheduler(claims) == [True, True, True]


def test_a_claim_is_repeated_until_the_scheduler_answers(jump: Jump) -> None:
    """Without it nobody can take over, and nobody has."""
    asked: list[str] = []

    class Silent:
        async def semaphore_register(self, **_: Any) -> None:
            asked.append("register")
            if len(asked) <= 2:
                raise OSError

        async def semaphore_acquire(self, **_: Any) -> bool:
            return False

    client = cast(Any, SimpleNamespace(scheduler=Silent()))
    assert jump(claim(client, program(), 2, "standby-2")) is False
    assert len(asked) == 3
