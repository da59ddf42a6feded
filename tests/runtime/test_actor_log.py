"""What actors say in the log of their process: every line names the run and the actor."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from psplatform.runtime.actor_log import ActorLog
from psplatform.runtime.comms.background import Background

Jump = Callable[[Any], Any]


def test_every_line_and_record_names_the_run_and_the_actor(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "psplatform")
    ActorLog("digits", "server-1").info("serves shard %d", 1, extra={"term": 2})
    (record,) = caplog.records
    assert record.getMessage() == "digits, server-1: serves shard 1"
    assert record.name.startswith("psplatform.")
    assert (vars(record)["run"], vars(record)["actor"], vars(record)["term"]) == ("digits", "server-1", 2)


def test_nothing_is_said_unless_it_is_asked_for_but_what_was_not_foreseen(
    jump: Jump, caplog: pytest.LogCaptureFixture
) -> None:
    log = ActorLog("digits", "worker-1")

    async def fail() -> None:
        raise LookupError("no 100 % of it")

    async def work() -> None:
        Background(log=log).do(fail())
        await asyncio.sleep(1)

    log.info("is ready")
    jump(work())
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage().startswith("digits, worker-1: LookupError: no 100 % of it\nTraceback")
