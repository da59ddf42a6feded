"""A run on a cluster of its own, watched from outside: how far it is, and which processes have which roles."""

from __future__ import annotations

import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from psplatform.client.clusters.embedded import end_cluster, start_cluster
from psplatform.client.launch import train
from psplatform.client.run import Run
from psplatform.errors import ClusterError
from psplatform.jobs.job import Job

_POLL_S: Final = 0.1
_END_S: Final = 240.0


@contextmanager
def watched(make_job: Callable[[str], Job], processes: int) -> Iterator[tuple[Run, Any]]:
    """Train the job that is made for a store on so many processes; give the run and the cluster, and stop it then."""
    cluster, client = start_cluster(processes)
    try:
        with tempfile.TemporaryDirectory() as folder:
            run = train(make_job(str(Path(folder) / "run.zarr")), client)
            try:
                yield run, cluster
            finally:
                run.stop("it was measured")
                run.wait(_END_S)
                run.close()
    finally:
        end_cluster(client, cluster)


def iterations(run: Run) -> float:
    """Return how many gradients of each worker have been applied, whole."""
    status = run.status()
    summary = status["summary"] or {}
    if status.get("failure") is not None:
        raise status["failure"]
    if not summary.get("applied"):
        return 0.0
    workers = sum(one["status"] not in ("lost", "left") for one in summary["slots"].values())
    if workers != summary["workers"]:
        return 0.0  # not all are there yet; where one was lost, the limit is waited for
    return float(summary["applied"] / summary.get("blocks", 1) / workers)


def await_iterations(run: Run, count: float, limit_s: float) -> None:
    """Wait until there were so many.

    Raises
    ------
    ClusterError
        If that takes longer than the limit.
    """
    give_up_at = time.monotonic() + limit_s
    while iterations(run) < count:
        if time.monotonic() > give_up_at:
            raise ClusterError(f"there were no {count:.0f} iterations within {limit_s:g} s; choose fewer parameters")
        time.sleep(_POLL_S)


def processes_by_role(run: Run, cluster: Any) -> dict[str, list[int]]:
    """Return the processes of the cluster by the roles in them; this one has the scheduler and the nannies."""
    names = defaultdict[str, set[str]](set)
    for role, address in run.roles().items():
        names[address].add(role.partition("-")[0])
    found = defaultdict[str, list[int]](list)
    for nanny in cluster.workers.values():
        if nanny.pid is not None:
            found["+".join(sorted(names[nanny.worker_address])) or "idle"].append(nanny.pid)
    return {**found, "cluster": [os.getpid()]}
