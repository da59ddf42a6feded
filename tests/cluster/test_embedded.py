"""The cluster of a run that was given none."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster

from psplatform.client.embedded import end_cluster, start_cluster


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
    until(lambda: len(scheduler.workers) == 2, "it is back", limit_s=30.0)
    assert lost not in client.run(os.getpid).values()
    assert len(cluster.workers) == 2
