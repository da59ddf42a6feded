"""Which state a run is in, told from what its store holds."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from psplatform.client.clusters.credentials import Credentials
from psplatform.client.runs import listing, records
from psplatform.client.runs.listing import Listed, State, list_runs, look_at
from psplatform.errors import StoreError
from psplatform.replication.checkpoints.arrays import Contents
from psplatform.replication.checkpoints.parts import CheckpointWriter
from psplatform.replication.checkpoints.sealing import seal
from psplatform.replication.stores.store import create_run, update_run
from psplatform.runtime.comms.processes import this_process
from psplatform.telemetry.log.writer import EventLog
from psplatform.tensors.layout import Layout, TensorSpec

RUN = "digits-bsp-1a2b3c"
LONG_AGO = 1e9


@pytest.fixture(params=["a folder", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Return where stores may lie: in a folder of this machine, or behind a URL."""
    if request.param == "a folder":
        yield str(tmp_path)
        return
    yield "memory://listing"
    fsspec.filesystem("memory").rm("/listing", recursive=True)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path)


def write(store: str, **description: Any) -> str:
    """Make the store of a run that was started long ago."""
    create_run(store, {"run": RUN, "started": LONG_AGO, **description})
    return store


def write_log(store: str, term: int = 1) -> None:
    with EventLog(store, term) as log:
        log.buffer({"kind": "note", "at": 0.0, "text": "a sign of life"})


def grow_old(store: str, seconds: float) -> None:
    """Let the log of a store have been written so long ago."""
    files, root = fsspec.core.url_to_fs(store)
    for path in files.ls(f"{root}/log", detail=False):
        at = time.time() - seconds
        if store.startswith("memory"):
            files.store[path].modified = files.store[path].modified.fromtimestamp(at, tz=files.modified(path).tzinfo)
        else:
            os.utime(path, (at, at))


def save_checkpoint(store: str, number: int) -> None:
    contents = Contents(Layout.of((TensorSpec("w", (4,), "float32", "parameter"),), shards=1), ())
    vectors = {key: np.zeros(size, dtype) for key, (dtype, size) in contents.vectors(0).items()}
    cut = {"position": number, "version": number, "plain": {"commits": 0}}
    part = CheckpointWriter(store, number, contents).write_shard(0, vectors, **cut)
    seal(store, number, [part], positions=[number], state={}, time_s=LONG_AGO)


def told(found: Listed) -> tuple[str, State, int | None]:
    return found.run, found.state, found.checkpoint


def test_a_run_that_ended_well_is_finished(place: str) -> None:
    store = write(f"{place}/run.zarr")
    update_run(store, outcome="reached target", error="", failure=None)
    found = look_at(store)
    assert told(found) == (RUN, State.FINISHED, None)
    assert found.reason == "it reached its target"
    assert (found.store, found.description["started"]) == (store, LONG_AGO)


def test_a_run_that_was_stopped_is_finished_and_says_so(folder: str) -> None:
    store = write(f"{folder}/run.zarr")
    update_run(store, outcome="stopped")
    found = look_at(store)
    assert (found.state, found.reason) == (State.FINISHED, "it was stopped")
    update_run(store, outcome=["of a later version"])
    assert look_at(store).state is State.FINISHED


def test_a_run_with_targets_for_metrics_is_none_of_another_writer(folder: str) -> None:
    store = write(f"{folder}/run.zarr")
    update_run(store, outcome="reached target", job={"stop": {"updates": 5, "targets": {"f1": 0.9}, "patience": None}})
    assert look_at(store).state is State.FINISHED


