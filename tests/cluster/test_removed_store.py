"""A store that is removed under a run: said, made anew, and whole at the end; or another run's by then."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

import psplatform as ps
from psplatform.client.runs.listing import State, look_at
from psplatform.client.runs.recovery import recover
from psplatform.errors import StoreError
from psplatform.replication.checkpoints.retention import checkpoints_of, newest_whole
from psplatform.replication.stores.store import create_run, describe_run

Start = Callable[..., ps.Run]
Until = Callable[..., None]
Log = Callable[..., list[dict[str, Any]]]
LIMIT_S = 180.0
TRIES = 20
JOB = {
    "workload": "digits",
    "optimizer": ps.SGD(lr=0.05, momentum=0.9),
    "workers": 2,
    "shards": 2,
    "stragglers": "constant:seconds=0.01",
    "stop": ps.Stop(updates=10**9),
    "evaluate_every": None,
    "torch_threads": 1,
}


def told(run: ps.Run) -> list[str]:
    return [one["text"] for one in run.metrics()["incidents"] if one["kind"] == "store"]


def remove(store: str) -> None:
    """Remove a store that is being written: a folder that has a new file by the time it is to go needs another try."""
    for _ in range(TRIES):
        try:
            return shutil.rmtree(store)
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.ENOENT}:
                raise
    raise AssertionError(f"{store} was written faster than it could be removed, {TRIES} times")


def test_a_run_whose_store_is_removed_has_a_whole_one_at_its_end(
    start: Start, client: Client, until: Until, log: Log
) -> None:
    """It is found, attached to, read and recovered like any other; that it was removed stands in its log."""
    run = start(**JOB, checkpoints=ps.Checkpoints(every_updates=10**6))
    until(lambda: bool(checkpoints_of(run.store)), "the first checkpoint")
    until(lambda: bool(log(run, "commit")), "commits stand in the log, and are lost with it")
    remove(run.store)
    until(lambda: bool(told(run)), "it is noticed")
    assert "the store was removed while the run went on, and is made anew: its log begins at version" in told(run)[0]
    until(lambda: Path(run.store, "zarr.json").exists() and bool(checkpoints_of(run.store)), "another, at once")
    assert look_at(run.store, {run.run: run.store}).state is State.LIVE
    assert ps.attach(run.store, client).status()["phase"] == "running"
    reached = run.metrics()["updates"]
    until(lambda: run.metrics()["updates"] >= reached + 20, "training goes on")
    run.stop("seen enough")
    summary = run.wait(LIMIT_S)
    assert (summary["outcome"], run.status()["trouble"]) == ("stopped", "")
    assert run.parameters()[1] == summary["updates"] == newest_whole(run.store).summary.version
    assert (describe_run(run.store)["outcome"], look_at(run.store).state) == ("stopped", State.FINISHED)
    again = ps.attach(run.store).wait(LIMIT_S)
    assert (again["updates"], again["outcome"]) == (summary["updates"], "stopped")
    assert [one["text"] for one in again["incidents"] if one["kind"] == "store"] == told(run)
    versions = [one["version"] for one in log(run, "commit")]
    assert versions == list(range(versions[0], summary["updates"] + 1))
    assert versions[0] > 1
    end = summary["updates"] + 5
    assert recover(run.store, client, stop=ps.Stop(updates=end)).wait(LIMIT_S)["updates"] == end


def contents(store: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(store).rglob("*") if path.is_file()}


def test_a_run_whose_store_another_has_by_now_writes_nothing_into_it(start: Start, until: Until) -> None:
    """It goes on, and its end names both; nobody gets the other's model for its own."""
    run = start(**JOB, checkpoints=ps.Checkpoints(every_updates=10))
    until(lambda: bool(checkpoints_of(run.store)), "a checkpoint")
    aside = f"{run.store}.aside"
    create_run(aside, {"run": "mlp-asp-4d5e6f"})
    Path(aside, "zarr.json").replace(Path(run.store, "zarr.json"))  # at one moment, unlike removing and making
    until(lambda: bool(told(run)), "it is noticed")
    until(lambda: run.metrics()["checkpoint_failures"] > 0, "a checkpoint goes nowhere")
    before = contents(run.store)
    until(lambda: run.metrics()["checkpoint_failures"] > 2, "nor do others, and training goes on")
    assert "now holds run mlp-asp-4d5e6f" in run.status()["trouble"]
    run.stop("seen enough")
    with pytest.raises(StoreError) as caught:
        run.wait(LIMIT_S)
    assert f"now holds run mlp-asp-4d5e6f: it was removed while run {run.run} went on" in str(caught.value)
    assert contents(run.store) == before
    with pytest.raises(StoreError, match="now holds run mlp-asp-4d5e6f"):
        run.parameters()
