"""``psplatform runs`` and ``psplatform attach``: what stores tell about runs, when nothing else is left of them."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from psplatform.replication.checkpoints.arrays import Contents
from psplatform.replication.checkpoints.parts import CheckpointWriter
from psplatform.replication.checkpoints.sealing import seal
from psplatform.replication.stores.store import create_run, update_run
from psplatform.telemetry.log.writer import EventLog
from psplatform.tensors.layout import Layout, TensorSpec

Command = Callable[..., Any]
Json = Callable[[Any], dict[str, Any]]


def write_run(store: Path, run: str, records: Any, **ending: str) -> None:
    create_run(str(store), {"run": run})
    with EventLog(str(store), 1) as log:
        for record in records:
            log.buffer(record)
    if ending:
        update_run(str(store), **ending)


@pytest.fixture
def finished(tmp_path: Path, records: Any) -> str:
    store = tmp_path / "runs" / "one.zarr"
    write_run(store, "digits-bsp-1a2b3c", records, outcome="updates")
    return str(store)


@pytest.fixture
def dead(tmp_path: Path, records: Any) -> str:
    """Make the store of a run whose every process was killed: no end in its log, none in its store."""
    store = tmp_path / "runs" / "two.zarr"
    write_run(store, "digits-bsp-4d5e6f", records[:-1])
    return str(store)


def grow_old(store: str) -> None:
    """Let the log of a store have been written an hour ago."""
    for segment in Path(store, "log").iterdir():
        os.utime(segment, (time.time() - 3600, time.time() - 3600))


def save_checkpoint(store: str, number: int) -> Path:
    """Write a checkpoint of ten times that version, cut in that minute of 2001; return its folder."""
    contents = Contents(Layout.of((TensorSpec("w", (4,), "float32", "parameter"),), shards=1), ())
    vectors = {key: np.zeros(size, dtype) for key, (dtype, size) in contents.vectors(0).items()}
    cut = {"position": 10 * number, "version": 10 * number, "plain": {"commits": 0}}
    part = CheckpointWriter(store, number, contents).write_shard(0, vectors, **cut)
    seal(store, number, [part], positions=[10 * number], state={}, time_s=1e9 + 60 * number)
    return Path(store) / "checkpoints" / f"{number:08d}"


@pytest.fixture
def kept(tmp_path: Path, records: Any) -> str:
    """Make the store of a run that was killed: it keeps three checkpoints, and its log lacks the newest."""
    event = {"kind": "checkpoint", "event": "complete", "seconds": 0.25, "bytes": 1_500_000, "reason": ""}
    logged = [event | {"at": 0.6, "number": number, "version": 10 * number} for number in range(1, 6)]
    store = tmp_path / "runs" / "three.zarr"
    write_run(store, "digits-bsp-7a8b9c", [*records[:-1], *logged])
    for number in (4, 5, 6):
        folder = save_checkpoint(str(store), number)
        if number == 5:
            (folder / "state.msgpack").unlink()
    return str(store)


def test_the_checkpoints_that_the_store_holds_are_shown(psplatform: Command, kept: str) -> None:
    """Not those that the log remembers: what is gone is gone, what is damaged is named, and the newest is there."""
    result = psplatform("runs", kept)
    assert result.exit_code == 0, result.output
    told = re.sub(r"\s+", " ", result.output)
    assert "2 complete in the store, no rule known; the newest at version 60" in told
    assert [row.partition(", cut at 2001-09-0")[0].rstrip() for row in told.split("checkpoint ")[1:]] == [
        "4: version 40, complete, 0.0 MB in 0.25 s",
        "5: version 50, damaged (state.msgpack: it is missing)",
        "6: version 60, complete, 0.0 MB",
    ]


def test_scripts_get_the_checkpoints_of_the_store_beside_those_of_the_log(
    psplatform: Command, kept: str, last_json: Json
) -> None:
    summary = last_json(psplatform("runs", kept, "--json"))
    assert [one["number"] for one in summary["checkpoints"]] == [1, 2, 3, 4, 5]
    assert [(one["number"], one["version"], one["time"], one["state"]) for one in summary["checkpoints_held"]] == [
        (4, 40, 1e9 + 240, "complete"),
        (5, None, None, "damaged"),
        (6, 60, 1e9 + 360, "complete"),
    ]


def test_a_folder_without_runs_is_no_mistake(psplatform: Command, tmp_path: Path, last_json: Json) -> None:
    """Whether it is empty or holds other things; a place that does not exist is one, and so is a foreign store."""
    (tmp_path / "others" / "folder").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    (tmp_path / "others" / "notes.txt").touch()
    for name in ("empty", "others"):
        for place in (str(tmp_path / name), (tmp_path / name).as_uri()):
            result = psplatform("runs", place)
            assert (result.exit_code, result.output) == (0, "no runs\n")
            assert last_json(psplatform("runs", place, "--json")) == {"runs": []}
    zarr.open_group(str(tmp_path / "foreign.zarr"), mode="w")
    foreign = psplatform("runs", str(tmp_path / "foreign.zarr"))
    assert foreign.exit_code == 2
    assert "is a Zarr group, but holds no run of psplatform; check the path" in foreign.output


def test_a_folder_that_may_not_be_looked_at_is_refused_in_one_sentence(
    psplatform: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: Any, **options: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("os.stat", denied)
    result = psplatform("runs", str(tmp_path))
    monkeypatch.undo()
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit), result.exception


@pytest.mark.parametrize("command", ["runs", "attach"])
def test_a_finished_run_is_shown_from_its_store(psplatform: Command, finished: str, command: str) -> None:
    result = psplatform(command, finished)
    assert result.exit_code == 0, result.output
    assert "updates (1 updates)" in result.output
    assert "digits-bsp-1a2b3c" in result.output


@pytest.mark.parametrize("command", ["runs", "attach"])
def test_a_local_url_and_home_name_the_same_store(
    psplatform: Command, finished: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (f"file://{finished}".replace("one", "%6Fne"), "~/runs/one.zarr"):
        result = psplatform(command, name)
        assert result.exit_code == 0, result.output
        assert "updates (1 updates)" in result.output


def test_the_folder_of_a_local_url_is_listed(psplatform: Command, finished: str, tmp_path: Path) -> None:
    assert finished in psplatform("runs", (tmp_path / "runs").as_uri()).output


@pytest.mark.parametrize("command", ["runs", "attach"])
def test_scripts_get_the_summary_that_train_ended_with(
    psplatform: Command, finished: str, last_json: Json, command: str
) -> None:
    summary = last_json(psplatform(command, finished, "--json"))
    assert (summary["run"], summary["outcome"], summary["updates"]) == ("digits-bsp-1a2b3c", "updates", 1)


def test_stopping_a_finished_run_changes_nothing(psplatform: Command, finished: str) -> None:
    result = psplatform("attach", finished, "--stop")
    assert result.exit_code == 0, result.output
    assert "updates (1 updates)" in result.output


def test_a_dead_run_is_shown_as_far_as_it_came(psplatform: Command, dead: str, last_json: Json) -> None:
    summary = last_json(psplatform("runs", dead, "--json"))
    assert (summary["outcome"], summary["updates"]) == (None, 1)


def test_attaching_to_a_dead_run_ends_with_a_word(psplatform: Command, dead: str) -> None:
    """Nobody waits for ever for a run that nobody computes any more."""
    grow_old(dead)
    result = psplatform("attach", dead)
    assert result.exit_code == 1
    assert "Traceback" not in result.output
    assert "Error: " in result.output


def test_a_run_of_which_only_the_log_tells_that_it_goes_on_is_not_attached_to(psplatform: Command, dead: str) -> None:
    """It is not called dead either: the command says how the scheduler can be asked."""
    result = psplatform("attach", dead)
    assert result.exit_code == 2
    assert "goes on (its log grew" in result.output
    assert "--scheduler ADDRESS" in result.output


def test_the_runs_in_a_folder_are_listed(
    psplatform: Command, finished: str, dead: str, tmp_path: Path, last_json: Json
) -> None:
    """With how each ended; `runs` alone looks into runs/."""
    found = last_json(psplatform("runs", str(tmp_path / "runs"), "--json"))["runs"]
    assert [(one["run"], one["outcome"]) for one in found] == [
        ("digits-bsp-1a2b3c", "updates"),
        ("digits-bsp-4d5e6f", "open"),
    ]
    assert [one["store"] for one in found] == [finished, dead]
    assert [one["state"] for one in found] == ["finished", "live"], "what logged a moment ago is taken to go on"
    assert {*found[0]} == {"run", "outcome", "store", "state", "reason", "policy", "workload"}


def test_a_list_says_what_each_run_trains_and_what_became_of_it(
    psplatform: Command, tmp_path: Path, last_json: Json, kept: str
) -> None:
    """Of one that was killed an hour ago: that it can be recovered, and from what."""
    update_run(kept, policy="backup", workload="digits")
    grow_old(kept)
    (row,) = last_json(psplatform("runs", str(tmp_path / "runs"), "--json"))["runs"]
    assert (row["state"], row["policy"], row["workload"]) == ("recoverable", "backup", "digits")
    assert row["reason"].endswith("knows it; recover it from checkpoint 6")
    assert re.search(r"digits-bsp-7a8b9c +recoverable +open ", psplatform("runs", str(tmp_path / "runs")).output)


def test_the_summary_of_a_store_says_what_can_be_done_with_the_run(
    psplatform: Command, finished: str, dead: str, last_json: Json
) -> None:
    grow_old(dead)
    found = {store: last_json(psplatform("runs", store, "--json")) for store in (finished, dead)}
    assert (found[finished]["state"], found[finished]["reason"]) == (
        "finished",
        "it made the updates that it was asked for",
    )
    assert found[dead]["state"] == "failed"
    assert "it is lost without a checkpoint" in found[dead]["reason"]


def test_a_finished_run_without_a_log_is_told_by_the_rest_of_its_store(
    psplatform: Command, finished: str, last_json: Json
) -> None:
    save_checkpoint(finished, 8)
    shutil.rmtree(Path(finished, "log"))
    result = psplatform("runs", finished)
    assert result.exit_code == 0, result.output
    assert "the log is missing" in " ".join(result.output.split())
    summary = last_json(psplatform("runs", finished, "--json"))
    assert (summary["run"], summary["outcome"], summary["updates"]) == ("digits-bsp-1a2b3c", "updates", 80)


def test_an_open_run_without_a_log_is_told_in_a_sentence(psplatform: Command, dead: str) -> None:
    shutil.rmtree(Path(dead, "log"))
    assert "run digits-bsp-4d5e6f has no log: failed; it has no log" in psplatform("runs", dead).output


def test_a_damaged_end_is_named_and_a_recovery_makes_the_store_readable(
    psplatform: Command, finished: str, records: Any, last_json: Json
) -> None:
    with EventLog(finished, 2) as log:
        for record in records:
            log.buffer(record)
            log.flush()
    segment = Path(finished, "log", "00000002-00000004.msgpack")
    segment.write_bytes(segment.read_bytes()[:-20])
    result = psplatform("runs", finished)
    assert result.exit_code == 0, result.output
    assert "the log can be read up to version 1 only" in " ".join(result.output.split())
    with EventLog(finished, 3) as log:
        for record in records:
            log.buffer(record)
    for command in ("runs", "attach", "runs"):
        result = psplatform(command, finished)
        assert result.exit_code == 0, result.output
        assert f"the log lacks what was in log/{segment.name}" in " ".join(result.output.split())
    segment.unlink()
    assert f"the log lacks what was in log/{segment.name}" in " ".join(psplatform("runs", finished).output.split())
    update_run(finished, outcome=None)
    verified = psplatform("runs", finished, "--verify")
    assert verified.exit_code == 2
    assert "or leave it: the run has gone on since, and is read without it" in verified.output
    assert last_json(psplatform("runs", finished, "--json"))["outcome"] == "updates"


@pytest.mark.usefixtures("finished")
def test_runs_alone_lists_the_folder_runs(psplatform: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "digits-bsp-1a2b3c" in psplatform("runs").output


@pytest.mark.usefixtures("finished")
def test_a_store_that_cannot_be_read_hides_no_other(psplatform: Command, tmp_path: Path) -> None:
    """One damaged or foreign store among many is shown as such."""
    damaged = tmp_path / "runs" / "another.zarr"
    damaged.mkdir()
    (damaged / "zarr.json").write_text("{")
    result = psplatform("runs", str(tmp_path / "runs"))
    assert result.exit_code == 0, result.output
    assert "digits-bsp-1a2b3c" in result.output
    assert re.search(r"- +foreign +unreadable +.*another\.zarr", result.output)


@pytest.mark.parametrize("command", ["runs", "attach", "recover", "trace"])
def test_a_store_without_its_description_is_no_folder_of_stores(
    refused: Callable[..., str], finished: str, command: str
) -> None:
    """What it holds are groups of arrays, not runs that cannot be read."""
    for part in ("checkpoints", "model"):
        zarr.create_group(f"{finished}/{part}")
    (Path(finished) / "zarr.json").unlink()
    assert f"{finished} is the store of a run, but its zarr.json is missing" in refused(command, finished)


def test_no_runs_are_said_to_be_none(psplatform: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert psplatform("runs").output == "no runs\n"
