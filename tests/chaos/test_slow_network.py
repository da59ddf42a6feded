"""Hosts behind slow interfaces, whose gradients one of them sums: what the server's interface carries are the sums."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from summed_gradients import sum_all_gradients

import psplatform as ps
from psplatform.bench.clusters.host_cluster import HostCluster
from psplatform.bench.clusters.namespaces import why_not

SERVER: Final = "server"
WORKERS: Final = ("alpha", "beta", "gamma", "delta")
MBIT: Final = {SERVER: 2.0, **dict.fromkeys(WORKERS, 50.0)}
RESOURCES: Final = {SERVER: "SERVER=1", **dict.fromkeys(WORKERS, "WORKER=1")}
LIMIT_S: Final = 180.0


@pytest.fixture
def cluster(tmp_path: Path, until: Callable[..., None]) -> Iterator[HostCluster]:
    """Start a Dask worker on each host."""
    if reason := why_not():
        pytest.skip(reason)
    with HostCluster(tmp_path, 1, names=tuple(MBIT), mbit=MBIT, resources=RESOURCES) as cluster:
        until(cluster.is_whole, "every Dask worker is there")
        sum_all_gradients(cluster.client)
        yield cluster


def job(store: Path) -> ps.Job:
    """Return a training of a model that takes half a second through the server's interface."""
    return ps.Job(
        workload="mlp",
        options={"samples": 2000, "dimension": 1024},
        optimizer=ps.SGD(lr=0.01),
        policy="bsp",
        workers=len(WORKERS),
        shards=1,
        network=ps.Network(ps.Fabric(aggregators=2)),
        resources={"worker": {"WORKER": 1}, "server": {"SERVER": 1}},
        replication=ps.NoReplication(),
        checkpoints=ps.Checkpoints.never(),
        evaluate_every=None,
        stop=ps.Stop(updates=10**9),
        worker_lease_s=5,
        torch_threads=1,
        store=str(store),
    )


def test_the_server_receives_sums_whoever_of_the_others_stops(
    cluster: HostCluster, tmp_path: Path, until: Callable[..., None], log: Callable[..., list[dict[str, Any]]]
) -> None:
    """The first host's process sums; it is stopped for as long as the others go on without it."""
    store = tmp_path / "run.zarr"
    run = ps.train(job(store), cluster.client)
    try:
        _goes_on(store, until, log)
        before, known = cluster.hosts[SERVER].traffic, len(log(str(store), "commit"))
        first = min(log(str(store), "joined"), key=lambda one: one["slot"])
        host = cluster.hosts[cluster.hosts.at(first["process"].split()[0])]
        host.signal(signal.SIGSTOP)
        until(lambda: log(str(store), "lost"), "its worker is lost")
        _goes_on(store, until, log)
        host.signal(signal.SIGCONT)
        after = cluster.hosts[SERVER].traffic
        records = log(str(store), "commit")
    finally:
        run.stop("seen enough")
        summary = run.wait(LIMIT_S)
        run.close()
    assert summary["outcome"] == "stopped"
    assert summary["network"]["aggregation"] > 1.0
    # One vector each round at least; and less than each gradient would have taken by itself.
    vector = summary["network"]["bytes_in"] / len(log(str(store), "transfer"))
    received, gradients = after[0] - before[0], sum(len(one["slots"]) for one in records[known:])
    assert len(records[known:]) * vector * 0.9 < received < gradients * vector


def _goes_on(store: Path, until: Callable[..., None], log: Callable[..., list[dict[str, Any]]]) -> None:
    def sums() -> int:
        return sum("bundles" in one for one in log(str(store), "commit"))

    wanted = sums() + 2
    until(lambda: sums() >= wanted, "gradients are summed")
