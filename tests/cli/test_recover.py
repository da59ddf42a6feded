"""``psplatform recover``: which job goes on, and what is refused, with nothing started and nothing lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zarr

from psplatform.jobs.job import Job
from psplatform.replication.store import create_run, describe_run, update_run

Refused = Callable[..., str]
DESCRIPTION: dict[str, Any] = {"run": "digits-bsp-1a2b3c", "workload": "digits"}


@pytest.fixture
def store(tmp_path: Path) -> str:
    """Return the store of a run whose cluster is gone."""
    path = str(tmp_path / "my.zarr")
    create_run(path, {**DESCRIPTION, "job": Job(workload="digits").to_plain(), "embedded": True})
    update_run(path, outcome="failed")
    return path


def test_a_place_without_a_run_is_refused(refused: Refused, tmp_path: Path) -> None:
    assert "there is no run in" in refused("recover", str(tmp_path / "nothing.zarr"))


def test_a_foreign_store_is_named_as_such(refused: Refused, tmp_path: Path) -> None:
    zarr.open_group(str(tmp_path / "foreign.zarr"), mode="w")
    assert "holds no run of psplatform" in refused("recover", str(tmp_path / "foreign.zarr"))


def test_a_newer_format_is_not_guessed_at(refused: Refused, store: str) -> None:
    root = zarr.open_group(store, mode="r+")
    root.attrs["psplatform"] = {**DESCRIPTION, "format": 99}
    assert "has format 99; this psplatform reads format" in refused("recover", store)


@pytest.mark.parametrize("outcome", ["failed", "updates"])
def test_a_run_without_a_checkpoint_cannot_go_on(refused: Refused, store: str, outcome: str) -> None:
    """Whether it has reached its end or not: a later one would be of no use."""
    update_run(store, outcome=outcome)
    assert "holds no complete checkpoint" in refused("recover", store)
    assert describe_run(store)["outcome"] == outcome


def test_a_local_url_and_home_name_the_same_store(
    refused: Refused, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (f"file://{store}".replace("my", "%6Dy"), "~/my.zarr"):
        assert "holds no complete checkpoint" in refused("recover", name)


def test_a_run_that_has_reached_its_end_needs_a_later_one(
    refused: Refused, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psplatform.runtime.recovery.load_checkpoint", lambda *arguments: None)
    update_run(store, outcome="updates")
    assert "has reached its end (updates); give a later one" in refused("recover", store)


@pytest.mark.parametrize(
    ("option", "words"),
    [(("--checkpoint", "7"), "checkpoint 7"), (("-o", "bound"), "KEY=VALUE")],
)
def test_a_bad_option_is_named(refused: Refused, store: str, option: tuple[str, str], words: str) -> None:
    assert words in refused("recover", store, *option)
