"""What a scheduler knows of its cluster: the processes, how they fare, and the runs on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distributed import Client

from psplatform.client.clusters.connecting import address_of, ask
from psplatform.client.runs.attaching import find_runs
from psplatform.runtime.cluster import seen_by


@dataclass(frozen=True, slots=True)
class ProcessView:
    """A Dask worker, as it has last reported to its scheduler.

    Attributes
    ----------
    pid
        On its own host.
    cpu_percent
        100 for each core that is busy.
    status
        Dask's word: ``running``, ``paused``, ``closing`` ...
    silent_s
        Seconds since it was last heard: below one while all is well, more for a process that was stopped or is busy.
    """

    address: str
    name: str
    host: str
    pid: int
    cpu_percent: float
    memory_bytes: int
    threads: int
    status: str
    silent_s: float


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A cluster at one moment.

    Attributes
    ----------
    processes
        In the order of their addresses.
    stores
        The store of each run that goes on, by the run's id.
    """

    scheduler: str
    processes: tuple[ProcessView, ...]
    stores: Mapping[str, str]

    @property
    def runs(self) -> tuple[str, ...]:
        """Ids of the runs that go on, in order."""
        return tuple(sorted(self.stores))


def look_at_cluster(client: Client) -> ClusterView:
    """Return what the client's scheduler knows, within seconds; no worker is asked.

    Raises
    ------
    ClusterError
        If the scheduler is gone or does not answer.
    """
    return ask(client, _look)


async def _look(client: Client) -> ClusterView:
    scheduler: Any = client.scheduler
    workers = (await scheduler.identity(n_workers=-1))["workers"]
    seen = await client.run_on_scheduler(seen_by)
    # One that came or left in between is left out.
    rows = [_row(address, workers[address], *seen[address]) for address in sorted(workers) if address in seen]
    return ClusterView(address_of(client), tuple(rows), await find_runs(client))


def _row(address: str, worker: Mapping[str, Any], pid: int, silent_s: float) -> ProcessView:
    metrics = worker.get("metrics") or {}
    return ProcessView(
        address=address,
        name=str(worker.get("id") or address),
        host=str(worker["host"]),
        pid=pid,
        cpu_percent=float(metrics.get("cpu", 0.0)),
        memory_bytes=int(metrics.get("memory", 0)),
        threads=int(worker["nthreads"]),
        status=str(worker.get("status", "unknown")),
        silent_s=silent_s,
    )
