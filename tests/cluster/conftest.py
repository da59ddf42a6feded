"""One Dask cluster on this machine, shared by all tests, and runs that end with the test whatever becomes of it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import torch
from distributed import Client, LocalCluster
from forked_dask import nannies_fork
from torch import nn

import psplatform as ps
from psplatform.errors import PsplatformError
from psplatform.runtime.dataplane.segments import _folders
from psplatform.telemetry.log.reader import LogReader

LIMIT_S = 180.0
PROCESSES = 5
Record = dict[str, Any]

# The model and the data below are made in processes that cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Start a cluster of five processes with one thread each, and return a client of it."""
    with (
        nannies_fork(),
        LocalCluster(
            n_workers=PROCESSES,
            threads_per_worker=1,
            memory_limit=None,
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
            host="127.0.0.1",
        ) as cluster,
        Client(cluster, set_as_default=False, direct_to_workers=True) as found,
    ):
        yield found


@pytest.fixture(scope="session")
def start_here() -> Callable[..., contextlib.AbstractContextManager[Client]]:
    """Start Dask workers in this process, which gets its settings back; what a test does to a class is done to all."""

    @contextlib.contextmanager
    def start(workers: int = 1, threads: int = 1) -> Iterator[Client]:
        interval_s = sys.getswitchinterval()
        try:
            with (
                LocalCluster(
                    n_workers=workers,
                    threads_per_worker=threads,
                    processes=False,
                    protocol="tcp",
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",
                    scheduler_kwargs={"dashboard": False},
                ) as cluster,
                Client(cluster, set_as_default=False) as client,
            ):
                yield client
        finally:
            sys.setswitchinterval(interval_s)

    return start


def spirals() -> tuple[Any, Any]:
    """Two classes that no line divides: ``float32[240, 2]`` and ``int64[240]``."""
    generator = torch.Generator().manual_seed(5)
    turn = torch.rand(240, generator=generator) * 6
    side = torch.arange(240) % 2
    angle = turn + side * torch.pi
    noise = 0.05 * torch.randn(240, 2, generator=generator)
    return torch.stack([turn * angle.cos(), turn * angle.sin()], 1) / 6 + noise, side


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2))


@pytest.fixture
def small() -> dict[str, Any]:
    """Fields of a job that takes a second: a model of 82 parameters on 240 points."""
    return {
        "model": network,
        "loss": nn.functional.cross_entropy,
        "data": spirals,
        "test": spirals,
        "optimizer": ps.SGD(lr=0.2, momentum=0.5),
        "sampling": "replacement",
        "batch_size": 16,
        "workers": 2,
        "shards": 2,
        "stop": ps.Stop(updates=20),
        "evaluate_every": None,
        "torch_threads": 1,
        "seed": 11,
    }


@pytest.fixture
def start(client: Client, tmp_path: Path) -> Iterator[Callable[..., ps.Run]]:
    """Start a job on the cluster; it is stopped when the test ends."""
    runs: list[ps.Run] = []

    def begin(**fields: Any) -> ps.Run:
        job = ps.Job(**{"store": str(tmp_path / f"run-{len(runs)}.zarr"), **fields})
        run = ps.train(job, client)
        print(f"run {run.run}, seed {job.seed}")
        runs.append(run)
        return run

    yield begin
    for run in runs:
        with contextlib.suppress(PsplatformError, TimeoutError):
            run.stop("the test is over")
            run.wait(LIMIT_S)
        run.close()


@pytest.fixture
def finish(start: Callable[..., ps.Run]) -> Callable[..., ps.Run]:
    """Start a job on the cluster and wait until it is over."""

    def begin(**fields: Any) -> ps.Run:
        run = start(**fields)
        run.wait(LIMIT_S)
        return run

    return begin


@pytest.fixture
def log() -> Callable[..., list[Record]]:
    """Read a run's event log from its store, one kind of record or all of them."""

    def read(run: ps.Run, kind: str | None = None) -> list[Record]:
        records = [record for records, _ in LogReader(run.store).iter_from() for record in records]
        return [record for record in records if kind in (None, record["kind"])]

    return read


def _segments(run: str) -> list[Path]:
    return [path for folder in _folders() for path in folder.glob(f"*{run}*")]


@pytest.fixture
def segments() -> Callable[[str], list[Path]]:
    """List what lies in shared memory under a run's id."""
    return _segments


@pytest.fixture
def by_value() -> Callable[[str], None]:
    """Let the processes of the cluster get what a test module defines, which they cannot import."""
    return lambda module: cloudpickle.register_pickle_by_value(sys.modules[module])
