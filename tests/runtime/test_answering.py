"""Pulls wait until there is an answer, and not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from psplatform.core.protocol.events import PullWithdrawn
from psplatform.core.protocol.messages import Pull, Pulled
from psplatform.runtime.comms.answering import Answering
from psplatform.runtime.timeouts import TIMEOUTS

Jump = Callable[[Any], Any]
PULL = Pull("w", 0, 3, 7)


def finish(pulled: Pulled | None) -> str:
    return "not yet" if pulled is None else f"version {pulled.version}"


def test_a_pull_is_answered_when_its_answer_is_given(jump: Jump) -> None:
    async def talk() -> None:
        fed: list[Any] = []
        answering: Answering[str] = Answering(fed.append)
        answer = answering.answer_to(PULL, finish)
        assert fed == [PULL]
        assert not answering.give("w", Pulled(0, 2, 8, 1)), "that is another request's"
        assert not answering.give("v", Pulled(0, 3, 8, 1)), "that is another member's"
        assert answering.give("w", Pulled(0, 3, 8, 1))
        assert await answer == "version 8"
        await asyncio.sleep(2 * TIMEOUTS.not_yet_s)
        assert fed == [PULL]

    jump(talk())


def test_one_may_be_answered_while_it_is_fed(jump: Jump) -> None:
    async def talk() -> None:
        answering: Answering[str] = Answering(lambda pull: answering.give("w", Pulled(0, pull.request, 7, 1)))
        assert await answering.answer_to(PULL, finish) == "version 7"

    jump(talk())


def test_what_is_not_answered_for_long_is_withdrawn(jump: Jump) -> None:
    async def talk() -> float:
        fed: list[Any] = []
        answering: Answering[str] = Answering(fed.append)
        assert await answering.answer_to(PULL, finish) == "not yet"
        assert fed == [PULL, PullWithdrawn("w", 3)]
        assert not answering.give("w", Pulled(0, 3, 8, 1))
        return asyncio.get_running_loop().time()

    assert jump(talk()) == TIMEOUTS.not_yet_s


def test_who_asks_again_is_answered_and_the_call_before_ends(jump: Jump) -> None:
    async def talk() -> None:
        answering: Answering[str] = Answering(lambda event: None)
        first, second = (answering.answer_to(PULL, finish) for _ in range(2))
        assert await first == "not yet"
        assert answering.give("w", Pulled(0, 3, 8, 1))
        assert await second == "version 8"

    jump(talk())


def test_an_answer_that_nobody_waits_for_is_not_given(jump: Jump) -> None:
    async def talk() -> None:
        answering: Answering[str] = Answering(lambda event: None)
        answering.answer_to(PULL, finish).cancel()
        assert not answering.give("w", Pulled(0, 3, 8, 1))

    jump(talk())


def test_all_that_wait_are_answered_when_nothing_more_is(jump: Jump) -> None:
    async def talk() -> None:
        fed: list[Any] = []
        answering: Answering[str] = Answering(fed.append)
        answers = [answering.answer_to(Pull(name, 0, 3, 7), finish) for name in ("v", "w")]
        answering.close()
        assert [await one for one in answers] == ["not yet"] * 2
        assert not answering.give("w", Pulled(0, 3, 7, 1))
        await asyncio.sleep(2 * TIMEOUTS.not_yet_s)
        assert not [event for event in fed if isinstance(event, PullWithdrawn)]

    jump(talk())