def test_of_a_finished_run_neither_log_nor_checkpoints_are_looked_at(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = write(f"{folder}/run.zarr")
    update_run(store, outcome="updates")
    monkeypatch.setattr(listing, "held_checkpoints", lambda store: pytest.fail("looked at its checkpoints"))
    monkeypatch.setattr(listing, "SegmentFolder", lambda store: pytest.fail("looked at its log"))
    assert look_at(store).state is State.FINISHED


def test_a_run_that_failed_with_a_checkpoint_can_be_recovered(place: str) -> None:
    """From the newest complete one; the error stands without its traceback."""
    store = write(f"{place}/run.zarr")
    failure = {"class": "UserCodeError", "message": "ValueError in the user's code", "attributes": {}}
    update_run(store, outcome="failed", error="ValueError in the user's code\nTraceback ...", failure=failure)
    for number in (1, 2):
        save_checkpoint(store, number)
    found = look_at(store)
    assert told(found) == (RUN, State.RECOVERABLE, 2)
    assert found.reason == "ValueError in the user's code; recover it from checkpoint 2"


def test_an_error_of_any_length_is_cut(folder: str) -> None:
    """What can be done about it stays."""
    store = write(f"{folder}/run.zarr")
    update_run(store, outcome="failed", error="x" * 10**6)
    save_checkpoint(store, 1)
    found = look_at(store)
    assert found.reason == f"{'x' * 299}…; recover it from checkpoint 1"
    update_run(store, outcome="y" * 10**6)
    assert look_at(store).reason == f"it ended: {'y' * 299}…"


def test_a_damaged_checkpoint_is_none_to_recover_from(folder: str) -> None:
    store = write(f"{folder}/run.zarr")
    update_run(store, outcome="failed", error="the disk is full.")
    save_checkpoint(store, 1)
    Path(store, "checkpoints", "00000001", "state.msgpack").unlink()
    found = look_at(store)
    assert told(found) == (RUN, State.FAILED, None)
    assert found.reason.startswith("the disk is full; it is lost without a checkpoint")


def test_a_run_whose_log_grows_is_live(place: str) -> None:
    store = write(f"{place}/run.zarr")
    write_log(store)
    found = look_at(store)
    assert told(found) == (RUN, State.LIVE, None)
    assert found.reason.startswith("its log grew ")


def test_a_run_whose_program_has_ended_is_not_live_although_its_log_has_grown_just_now(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own cluster has ended with it, and a recovery goes on with it at once: the same is said here."""
    monkeypatch.setenv("PSPLATFORM_STATE", str(tmp_path / "state"))
    program = this_process()
    assert program is not None
    store = write(f"{place}/run.zarr")
    write_log(store)
    save_checkpoint(store, 3)
    mine = records.record_of(RUN, store, "tls://127.0.0.1:1", Credentials("cert", "key"))
    records.remember(mine)
    assert look_at(store).state is State.LIVE
    records.remember(replace(mine, program=replace(program, began=program.began - 1)))
    found = look_at(store)
    assert told(found) == (RUN, State.RECOVERABLE, 3)
    assert found.reason.startswith("the program that ran it has ended, and its cluster with it")
    assert look_at(store, live={RUN}).state is State.LIVE
    update_run(store, started=time.time() + 1)
    assert look_at(store).state is State.LIVE, "another program has gone on with it since"
    records.remember(replace(mine, program=None))
    assert look_at(store).state is State.LIVE, "of a run on another cluster nothing is known"


def test_a_silent_run_that_a_scheduler_knows_is_live(place: str) -> None:
    """Its iterations may take minutes."""
    store = write(f"{place}/run.zarr")
    write_log(store)
    grow_old(store, 95)
    assert look_at(store, live={RUN}).state is State.LIVE
    assert look_at(store, live={"another"}).state is State.FAILED


def test_a_copy_of_the_store_of_a_run_that_goes_on_is_not_live(place: str) -> None:
    """A scheduler says where its runs have their stores; the same folder may be named in another way."""
    store, copy = (write(f"{place}/{name}.zarr") for name in ("run", "copy"))
    assert look_at(copy, live={RUN: store}).state is State.FAILED
    for name in (store, f"{store}/", store if "://" in store else f"file://{store}"):
        assert look_at(store, live={RUN: name}).state is State.LIVE
    assert [one.state for one in list_runs(place, {RUN: store})] == [State.FAILED, State.LIVE]


def test_a_silent_run_with_a_checkpoint_can_be_recovered(place: str) -> None:
    store = write(f"{place}/run.zarr")
    write_log(store)
    save_checkpoint(store, 3)
    grow_old(store, 95)
    found = look_at(store)
    assert told(found) == (RUN, State.RECOVERABLE, 3)
    said = "nothing was logged for 95 s and no scheduler that was asked knows it; recover it from checkpoint 3"
    assert found.reason == said


def test_a_silent_run_without_a_checkpoint_is_lost(place: str) -> None:
    store = write(f"{place}/run.zarr")
    write_log(store)
    grow_old(store, 95)
    found = look_at(store)
    assert told(found) == (RUN, State.FAILED, None)
    assert "it is lost without a checkpoint" in found.reason


def test_a_run_that_is_starting_is_live_although_it_has_no_log(folder: str) -> None:
    """Also one that goes on from its store: the log is the one from before."""
    store = write(f"{folder}/new.zarr", started=time.time())
    assert (look_at(store).state, look_at(store).reason) == (State.LIVE, "it is starting")
    again = write(f"{folder}/again.zarr", started=time.time(), term=2)
    write_log(again, term=1)
    grow_old(again, 95)
    assert look_at(again).reason == "it is starting"
    write_log(again, term=2)
    grow_old(again, 95)
    assert look_at(again).state is State.FAILED


def test_a_run_that_never_began_to_log_is_lost(folder: str) -> None:
    found = look_at(write(f"{folder}/run.zarr"))
    assert (found.state, found.reason.partition(" and ")[0]) == (State.FAILED, "it has no log")


def attributes(store: Path, plain: object) -> None:
    content = json.loads((store / "zarr.json").read_text())
    (store / "zarr.json").write_text(json.dumps({**content, "attributes": {"psplatform": plain}}))


def test_what_cannot_be_read_is_foreign_with_the_reason(folder: str) -> None:
    """Damaged, of a newer format, of another program, without a description, empty, or not there."""
    damaged, newer, other, nameless, bare, empty = (
        Path(folder, name) for name in ("damaged", "newer", "other", "nameless", "bare", "empty")
    )
    for store in (damaged, newer, other, nameless, bare):
        write(str(store))
    (damaged / "zarr.json").write_text("{")
    attributes(newer, {"format": 99, "run": RUN})
    attributes(other, None)
    attributes(nameless, {"format": 1})
    write_log(str(bare))
    (bare / "zarr.json").unlink()
    empty.mkdir()
    sentences = {
        damaged: "cannot read the zarr.json",
        newer: "has format 99; this psplatform reads format 1, update it",
        other: "holds no run of psplatform",
        nameless: "does not name its run",
        bare: "its zarr.json is missing or damaged",
        empty: "there is no run in",
        Path(folder, "nowhere"): "there is no run in",
    }
    for store, sentence in sentences.items():
        found = look_at(str(store))
        assert (found.run, found.state, found.description) == (store.name, State.FOREIGN, {}), found
        assert sentence in found.reason
    listed = {one.run for one in list_runs(folder)}
    assert listed == {"damaged", "newer", "other", "nameless", "bare"}, "a folder that holds no part of a run is none"


@pytest.mark.parametrize(
    ("field", "sentence"),
    [
        ({"job": [1]}, "its job is no table"),
        ({"job": "x"}, "its job is no table"),
        ({"job": {"stop": 5}}, "the stop of its job is no table"),
        ({"job": {"stop": {"updates": "x"}}}, "'updates' in the stop of its job is no number"),
        ({"job": {"stop": {"seconds": math.nan}}}, "'seconds' in the stop of its job is no number"),
        ({"started": math.nan}, "its start is no time"),
        ({"started": math.inf}, "its start is no time"),
        ({"started": "yesterday"}, "its start is no time"),
        ({"started": None}, "its start is no time"),
        ({"term": "x"}, "its term is no whole number"),
        ({"term": -1}, "its term is no whole number"),
        ({"run": "digits\x1b[31m"}, "its run has an id that is none"),
        ({"run": "../outside"}, "its run has an id that is none"),
        ({"scheduler": 7}, "its scheduler is no text"),
        ({"failure": "x"}, "its failure is no table"),
        ({"started": 10**400}, "its start is no time"),
    ],
)
def test_a_description_that_is_not_of_its_kind_is_foreign(folder: str, field: dict[str, Any], sentence: str) -> None:
    store = Path(write(f"{folder}/run.zarr"))
    write(f"{folder}/other.zarr")
    plain = json.loads((store / "zarr.json").read_text())["attributes"]["psplatform"]
    attributes(store, plain | field)
    found = look_at(str(store))
    assert (found.run, found.state, found.description) == ("run.zarr", State.FOREIGN, {})
    assert sentence in found.reason
    assert len(list_runs(folder)) == 2


@pytest.mark.parametrize("job", [None, {}, {"stop": None}, {"stop": {"updates": 9, "seconds": None, "epochs": 0.5}}])
def test_a_description_may_lack_what_is_not_asked_for(folder: str, job: object) -> None:
    assert look_at(write(f"{folder}/run.zarr", job=job)).state is State.FAILED


def test_a_log_that_is_dated_ahead_of_this_clock_is_no_sign_of_life(place: str) -> None:
    """A few seconds between two clocks are usual; hours would keep a dead run from being recovered."""
    store = write(f"{place}/run.zarr")
    write_log(store)
    grow_old(store, -5)
    assert look_at(store).state is State.LIVE
    grow_old(store, -3600)
    found = look_at(store)
    assert found.state is State.FAILED
    assert "ahead of the clock of this machine and no scheduler" in found.reason
    assert look_at(store, live={RUN}).state is State.LIVE


def test_a_start_that_is_ahead_of_this_clock_is_none(folder: str) -> None:
    soon, later = (write(f"{folder}/{seconds}.zarr", started=time.time() + seconds) for seconds in (5, 3600))
    assert look_at(soon).reason == "it is starting"
    assert look_at(later).state is State.FAILED


def test_runs_are_listed_newest_first(place: str) -> None:
    for number in (2, 3, 1):
        update_run(write(f"{place}/{number}.zarr", started=LONG_AGO + number), outcome="updates")
    assert [one.store for one in list_runs(place)] == [f"{place}/{number}.zarr" for number in (3, 2, 1)]


def test_where_there_is_no_folder_there_are_no_runs(folder: str) -> None:
    assert list_runs(f"{folder}/nowhere") == []


def test_a_folder_that_nothing_can_open_is_refused() -> None:
    with pytest.raises(StoreError, match="nothing here can open the store carrier-pigeon://coop"):
        list_runs("carrier-pigeon://coop")
