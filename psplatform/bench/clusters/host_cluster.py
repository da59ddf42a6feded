"""A Dask cluster on hosts made of namespaces: a scheduler on one, and some Dask workers with nannies on each other.

The network between them can be cut, and a host killed; the program that makes them is on the same network.  A Dask
worker that is cut off from its scheduler for half a minute ends, with its nanny: its host starts it again.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from psplatform.bench.clusters.namespaces import Host, Hosts
from psplatform.client.clusters.cluster_view import look_at_cluster
from psplatform.client.clusters.connecting import connect
from psplatform.errors import ClusterError, ConfigurationError

SCHEDULER: Final = "scheduler"
HOSTS: Final = ("alpha", "beta", "gamma")

_PORT: Final = 8786
_START_S: Final = 900.0
_POLL_S: Final = 0.5
_QUIET: Final = ("--no-dashboard", "--dashboard-address", "127.0.0.1:0")


class HostCluster:
    """Some hosts and a scheduler; a context that leaves nothing of them.

    Parameters
    ----------
    folder
        For what the processes say, and for their temporary files.
    processes
        Dask workers on each host.
    names
        The hosts, beside the scheduler's.
    mbit
        Rates of the hosts' interfaces (`Hosts`).
    resources
        What Dask is told that the processes of a host have, by host.
    environment
        Variables of all processes.
    """

    def __init__(
        self,
        folder: Path,
        processes: int,
        *,
        names: Sequence[str] = HOSTS,
        mbit: float | Mapping[str, float] | None = None,
        resources: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._folder, self._processes, self._environment = folder, processes, dict(environment or {})
        self._names, self._resources = tuple(names), dict(resources or {})
        self.hosts = Hosts((SCHEDULER, *names), mbit)
        self.client: Any = None
        try:
            self._start_scheduler()
            for name in self._names:
                self.start(name)
            self._connect()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        """The scheduler's address."""
        return f"tcp://{self.hosts[SCHEDULER].address}:{_PORT}"

    def _start_scheduler(self) -> None:
        where = ("--host", self.hosts[SCHEDULER].address, "--port", str(_PORT))
        self._dask(self.hosts[SCHEDULER], "scheduler", *where)

    def start(self, name: str) -> None:
        """Start the Dask workers of a host, on which nothing runs."""
        host = self.hosts[name]
        one = ("--nworkers", "1", "--nthreads", "1", "--memory-limit", "0")
        place = ("--host", host.address, "--local-directory", str(self._folder / name))
        has = ("--resources", self._resources[name]) if name in self._resources else ()
        # Each with a command of its own, which ends with its worker: one for all would last until the last has ended.
        command = ("worker", self.address, *one, *place, *has, "--preload", "psplatform.preload")
        self._dask(host, *command, processes=self._processes)

    def _dask(self, host: Host, *command: str, processes: int = 1) -> None:
        program = [sys.executable, "-m", "dask", *command, *_QUIET]
        host.start(program, self._folder, self._environment, processes=processes)

    def _connect(self) -> None:
        give_up_at = time.monotonic() + _START_S
        while True:
            with contextlib.suppress(ConfigurationError):
                self.client = connect(self.address)
                return
            if not self.hosts[SCHEDULER].is_up or time.monotonic() > give_up_at:
                raise ClusterError(f"the scheduler did not start; look at {self._folder / SCHEDULER}.txt")
            time.sleep(_POLL_S)

    def is_whole(self) -> bool:
        """Whether every Dask worker of every host is there."""
        try:
            return len(look_at_cluster(self.client).processes) == self._processes * len(self._names)
        except ClusterError:
            return False

    def close(self) -> None:
        """End everything."""
        if self.client is not None:
            with contextlib.suppress(OSError, TimeoutError):
                self.client.close(timeout=2)
        self.hosts.close()


@dataclass
class Cut:
    """A host's cable pulled for so long."""

    cluster: HostCluster
    where: str
    seconds: float

    @property
    def name(self) -> str:
        """What is done."""
        return f"{self.where} cut off for {self.seconds:g} s"

    def begin(self) -> None:
        """Pull it."""
        self.cluster.hosts[self.where].cut()

    def end(self) -> None:
        """Put it back."""
        self.cluster.hosts[self.where].mend()


@dataclass
class Kill:
    """All processes of a host killed; it is started again after so long.

    With `silently`, its cable is pulled before, so that no other host is told, as when its power fails.
    """

    cluster: HostCluster
    where: str
    seconds: float = 10.0
    silently: bool = False

    @property
    def name(self) -> str:
        """What is done."""
        return f"{self.where} {'without power' if self.silently else 'killed'} for {self.seconds:g} s"

    def begin(self) -> None:
        """Kill them."""
        if self.silently:
            self.cluster.hosts[self.where].cut()
        self.cluster.hosts[self.where].kill()

    def end(self) -> None:
        """Start it again."""
        self.cluster.hosts[self.where].mend()
        self.cluster.start(self.where)
