"""A store that is removed while the run's log is written to it, or that another run has by then."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from psplatform.errors import StoreError
from psplatform.replication.stores.store import create_run, describe_run
from psplatform.runtime.store.keeping import StoreKeeper, keeper_of
from psplatform.runtime.store.outcome import write_outcome
from psplatform.runtime.store.run_log import RunLog
from psplatform.telemetry.follow import LiveRun
from psplatform.telemetry.log.reader import LogReader
from psplatform.telemetry.log.segments import START
from psplatform.telemetry.read_model import RunView

Jump = Callable[[Any], Any]
LIMIT_S = 180.0
MINE, OTHERS = "digits-bsp-1a2b3c", "mlp-asp-4d5e6f"
DESCRIPTION = {"run": MINE, "policy": "bsp", "workers": 2, "shards": 1, "replication": {"mode": "bounded"}}
BEGUN = [
    {"kind": "run", "at": 0.0, **DESCRIPTION},
    {"kind": "copy", "at": 0.0, "shard": 0, "copy": "replica-0-0", "process": "b", "event": "in sync", "reason": ""},
    {"kind": "joined", "at": 0.1, "slot": 0, "incarnation": 1, "process": "tcp://a:1", "clock": 0},
    {"kind": "joined", "at": 0.1, "slot": 1, "incarnation": 1, "process": "tcp://b:1", "clock": 0},
    {"kind": "lost", "at": 0.2, "slot": 1, "incarnation": 1, "process": "tcp://b:1", "reason": "it died"},
    {"kind": "evaluated", "at": 0.3, "version": 1, "loss": 0.5, "accuracy": 0.75},
]


def commit(version: int) -> dict[str, Any]:
    figures = {"loss": 1.0, "rate": 1.0, "staleness": [0], "slots": [0], "duration_s": 0.01}
    return {"kind": "commit", "at": float(version), "version": version, **figures}


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a thread's work; the loop's clock jumps, so the limit is on the real one."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"{what} did not happen within {LIMIT_S:g} s")
        await asyncio.sleep(0.1)


@dataclass
class Kept:
    """A store with a run in it, and what its run log tells."""

    store: Path
    news: list[tuple[str, bool]] = field(default_factory=list)
    marks: list[tuple[Any, int]] = field(default_factory=list)

    async def open(self, *records: dict[str, Any]) -> RunLog:
        """Open a run log, and bring these records out."""
        create_run(str(self.store), DESCRIPTION)
        program: Any = SimpleNamespace(store=str(self.store), run=MINE, term=1)
        run_log = self.heard(await RunLog.open(str(self.store), 1, keeper=await keeper_of(program)))
        for record in records:
            run_log.append(record)
        await until(lambda: not run_log.unwritten, "the records are in the store")
        return run_log

    def heard(self, run_log: RunLog) -> RunLog:
        run_log.on_news = lambda text, renewed: self.news.append((text, renewed))
        run_log.on_mark = lambda position, records: self.marks.append((position, records))
        return run_log

    def keeper(self) -> StoreKeeper:
        program: Any = SimpleNamespace(store=str(self.store), run=MINE, term=1)
        return StoreKeeper.of(program, dict(DESCRIPTION))

    def view(self) -> RunView:
        """Return the run's picture as its store has it."""
        live = LiveRun(str(self.store))
        live.refresh()
        return live.view

    def versions(self) -> list[int]:
        records = [record for records, _ in LogReader(str(self.store)).iter_from() for record in records]
        return [record["version"] for record in records if record["kind"] == "commit"]


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "runs" / "run.zarr")


def test_a_log_that_was_removed_begins_anew_where_the_run_stands(kept: Kept, jump: Jump) -> None:
    """In the same place, under the same description; what waited in memory is written, and nothing twice."""

    async def write() -> None:
        run_log = await kept.open(*BEGUN, commit(1), commit(2))
        shutil.rmtree(kept.store.parent)
        run_log.append(commit(3))
        await until(lambda: bool(kept.news), "the removal is noticed")
        run_log.append(commit(4))
        await run_log.close()
        assert run_log.trouble == ""
        assert run_log.view.updates == 4
        assert run_log.view.commits == 4, "who asks the coordinator is told of the whole run"

    jump(write())
    ((text, renewed),) = kept.news
    assert "the store was removed while the run went on, and is made anew" in text
    assert renewed
    assert describe_run(str(kept.store))["run"] == MINE
    assert kept.versions() == [3, 4]
    view = kept.view()
    assert (view.updates, view.commits, view.accuracy) == (4, 2, 0.75)
    assert {slot: worker.process for slot, worker in view.workers.items()} == {0: "tcp://a:1"}
    assert {name: one.status for name, one in view.protection.copies[0].items()} == {"replica-0-0": "in sync"}


def test_a_standby_is_told_where_the_new_log_is(kept: Kept, jump: Jump) -> None:
    """What it has to write again when it takes over are the records that the new log lacks, and no others."""

    async def write() -> None:
        run_log = await kept.open(*BEGUN, commit(1))
        place, count = run_log.place
        shutil.rmtree(kept.store)
        await until(lambda: bool(kept.news), "the removal is noticed")
        assert kept.marks[-1] == (run_log.place[0], count)
        assert run_log.place[0].number == 1 <= place.number
        run_log.append(commit(2))
        await until(lambda: not run_log.unwritten, "the record is in the store")
        assert kept.marks[-1] == (run_log.place[0], count + 1)
        await run_log.close()

    jump(write())
    assert kept.versions() == [2]


