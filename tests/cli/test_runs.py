"""``psplatform runs`` and ``psplatform attach``: what stores tell about runs, when nothing else is left of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from psplatform.replication.store import create_run, update_run
from psplatform.telemetry.writer import EventLog

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


@pytest.mark.parametrize("command", ["runs", "attach"])
def test_a_finished_run_is_shown_from_its_store(psplatform: Command, finished: str, command: str) -> None:
    result = psplatform(command, finished)
    assert result.exit_code == 0, result.output
    assert "updates (1 updates)" in result.output
    assert "digits-bsp-1a2b3c" in result.output


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
    result = psplatform("attach", dead)
    assert result.exit_code == 1
    assert "Traceback" not in result.output
    assert "Error: " in result.output


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
    assert "another.zarr" in result.output
    assert "unreadable" in result.output


def test_no_runs_are_said_to_be_none(psplatform: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert psplatform("runs").output == "no runs\n"
