"""A run on a cluster of its own, watched from outside: how far it is, and which processes have which roles."""

from __future__ import annotations

import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from psplatform.bench.measuring.host import cpu_seconds
from psplatform.bench.measuring.rounds import Measured
from psplatform.client.clusters.embedded import end_cluster, start_cluster
from psplatform.client.launch import train
from psplatform.client.run import Run
from psplatform.core.plan import Stop
from psplatform.errors import ClusterError
from psplatform.jobs.job import Job
from psplatform.jobs.replication import NoReplication

WARM_UP: Final = 20
"""Iterations before those that count: memory is touched, and a standby is made, meanwhile."""

LIMIT_S: Final = 240.0
"""Longest wait for them, and for the end of a run."""

_FEWEST: Final = 10
_POLL_S: Final = 0.1
_LONGEST_S: Final = 7 * 24 * 3600.0


def device_of(wanted: str) -> str:
    """Return the device on which the workers of a job with that device compute here.

    Raises
    ------
    ConfigurationError
        If there is none such.
    """
    from psplatform.runtime.program import choose_device  # noqa: PLC0415  brings torch

    return str(choose_device(wanted))


def endless(store: str, *, replicated: bool) -> dict[str, Any]:
    """Return the fields of a job that goes on until it is stopped, and does nothing but train, on a core a process."""
    return {
        "stop": Stop(seconds=_LONGEST_S),
        "evaluate_every": None,
        "torch_threads": 1,
        "store": store,
        **({} if replicated else {"replication": NoReplication()}),
    }


@contextmanager
def watched(make_job: Callable[[str], Job], processes: int, *, encrypted: bool = True) -> Iterator[tuple[Run, Any]]:
    """Train the job that is made for a store on so many processes; give the run and the cluster, and stop it then."""
    cluster, client = start_cluster(processes, encrypted=encrypted)
    try:
        with tempfile.TemporaryDirectory() as folder:
            run = train(make_job(str(Path(folder) / "run.zarr")), client)
            try:
                yield run, cluster
            finally:
                run.stop("it was measured")
                run.wait(LIMIT_S)
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


def measure_run(run: Run, cluster: Any, seconds: float) -> Measured:
    """Measure a run that trains for so long, after a few iterations to warm up."""
    await_iterations(run, WARM_UP, LIMIT_S)
    roles = processes_by_role(run, cluster)
    began, before, computed = time.perf_counter(), iterations(run), _computed(roles)
    time.sleep(seconds)
    await_iterations(run, before + _FEWEST, LIMIT_S)
    made, lasted_s, after = iterations(run) - before, time.perf_counter() - began, _computed(roles)
    by_role = {role: (after[role] - computed[role]) / made * 1e3 for role in roles}
    return Measured(lasted_s / made * 1e3, sum(by_role.values()), by_role)


def _computed(roles: Mapping[str, Sequence[int]]) -> dict[str, float]:
    return {role: sum(cpu_seconds(pid) for pid in pids) for role, pids in roles.items()}
