"""Three hosts in network namespaces: one is cut off from the others, and nothing else is told of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

import psplatform as ps
from psplatform.bench.clusters.host_cluster import Cut, HostCluster
from psplatform.bench.clusters.namespaces import why_not
from psplatform.bench.faults.aftermath import shown_in_vain
from psplatform.bench.faults.drill import Drill
from psplatform.jobs.replication import Replication

CUT_S: Final = 20.0
BOUNDED: Final = ps.Bounded(max_divergence=8, unit="updates")
SETTLE_S: Final = 60.0
SPREAD_S: Final = 30.0


@pytest.fixture
def cluster(tmp_path: Path, until: Callable[..., None]) -> Iterator[HostCluster]:
    """Start two Dask workers on each of three hosts."""
    if reason := why_not():
        pytest.skip(reason)
    with HostCluster(tmp_path, processes=2) as cluster:
        until(cluster.is_whole, "every Dask worker is there")
        yield cluster


def job(replication: Replication) -> ps.Job:
    return ps.Job(
        workload="digits",
        policy="asp",
        workers=2,
        shards=1,
        replication=replication,
        checkpoints=ps.Checkpoints.never(),
        stragglers="constant:seconds=0.05",
        stop=ps.Stop(updates=10**9),
        torch_threads=1,
    )


@pytest.mark.parametrize("replication", [BOUNDED, ps.Chain()], ids=lambda one: one.mode)
def test_a_run_goes_on_without_the_host_of_its_coordinator_and_has_one_history(
    cluster: HostCluster, tmp_path: Path, replication: Replication
) -> None:
    with Drill(
        cluster, job(replication), tmp_path, hosts=cluster.hosts.at, settle_s=SETTLE_S, spread_s=SPREAD_S
    ) as drill:
        host = drill.host_of("coordinator")
        row = drill.hurt(Cut(cluster, host, CUT_S))
        (run,) = drill.finish()
    assert "coordinator" in row["hit"]
    assert row["survived"], row["why"]
    assert row["weak_before"] == [], "it could have lost any one host"
    assert row["weak_after"] == [], "and can lose any one again"
    assert [one["role"] for one in row["failovers"]].count("coordinator") == 1, "the other side took over"
    assert row["beyond_bound"] == []
    assert run["back"] == [], "one history"
    assert shown_in_vain(run["forgotten"], [row["failovers"]], shards=1) == [], "but for what the bound allows"
    if replication == ps.Chain():
        assert run["forgotten"] == []
    assert run["outcome"] == "stopped"
