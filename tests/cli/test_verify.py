"""``psplatform runs STORE --verify``: every byte is read, and what is damaged or missing is named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psplatform.replication.checkpoints.arrays import Contents
from psplatform.replication.checkpoints.parts import CheckpointWriter
from psplatform.replication.checkpoints.sealing import seal
from psplatform.replication.stores.models import save_model
from psplatform.replication.stores.store import create_run, update_run
from psplatform.telemetry.log.writer import EventLog
from psplatform.tensors.layout import Layout, TensorSpec

Command = Callable[..., Any]
RUN = "digits-bsp-1a2b3c"


@pytest.fixture
def store(tmp_path: Path, records: Any) -> Path:
    """Write a log of four segments and another term's, a model, and two checkpoints."""
    place = tmp_path / "run.zarr"
    create_run(str(place), {"run": RUN})
    for term, some in ((1, records), (2, records[:2])):
        with EventLog(str(place), term) as log:
            for record in some:
                log.buffer(record)
                log.flush()
    save_model(str(place), {"w": np.arange(8, dtype=np.float32)}, version=1)
    contents = Contents(Layout.of((TensorSpec("w", (4,), "float32", "parameter"),), shards=1), ())
    for number in (1, 2):
        vectors = {key: np.ones(size, dtype) for key, (dtype, size) in contents.vectors(0).items()}
        cut = {"position": number, "version": number, "plain": {"commits": 0}}
        part = CheckpointWriter(str(place), number, contents).write_shard(0, vectors, **cut)
        seal(str(place), number, [part], positions=[number], state={}, time_s=1e9)
    return place


def flip(path: Path, at: int = -1) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0x04
    path.write_bytes(content)


def test_a_sound_store_is_said_to_be_sound(psplatform: Command, store: Path, last_json: Any) -> None:
    result = psplatform("runs", str(store), "--verify")
    assert result.exit_code == 0, result.output
    assert f"run {RUN}: all that is there is as it was written" in result.output
    found = last_json(psplatform("runs", str(store), "--verify", "--json"))
    assert (found["sound"], found["log"]["segments"], found["log"]["records"]) == (True, 6, 6)
    assert (found["model"]["state"], found["best"]["state"]) == ("complete", "none")
    assert [(one["number"], one["state"]) for one in found["checkpoints"]] == [(1, "complete"), (2, "complete")]


def test_a_flipped_byte_of_a_checkpoint_is_found(psplatform: Command, store: Path, last_json: Any) -> None:
    """`runs` alone looks at lengths only; the whole one is named to go on from."""
    flip(store / "checkpoints" / "00000002" / "model" / "w" / "c" / "0")
    assert last_json(psplatform("runs", str(store), "--json"))["checkpoints_held"][1]["state"] == "complete"
    result = psplatform("runs", str(store), "--verify")
    assert result.exit_code == 2
    assert "checkpoint 2         damaged     model/w/c/0: its checksum differs" in result.output
    assert f"psplatform recover {store} --checkpoint 1" in result.output


def test_a_missing_segment_in_the_middle_is_told(psplatform: Command, store: Path, last_json: Any) -> None:
    for number in (2, 3):
        (store / "log" / f"00000001-0000000{number}.msgpack").unlink()
    result = psplatform("runs", str(store), "--verify")
    assert result.exit_code == 2
    assert "00000001-00000002.msgpack to 00000001-00000003.msgpack are missing" in result.output


def test_a_missing_end_of_a_term_is_told_by_the_term_that_goes_on(psplatform: Command, store: Path) -> None:
    (store / "log" / "00000001-00000004.msgpack").unlink()
    result = psplatform("runs", str(store), "--verify")
    assert result.exit_code == 2
    assert "goes on after 00000001-00000004.msgpack, which is missing" in result.output


def test_a_damaged_segment_is_named(psplatform: Command, store: Path) -> None:
    flip(store / "log" / "00000001-00000002.msgpack", 30)
    result = psplatform("runs", str(store), "--verify")
    assert result.exit_code == 2
    assert "log/00000001-00000002.msgpack of" in result.output