def test_whoever_takes_over_makes_a_store_anew_that_was_removed_meanwhile(kept: Kept, jump: Jump) -> None:
    async def write() -> None:
        before = await kept.open(*BEGUN, commit(1), commit(2))
        (place, _), view = before.place, before.view
        before.abandon()
        shutil.rmtree(kept.store)
        view.apply(commit(3))
        after = await RunLog.succeed(str(kept.store), 2, place, view, [commit(3)], kept.keeper())
        kept.heard(after)
        after.append(commit(4))
        await until(lambda: bool(kept.news), "it is told")
        await after.close()

    jump(write())
    assert kept.versions() == [3, 4]
    assert kept.view().updates == 4
    assert [renewed for _, renewed in kept.news] == [True]


def test_whoever_takes_over_goes_on_with_a_log_that_was_made_anew_without_its_knowledge(kept: Kept, jump: Jump) -> None:
    """The coordinator may die before it has told its standby where the new log is."""

    async def write() -> None:
        before = await kept.open(*BEGUN, commit(1), commit(2), commit(3))
        for number in range(4, 8):
            before.append(commit(number))
            await until(lambda: not before.unwritten, "it is written")
        (place, _), view = before.place, before.view
        shutil.rmtree(kept.store)
        await until(lambda: bool(kept.news), "the removal is noticed")
        before.abandon()
        after = await RunLog.succeed(str(kept.store), 2, place, view, [commit(7)], kept.keeper())
        after.append(commit(8))
        await after.close()

    jump(write())
    assert kept.versions() == [7, 8]
    assert kept.view().updates == 8


def test_a_log_that_is_still_there_is_kept_where_only_its_description_was_removed(kept: Kept, jump: Jump) -> None:
    async def write() -> None:
        run_log = await kept.open(*BEGUN, commit(1))
        (kept.store / "zarr.json").unlink()
        await until(lambda: bool(kept.news), "the removal is noticed")
        run_log.append(commit(2))
        await run_log.close()

    jump(write())
    assert kept.versions() == [1, 2]
    assert describe_run(str(kept.store))["run"] == MINE
    assert "the zarr.json of the store was removed" in kept.news[0][0]


def contents(store: Path) -> dict[str, bytes]:
    return {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}


def test_nothing_is_written_into_a_store_that_another_run_has_by_now(kept: Kept, jump: Jump) -> None:
    """The run goes on without one, and its end says so with the names of both."""
    found: list[dict[str, bytes]] = []

    async def write() -> tuple[Any, int]:
        run_log = await kept.open(*BEGUN, commit(1))
        shutil.rmtree(kept.store)
        create_run(str(kept.store), {"run": OTHERS})
        found.append(contents(kept.store))
        run_log.append(commit(2))
        await until(lambda: bool(kept.news), "it is noticed")
        assert (OTHERS in run_log.trouble, MINE in run_log.trouble) == (True, True)
        for number in range(3, 9):
            run_log.append(commit(number))
        await until(lambda: not run_log.unwritten, "what nothing will ever take does not wait in memory")
        run_log.append({"kind": "finished", "at": 9.0, **dict.fromkeys(("loss", "accuracy"))} | FINISHED)
        failure = await write_outcome(run_log, str(kept.store), MINE, None, 9.0)
        return failure, run_log.view.updates

    failure, updates = jump(write())
    assert isinstance(failure, StoreError)
    assert f"now holds run {OTHERS}: it was removed while run {MINE} went on" in str(failure)
    assert updates == 8
    assert contents(kept.store) == found[0]
    assert [renewed for _, renewed in kept.news] == [False], "told once"


FINISHED = {"outcome": "updates", "detail": "", "version": 8, "seconds": 9.0}


def test_whoever_takes_over_leaves_anothers_store_alone_too(kept: Kept, jump: Jump) -> None:
    async def write() -> bool:
        before = await kept.open(*BEGUN)
        (place, _), view = before.place, before.view
        before.abandon()
        shutil.rmtree(kept.store)
        create_run(str(kept.store), {"run": OTHERS})
        after = await RunLog.succeed(str(kept.store), 2, place, view, [commit(1)], kept.keeper())
        after.append(commit(2))
        await after.close()
        return after.taken

    assert jump(write())
    assert set(contents(kept.store)) == {"zarr.json"}


def test_the_outcome_reaches_a_store_that_was_removed_at_the_last_moment(kept: Kept, jump: Jump) -> None:
    async def write() -> None:
        run_log = await kept.open(*BEGUN, commit(1))
        shutil.rmtree(kept.store)
        run_log.append({"kind": "finished", "at": 9.0, **dict.fromkeys(("loss", "accuracy"))} | FINISHED)
        assert await write_outcome(run_log, str(kept.store), MINE, None, 9.0) is None

    jump(write())
    assert describe_run(str(kept.store))["outcome"] == "updates"
    outcome = kept.view().outcome
    assert outcome is not None
    assert outcome.outcome == "updates"


def test_a_run_that_had_logged_nothing_has_an_empty_log_again(kept: Kept, jump: Jump) -> None:
    async def write() -> None:
        run_log = await kept.open()
        shutil.rmtree(kept.store)
        await until(lambda: bool(kept.news), "the removal is noticed")
        assert run_log.place[0] == START
        run_log.append(BEGUN[0])
        await run_log.close()

    jump(write())
    assert kept.view().run["run"] == MINE
