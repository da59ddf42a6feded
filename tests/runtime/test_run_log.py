"""The event log in the coordinator's process, with a store that fails for a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from psplatform.runtime.store.run_log import RunLog
from psplatform.telemetry.log.reader import LogReader

Jump = Callable[[Any], Any]
LIMIT_S = 180.0


def note(number: int) -> dict[str, Any]:
    return {"kind": "note", "at": float(number), "text": f"note {number}"}


def texts(store: Path) -> list[str]:
    return [record["text"] for records, _ in LogReader(str(store)).iter_from() for record in records]


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a thread's work; the loop's clock jumps, so the limit is on the real one."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"{what} did not happen within {LIMIT_S:g} s")
        await asyncio.sleep(0.1)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "run.zarr"
    folder.mkdir()
    return folder


@pytest.fixture
def broken(store: Path) -> Path:
    """Make the store fail: a file stands where the log's folder belongs.  Unlink it to mend the store."""
    (store / "log").write_text("in the way")
    return store / "log"


def test_records_reach_the_store_while_the_run_goes_on(store: Path, jump: Jump) -> None:
    """In the background, without anybody asking."""

    async def write() -> None:
        run_log = await RunLog.open(str(store), 1)
        run_log.append(note(1))
        await until(lambda: texts(store) == ["note 1"], "the first flush")
        await run_log.close()

    jump(write())


def test_a_record_that_comes_while_others_are_written_is_not_taken_for_written(store: Path, jump: Jump) -> None:
    """A successor begins with what is unwritten: what is missing there is lost with this process."""

    async def write() -> list[str]:
        run_log = await RunLog.open(str(store), 1)
        run_log.append(note(1))
        await until(lambda: run_log.unwritten == [], "the first flush")
        run_log.abandon()  # nothing flushes beside this test any more
        log: Any = run_log._log
        flush = log.flush

        def flush_slowly() -> None:
            log.flush = flush
            flush()
            run_log.append(note(3))

        log.flush = flush_slowly
        run_log.append(note(2))
        await run_log._flush()
        kept = [record["text"] for record in run_log.unwritten]
        await run_log.close()
        return kept

    assert jump(write()) == ["note 3"]
    assert texts(store) == ["note 1", "note 2", "note 3"]


def test_a_successor_writes_again_what_the_store_may_lack(store: Path, jump: Jump) -> None:
    async def write() -> None:
        run_log = await RunLog.open(str(store), 2, again=[note(1), note(2)])
        run_log.append(note(3))
        await run_log.close()

    jump(write())
    assert texts(store) == ["note 1", "note 2", "note 3"]


def test_the_view_shows_a_record_at_once(store: Path, jump: Jump) -> None:
    """Whoever asks the coordinator does not wait for the store."""

    async def write() -> list[str]:
        run_log = await RunLog.open(str(store), 1)
        run_log.append(note(1))
        shown = [incident.text for incident in run_log.view.incidents]
        await run_log.close()
        return shown

    assert jump(write()) == ["note 1"]


def test_closing_brings_out_everything(store: Path, jump: Jump) -> None:
    async def write() -> None:
        run_log = await RunLog.open(str(store), 1)
        for number in range(5):
            run_log.append(note(number))
        await run_log.close()

    jump(write())
    assert texts(store) == [f"note {number}" for number in range(5)]


def test_a_store_that_fails_for_a_while_loses_nothing(store: Path, broken: Path, jump: Jump) -> None:
    """A full disk holds nothing up: records wait in memory, in order, and the failure is shown until it is over."""

    async def write() -> None:
        run_log = await RunLog.open(str(store), 1)
        run_log.append(note(1))
        await until(lambda: bool(run_log.trouble), "trouble with the store")
        assert str(store) in run_log.trouble
        run_log.append(note(2))
        broken.unlink()  # noqa: ASYNC240  it is the test that waits here
        await until(lambda: not run_log.trouble, "recovery of the store")
        run_log.append(note(3))
        await run_log.close()
        assert run_log.trouble == ""

    jump(write())
    assert texts(store) == ["note 1", "note 2", "note 3"]


@pytest.mark.usefixtures("broken")
def test_a_store_that_fails_to_the_end_is_named(store: Path, jump: Jump) -> None:
    """The end of a run does not wait for it for ever."""

    async def write() -> str:
        run_log = await RunLog.open(str(store), 1)
        run_log.append(note(1))
        await run_log.close()
        return run_log.trouble

    assert str(store) in jump(write())