@pytest.mark.parametrize("way", ["flip", "remove"])
def test_a_model_that_is_not_as_it_was_saved_is_damaged(psplatform: Command, store: Path, way: str) -> None:
    """Plain Zarr shows a chunk that is missing as zeros."""
    (chunk,) = (store / "model" / "w" / "c").iterdir()
    if way == "flip":
        flip(chunk, len(chunk.read_bytes()) // 2)
    else:
        chunk.unlink()
    result = psplatform("runs", str(store), "--verify")
    assert result.exit_code == 2
    assert "model                damaged" in result.output


def test_what_was_never_finished_is_no_damage(psplatform: Command, store: Path, last_json: Any) -> None:
    """A killed run leaves a checkpoint without a manifest."""
    (store / "checkpoints" / "00000002" / "manifest.jsonl").unlink()
    result = psplatform("runs", str(store), "--verify", "--json")
    assert result.exit_code == 0
    assert [one["state"] for one in last_json(result)["checkpoints"]] == ["complete", "incomplete"]


# --- what is missing as a whole ---


CHECKPOINT = {"kind": "checkpoint", "event": "complete", "version": 1, "seconds": 0.1, "bytes": 9, "reason": ""}


@pytest.fixture
def ended(store: Path, records: Any) -> Path:
    """Let the run of the store go on under a third term, with one checkpoint for each it had, and end well."""
    run, *others, end = records
    with EventLog(str(store), 3) as log:
        log.buffer({**run, "checkpoints": {"keep": 2, "every_updates": 1, "every_seconds": None}})
        for record in (*others, *({**CHECKPOINT, "at": 0.6, "number": number} for number in (1, 2))):
            log.buffer(record)
        log.flush()
        log.buffer(end)
    update_run(str(store), term=3, outcome="updates", error="", failure=None)
    return store


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_a_run_that_has_ended_and_lacks_nothing_is_sound(psplatform: Command, ended: Path) -> None:
    result = psplatform("runs", str(ended), "--verify")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("removed", "said"),
    [
        (["log/00000003-00000002.msgpack"], "the end of the log is missing after 00000003-00000001.msgpack"),
        (
            ["log/00000003-00000001.msgpack", "log/00000003-00000002.msgpack"],
            "the end of the log is missing after 00000002-00000002.msgpack",
        ),
        (["log"], "the log is missing: the run has ended (updates)"),
        (["model"], "model                missing     it is missing: the run has ended (updates)"),
        (["model/zarr.json"], "model                missing"),
        (
            ["checkpoints/00000001"],
            "checkpoint 1         missing     it is missing, and the log says",
        ),
        (
            ["checkpoints/00000002"],
            "checkpoint 2         missing     it is missing, and the log says",
        ),
        (["checkpoints/00000002/manifest.jsonl"], "checkpoint 2         damaged     manifest.jsonl: it is missing"),
        (["checkpoints"], "checkpoint 1         missing"),
    ],
)
def test_what_is_missing_as_a_whole_is_named(
    psplatform: Command, ended: Path, last_json: Any, removed: list[str], said: str
) -> None:
    for path in removed:
        remove(ended / path)
    result = psplatform("runs", str(ended), "--verify")
    assert result.exit_code == 2, result.output
    assert said in result.output
    assert last_json(psplatform("runs", str(ended), "--verify", "--json"))["sound"] is False


def test_a_model_and_a_log_that_are_both_missing_are_both_named(
    psplatform: Command, ended: Path, last_json: Any
) -> None:
    remove(ended / "model")
    remove(ended / "log")
    found = last_json(psplatform("runs", str(ended), "--verify", "--json"))
    assert (found["sound"], found["model"]["state"]) == (False, "missing")
    assert found["log"]["flaws"] == ["the log is missing: the run has ended (updates)"]


def test_a_best_model_that_the_log_names_is_missed(psplatform: Command, store: Path, last_json: Any) -> None:
    with EventLog(str(store), 3) as log:
        log.buffer({"kind": "evaluated", "at": 1.0, "version": 1, "loss": 1.0, "accuracy": 0.5, "kept": True})
    found = last_json(psplatform("runs", str(store), "--verify", "--json"))
    assert (found["sound"], found["best"]["state"]) == (False, "missing")


def test_a_run_that_goes_on_or_died_may_lack_its_end(psplatform: Command, ended: Path) -> None:
    """Without an outcome nothing says that more was written: neither the end of its log nor a model is missed."""
    update_run(str(ended), outcome=None)
    remove(ended / "log" / "00000003-00000002.msgpack")
    remove(ended / "model")
    result = psplatform("runs", str(ended), "--verify")
    assert result.exit_code == 0, result.output


def test_a_run_that_could_not_be_started_has_no_log(psplatform: Command, tmp_path: Path) -> None:
    place = str(tmp_path / "unstarted.zarr")
    create_run(place, {"run": RUN})
    update_run(place, outcome="failed", error="no process is left")
    assert psplatform("runs", place, "--verify").exit_code == 0
    update_run(place, failure=None)
    assert "the log is missing: the run has ended (failed)" in psplatform("runs", place, "--verify").output


def test_a_run_without_an_outcome_that_wrote_checkpoints_for_minutes_had_a_log(
    psplatform: Command, store: Path
) -> None:
    remove(store / "log")
    update_run(str(store), started=1e9 - 1)
    assert psplatform("runs", str(store), "--verify").exit_code == 0
    update_run(str(store), started=1e9 - 3600)
    assert "the log is missing: checkpoint 2 was written after" in psplatform("runs", str(store), "--verify").output


def test_checkpoints_that_newer_ones_have_replaced_are_not_missed(psplatform: Command, store: Path) -> None:
    """A checkpoint that was sealed and never logged counts among those that are kept."""
    run = {"kind": "run", "at": 0.0, "run": RUN, "checkpoints": {"keep": 2}, "shards": 1}
    with EventLog(str(store), 3) as log:
        log.buffer(run)
        log.buffer({**CHECKPOINT, "at": 0.1, "number": 1})
    remove(store / "checkpoints" / "00000001")
    assert psplatform("runs", str(store), "--verify").exit_code == 2
    with EventLog(str(store), 4) as log:
        log.buffer({**run, "checkpoints": {"keep": 1}})
    with EventLog(str(store), 5) as log:
        log.buffer(run)
        log.buffer({**CHECKPOINT, "at": 0.1, "number": 3})
    assert "checkpoint 3         missing" in psplatform("runs", str(store), "--verify").output
    assert "checkpoint 1 " not in psplatform("runs", str(store), "--verify").output


def test_what_cannot_be_verified_is_refused(refused: Callable[..., str], tmp_path: Path) -> None:
    assert "--verify reads one store from end to end; name it" in refused("runs", "--verify")
    assert "there is no run in" in refused("runs", str(tmp_path / "nowhere"), "--verify")
