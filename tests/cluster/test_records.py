"""A run and this user's record of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

import psplatform as ps
from psplatform.client.clusters.connecting import address_of
from psplatform.client.runs import records
from psplatform.errors import PsplatformError

LIMIT_S = 180.0
CODE = ("model", "loss", "data", "test")


def test_a_record_is_there_while_a_run_goes_on(
    start: Callable[..., ps.Run], small: dict[str, Any], client: Client, until: Callable[..., None]
) -> None:
    run = start(**{**small, "stop": ps.Stop(updates=10**9)})
    until(lambda: run.metrics()["updates"] > 0, "the first update")
    record = records.known(run.run, run.store)
    assert record is not None
    assert (record.scheduler, record.program, record.credentials) == (address_of(client), None, None)
    run.stop("seen enough")
    run.wait(LIMIT_S)
    assert records.find(run.run) is None


def test_a_run_that_cannot_be_noted_starts_all_the_same_and_says_so(
    small: dict[str, Any], client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PSPLATFORM_STATE", str(tmp_path / "file"))
    said: list[str] = []
    job = ps.Job(**{**small, "store": str(tmp_path / "run.zarr")})
    with ps.train(job, client, report=said.append) as run:
        assert run.wait(LIMIT_S)["outcome"] == "updates"
    assert [one for one in said if "your other programs will not find this run's scheduler" in one]


def test_a_run_that_does_not_start_leaves_no_record(
    start: Callable[..., ps.Run], small: dict[str, Any], client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one that is recovered, the record before is there again."""
    folder = tmp_path / "state"
    monkeypatch.setenv("PSPLATFORM_STATE", str(folder))
    store = "memory://here/run.zarr"
    with pytest.raises(PsplatformError, match="does not see it"):
        start(**{**small, "store": store})
    assert list((folder / "runs").iterdir()) == []

    run = start(**small)
    run.wait(LIMIT_S)
    before = records.Record(run.run, run.store, "tcp://127.0.0.1:1", 1.0)
    records.remember(before)
    monkeypatch.setattr("psplatform.client.launch.require_visible_store", _refuse)
    with pytest.raises(PsplatformError, match="not now"):
        ps.recover(run.store, client, stop=ps.Stop(updates=40), **{name: small[name] for name in CODE})
    assert records.known(run.run, run.store) == before


async def _refuse(*_: object) -> None:
    raise PsplatformError("not now")
