"""The cluster of a run that was given none."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster
from distributed.comm.core import CommClosedError

import psplatform as ps
from psplatform.client.clusters import embedded as embedded_module
from psplatform.client.clusters.embedded import end_cluster, start_cluster
from psplatform.errors import ClusterError
from psplatform.replication.checkpoints.retention import load_checkpoint
from psplatform.replication.stores.store import describe_run

METHOD = "distributed.worker.multiprocessing-method"


@pytest.fixture
def embedded() -> Iterator[tuple[LocalCluster, Client]]:
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "100ms"}):
        cluster, client = start_cluster(2)
        yield cluster, client
        end_cluster(client, cluster)


def test_a_process_that_is_killed_returns_however_long_that_takes(
    embedded: tuple[LocalCluster, Client], until: Callable[..., None]
) -> None:
    # Dask gives a process up that is away at some moment so long after a loss, be it for another loss by then.
    cluster, client = embedded
    scheduler: Any = cluster.scheduler
    lost = min(client.run(os.getpid).values())
    os.kill(lost, signal.SIGKILL)
    until(lambda: len(scheduler.workers) == 1, "its loss is noticed")
    until(lambda: len(scheduler.workers) == 2, "it is back", limit_s=180.0)
    assert lost not in client.run(os.getpid).values()
    assert len(cluster.workers) == 2


def test_what_dask_was_told_of_its_processes_holds_here_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such variables must be there before a process imports, and forked ones have imported."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with dask.config.set({"distributed.nanny.pre-spawn-environ": {"OMP_NUM_THREADS": 2}}):
        cluster, client = start_cluster(1)
        (found,) = client.run(lambda: os.environ.get("OMP_NUM_THREADS")).values()
        end_cluster(client, cluster)
    assert found == "2"


@pytest.mark.parametrize(("encrypted", "scheme"), [(True, "tls://"), (False, "tcp://")])
def test_processes_speak_openly_only_if_asked_to(encrypted: bool, scheme: str) -> None:
    cluster, client = start_cluster(1, encrypted=encrypted)
    addresses = [cluster.scheduler_address, *client.scheduler_info()["workers"]]
    end_cluster(client, cluster)
    assert len(addresses) == 2
    assert all(address.startswith(scheme + "127.0.0.1:") for address in addresses)


def test_other_clusters_start_their_processes_as_they_did() -> None:
    with dask.config.set({METHOD: "spawn"}):
        one, two = start_cluster(1), start_cluster(1)
        assert dask.config.get(METHOD) == "forkserver"
        end_cluster(one[1], one[0])
        assert dask.config.get(METHOD) == "forkserver", "the second one may have to start a process again"
        end_cluster(two[1], two[0])
        assert dask.config.get(METHOD) == "spawn"


class Noted:
    """A cluster or a client that starts nothing, and notes that it is closed."""

    def __init__(self, name: str, closed: list[str], error: BaseException | None = None) -> None:
        self._name, self._closed, self._error = name, closed, error

    def close(self, timeout: float) -> None:
        self._closed.append(self._name)
        if self._error is not None:
            raise self._error


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let `start_cluster` start nothing; return what is closed of that."""
    found: list[str] = []
    monkeypatch.setattr(embedded_module, "begin", lambda: None)
    monkeypatch.setattr(embedded_module, "PatientCluster", lambda **options: Noted("cluster", found))
    return found


def test_a_cluster_ends_although_its_client_cannot_be_closed_in_time(
    closed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop that they share may be busy; the processes would go on until this program exits."""
    client = Noted("client", closed, TimeoutError("the loop is busy"))
    monkeypatch.setattr(embedded_module, "Client", lambda *given, **options: client)
    method = dask.config.get(METHOD)
    cluster, found = start_cluster(1, encrypted=False)
    end_cluster(found, cluster)
    assert closed == ["client", "cluster"]
    assert dask.config.get(METHOD) == method


@pytest.mark.parametrize("error", [OSError("it cannot connect"), KeyboardInterrupt()])
def test_a_cluster_that_gets_no_client_ends(
    closed: list[str], monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def refuse(*given: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(embedded_module, "Client", refuse)
    method = dask.config.get(METHOD)
    with pytest.raises(type(error)) as caught:
        start_cluster(1, encrypted=False)
    assert caught.value is error
    assert closed == ["cluster"]
    assert dask.config.get(METHOD) == method


@pytest.mark.parametrize("raises", [False, True])
def test_a_run_whose_block_is_left_is_stopped_in_good_order(
    small: dict[str, Any], tmp_path: Path, until: Callable[..., None], raises: bool
) -> None:
    """Its cluster ends with the block, an exception of the user's code included; everything is in the store."""
    store = str(tmp_path / "run.zarr")
    leaving = pytest.raises(ZeroDivisionError) if raises else contextlib.nullcontext()
    with leaving, ps.train(ps.Job(**{**small, "store": store, "stop": ps.Stop(updates=10**9)})) as run:
        until(lambda: run.metrics()["updates"] > 0, "the first update")
        if raises:
            raise ZeroDivisionError
    assert (run.status()["phase"], run.metrics()["outcome"], run.wait(1.0)["outcome"]) == ("over", "stopped", "stopped")
    version = run.parameters()[1]
    assert version == run.metrics()["updates"] > 0
    assert run.client is None
    with pytest.raises(ClusterError, match=r"was closed, and its cluster has ended with it; `psplatform recover "):
        run.stop()
    assert describe_run(store)["outcome"] == "stopped"
    assert load_checkpoint(store).summary.version == version


def test_a_run_that_is_not_waited_for_is_read_from_its_store(
    small: dict[str, Any], tmp_path: Path, until: Callable[..., None]
) -> None:
    run = ps.train(ps.Job(**{**small, "store": str(tmp_path / "run.zarr"), "stop": ps.Stop(updates=10**9)}))
    try:
        until(lambda: run.metrics()["updates"] > 0, "the first update")
    finally:
        run.close(stop_within_s=0.0)
    assert run.status()["phase"] == "over"
    with pytest.raises(ClusterError, match="is gone; its log ends at version"):
        run.wait(1.0)
    with pytest.raises(ClusterError, match="was closed"):
        run.stop()


class Logged(Noted):
    """A cluster or a client whose closing is told at length, as Dask's is now and then."""

    def close(self, timeout: float) -> None:
        super().close(timeout)
        log(asyncio.CancelledError(), "distributed.client")
        log(CommClosedError("in <TLS>: Stream is closed"), "distributed.batched")
        log(Exception("Tried sending message after closing.  Status: closed"), "tornado.application")
        log(ValueError("a bug"), "distributed.client")


def log(error: BaseException, logger: str) -> None:
    try:
        raise error
    except BaseException:  # a cancellation is none that `Exception` catches
        logging.getLogger(logger).exception("%r", error)


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """Collect what the loggers of Dask and Tornado say."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    loggers = [logging.getLogger(name) for name in ("distributed.client", "distributed.batched", "tornado.application")]
    for one in loggers:
        one.addHandler(handler)
    yield said
    for one in loggers:
        one.removeHandler(handler)


def test_that_connections_close_is_no_error_while_a_cluster_is_closed_and_at_no_other_time(
    closed: list[str], logged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_module, "Client", lambda *given, **options: Logged("client", closed))
    cluster, client = start_cluster(1, encrypted=False)
    end_cluster(client, cluster)
    assert closed == ["client", "cluster"]
    assert logged == ["ValueError('a bug')"], "other errors are told"
    log(CommClosedError("while a run goes on"), "distributed.client")
    assert len(logged) == 2
