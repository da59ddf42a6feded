"""Open files that do not suffice for a run: said before anything is started, with the remedy."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from psplatform.client import launch
from psplatform.client.clusters.open_files import files_left, require_files, require_files_on
from psplatform.core.supervision.placement import Placement
from psplatform.errors import ClusterError, ConfigurationError, StoreError, lacks_files
from psplatform.jobs.job import Job
from psplatform.replication.stores.store import create_run
from psplatform.tasks.foreign import unforeseen

SPARE = 50
MANY = 30


@pytest.fixture
def _few() -> Iterator[None]:
    """Let this process open few files more than it has."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/dev/fd").iterdir())) + SPARE, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("_few")
def test_what_is_left_is_the_limit_without_what_is_open() -> None:
    left = files_left()
    assert left is not None
    opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(10)]
    now = files_left()
    for one in opened:
        os.close(one)
    assert now == left - 10
    assert SPARE - 5 <= left <= SPARE


@pytest.mark.usefixtures("_few")
def test_a_cluster_that_takes_more_files_than_may_be_opened_is_refused() -> None:
    require_files(2)
    said = r"may open only \d+ more files, and a cluster of 4 processes .* takes 66; raise the limit with `ulimit -n"
    with pytest.raises(ConfigurationError, match=said):
        require_files(4)


@pytest.mark.usefixtures("_few")
def test_nothing_is_started_where_files_do_not_suffice(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Neither a process nor a store; without the look, the processes of the cluster would not come up for minutes."""
    started: list[str] = []
    monkeypatch.setattr(launch, "begin", lambda: started.append("a fork server"))
    monkeypatch.setattr(launch, "start_cluster", lambda processes: started.append("a cluster"))
    with pytest.raises(ConfigurationError, match="raise the limit"):
        launch.train(Job(workload="mlp", workers=4, shards=2, store=str(tmp_path / "run.zarr")))
    assert started == []
    assert list(tmp_path.iterdir()) == []


class Cluster:
    """Stands for a client whose Dask workers may open so many more files, or do not say."""

    def __init__(self, left: dict[str, Any]) -> None:
        self._left = left

    async def run(self, function: Any, *, workers: list[str], on_error: str) -> dict[str, Any]:
        assert function is files_left
        return {address: self._left[address] for address in workers if address in self._left}


def looked_at(left: dict[str, Any]) -> None:
    cluster: Any = Cluster(left)
    asyncio.run(require_files_on(cluster, Placement("s", "s", ("s", "t"), ("a", "b"), (("t",), ("s",)))))


def test_a_dask_worker_with_too_few_is_named() -> None:
    """A process that leads or serves takes more than one that computes; one that does not say is left alone."""
    with pytest.raises(ClusterError, match="the Dask worker t may open only 35 more files, .* 4 processes takes 36"):
        looked_at({"s": 36, "t": 35, "a": 4, "b": 4})
    with pytest.raises(ClusterError, match="the Dask worker b may open only 3 more files"):
        looked_at({"s": 36, "t": 36, "a": 4, "b": 3})
    looked_at({"s": 36, "t": None, "a": OSError("silent")})


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


LACKING = OSError(errno.EMFILE, "Too many open files")


@pytest.mark.parametrize(
    ("error", "lacks"),
    [
        (LACKING, True),
        (OSError(errno.ENFILE, "Too many open files in system"), True),
        (caused(RuntimeError("no connection"), caused(OSError("timed out"), LACKING)), True),
        (OSError(errno.ENOSPC, "No space left on device"), False),
        (ValueError("24"), False),
        (None, False),
    ],
)
def test_files_that_run_out_are_told_from_other_failures(error: Any, lacks: bool) -> None:
    assert lacks_files(error) == lacks


def test_the_remedy_is_named_where_they_run_out_during_a_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    remedy = "raise the limit of open files with `ulimit -n 1024`"
    assert remedy in str(unforeseen(LACKING, "a worker could not start"))
    assert remedy not in str(unforeseen(OSError(errno.EIO, "I/O error"), "a worker could not start"))

    def fail(*_: Any, **__: Any) -> Any:
        raise LACKING

    monkeypatch.setattr("psplatform.replication.stores.store.write_group", fail)
    with pytest.raises(StoreError, match=remedy):
        create_run(str(tmp_path / "run.zarr"), {"run": "mine"})
