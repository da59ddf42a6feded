"""Programs that start runs: what becomes of a run without the one that started it."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psplatform as ps
from psplatform.client.clusters.connecting import connect
from psplatform.client.runs import records
from psplatform.client.runs.attaching import runs_on
from psplatform.replication.checkpoints.retention import checkpoints_of
from psplatform.replication.stores.store import describe_run

Start = Callable[..., ps.Run]
Command = Callable[..., "subprocess.Popen[str]"]
Reaches = Callable[[str, int], None]
Until = Callable[..., None]
LIMIT_S = 180.0

FLAGS = ["-w", "samples=2000", "--workers", "2", "--shards", "2", "--updates", "1000000000"]
FLAGS += ["--stragglers", "constant:seconds=0.01"]


def test_a_run_outlives_the_program_that_started_it(
    cluster: Any, psplatform: Command, reaches: Reaches, until: Until, tmp_path: Path
) -> None:
    """SIGKILL of `psplatform train`: the run goes on, and another program attaches to it and stops it in good order."""
    store = tmp_path / "run.zarr"
    program = psplatform("train", "mlp", "--scheduler", cluster.address, "--store", store, *FLAGS)
    until((store / "log").exists, "the run has begun")
    reaches(str(store), 10)
    program.send_signal(signal.SIGKILL)
    program.wait(LIMIT_S)
    reaches(str(store), 50)
    stopping = psplatform("attach", store, "--stop", "--json")
    output, errors = stopping.communicate(timeout=LIMIT_S)
    assert stopping.returncode == 0, errors
    summary = json.loads(output.splitlines()[-1])
    assert (summary["outcome"], summary["detail"]) == ("stopped", "stopped by psplatform attach --stop")
    assert summary["updates"] >= 60
    until(lambda: runs_on(cluster.client) == [], "the run is gone from the scheduler")


def test_a_run_beside_a_killed_one_is_untouched(
    cluster: Any, start: Start, psplatform: Command, reaches: Reaches, until: Until, tmp_path: Path
) -> None:
    """The program of the one is killed, the other comes to its end; each keeps to its own store."""
    store = tmp_path / "killed.zarr"
    run = start(cluster, stop=ps.Stop(updates=300))
    program = psplatform("train", "mlp", "--scheduler", cluster.address, "--store", store, *FLAGS)
    until((store / "log").exists, "the other run has begun")
    program.send_signal(signal.SIGKILL)
    assert run.wait(LIMIT_S)["updates"] == 300
    reaches(str(store), 10)
    (other,) = runs_on(cluster.client)
    ps.attach(other, cluster.client).stop("the test is over")
    until(lambda: runs_on(cluster.client) == [], "the other run is over")
    assert run.parameters()[1] == 300


def test_a_run_with_a_cluster_of_its_own_can_be_recovered_once_its_program_is_killed(
    psplatform: Command, reaches: Reaches, until: Until, tmp_path: Path
) -> None:
    """Not before: as long as it goes on, another program is refused, and the run does not notice."""
    store = tmp_path / "run.zarr"
    program = psplatform("train", "mlp", "--store", store, "--checkpoint-every", "20", *FLAGS)
    until((store / "log").exists, "the run has begun")
    until(lambda: len(checkpoints_of(str(store))) >= 1, "a checkpoint")
    _, errors = psplatform("recover", store).communicate(timeout=LIMIT_S)
    assert "still goes on; stop it, or attach to it instead" in errors
    reaches(str(store), 60)
    program.send_signal(signal.SIGKILL)
    program.wait(LIMIT_S)
    end = str(checkpoints_of(str(store))[-1].version + 300)  # processes without their program may go on for a moment
    output, errors = psplatform("recover", store, "--updates", end, "--json").communicate(timeout=LIMIT_S)
    summary = json.loads(output.splitlines()[-1])
    assert (summary["outcome"], str(summary["updates"])) == ("updates", end), errors


def test_another_program_of_this_machine_sees_and_stops_a_run_with_a_cluster_of_its_own(
    psplatform: Command, reaches: Reaches, until: Until, tmp_path: Path
) -> None:
    """By its store alone; the program that started it tells who stopped it, and ends well."""
    store = tmp_path / "run.zarr"
    program = psplatform("train", "mlp", "--store", store, "--json", *FLAGS)
    until((store / "zarr.json").exists, "the run is starting")
    with contextlib.closing(ps.attach(str(store))) as early:
        assert early.status()["failure"] is None, "it is not taken for lost"
        reaches(str(store), 10)
        assert early.status()["phase"] == "running"
    with contextlib.closing(ps.attach(str(store))) as run:
        assert run.status()["phase"] == "running"
        assert run.roles().keys() >= {"coordinator", "server-0", "server-1"}
        assert "scheduler" not in describe_run(str(store)), "nobody who only reads the store learns where it is"
        record = records.known(run.run, str(store))
        assert record is not None
        with connect(record.scheduler) as client:
            assert runs_on(client) == [run.run]
        run.stop("by another")
        assert run.wait(LIMIT_S)["detail"] == "by another"
    output, errors = program.communicate(timeout=LIMIT_S)
    assert program.returncode == 0, errors
    summary = json.loads(output.splitlines()[-1])
    assert (summary["outcome"], summary["detail"]) == ("stopped", "by another")


def test_a_scheduler_where_nobody_listens_is_refused(psplatform: Command, tmp_path: Path) -> None:
    """Exit code 2 and one sentence with the address and the remedy; no store is made."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
    program = psplatform("train", "mlp", "--scheduler", address)
    _, errors = program.communicate(timeout=LIMIT_S)
    assert program.returncode == 2
    assert f"Error: no scheduler answers at {address}; start one with `dask scheduler`" in errors
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []
