"""A Dask cluster of real processes on this machine, in groups that stand for hosts, and what can be done to them.

Each group listens on a localhost address of its own, so that Dask and placement take it for a host; unlike real hosts,
groups share memory, and see each other's processes.  A group is started by one ``dask worker`` with nannies.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from psplatform.client.clusters.cluster_view import look_at_cluster
from psplatform.client.clusters.connecting import connect
from psplatform.errors import ClusterError, ConfigurationError

GROUPS: Final = ("127.0.0.2", "127.0.0.3", "127.0.0.4")

_START_S: Final = 900.0
_POLL_S: Final = 0.2
_QUIET: Final = ("--no-dashboard", "--dashboard-address", "127.0.0.1:0")

# A shell that starts the program, again when that has ended, as a service manager does; and that ends its whole group,
# itself included, when this program, which holds the pipe, has ended.
_GUARD: Final = 'exec 3<&0; while :; do "$@" </dev/null 3<&-; sleep 1; done & cat <&3 >/dev/null; kill -KILL 0'


class GroupCluster:
    """A scheduler, and so many Dask workers in each group; a context that ends them all."""

    def __init__(self, folder: Path, processes: int) -> None:
        self._folder, self._processes = folder, processes
        self._programs: dict[str, subprocess.Popen[bytes]] = {}
        self.client: Any = None
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _begin(self) -> None:
        told = self._folder / "scheduler.json"
        self._dask("scheduler", "scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(told))
        _wait(lambda: told.exists() and bool(told.read_text()), "the scheduler listens", self._folder)
        self.address = str(json.loads(told.read_text())["address"])
        _wait(self._connects, "the scheduler answers", self._folder)
        self.scheduler_pid = int(self.client.run_on_scheduler(os.getpid))
        for group in GROUPS:
            self.start(group)

    def _connects(self) -> bool:
        with contextlib.suppress(ConfigurationError):
            self.client = connect(self.address)
        return self.client is not None

    def start(self, group: str) -> None:
        """Start the Dask workers of a group of which none is left."""
        many = ("--nworkers", str(self._processes), "--nthreads", "1", "--memory-limit", "0")
        place = ("--host", group, "--local-directory", str(self._folder))
        self._dask(group, "worker", self.address, *many, *place, "--preload", "psplatform.preload")

    def _dask(self, name: str, *command: str) -> None:
        with (self._folder / f"{name}.txt").open("ab") as said:
            self._programs[name] = subprocess.Popen(  # noqa: S603  a command of ours
                ["/bin/sh", "-c", _GUARD, "sh", sys.executable, "-m", "dask", *command, *_QUIET],
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                process_group=0,
            )

    def kill(self, group: str) -> None:
        """Kill every process of a group, nannies too."""
        program = self._programs.pop(group)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.wait()
        if program.stdin is not None:
            program.stdin.close()

    def pids(self) -> dict[str, int]:
        """Return the process id of each Dask worker, by its address, as the scheduler knows them.

        Raises
        ------
        ClusterError
            If the scheduler does not answer.
        """
        return {one.address: one.pid for one in look_at_cluster(self.client).processes}

    def pid_at(self, address: str) -> int:
        """Return the process id of a Dask worker.

        Raises
        ------
        ClusterError
            If the scheduler does not know it, or does not answer.
        """
        found = self.pids()
        if address not in found:
            raise ClusterError(f"the Dask worker {address} has just left; look again", peer=address)
        return found[address]

    def is_whole(self) -> bool:
        """Whether every Dask worker of every group is there."""
        try:
            return len(self.pids()) == self._processes * len(GROUPS)
        except ClusterError:
            return False

    def close(self) -> None:
        """End every process, the stopped ones too."""
        if self.client is not None:
            with contextlib.suppress(OSError, TimeoutError):
                self.client.close(timeout=2)
        for name in list(self._programs):
            self.kill(name)


@dataclass
class Signalled:
    """A process that is killed, and started again by its nanny, or stopped for so long.

    Attributes
    ----------
    seconds
        For which it is stopped; 0 to kill it.
    """

    pid: int
    name: str
    where: str
    seconds: float = 0.0

    def begin(self) -> None:
        """Send it the signal; one that has just ended by itself is hit as well."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGSTOP if self.seconds else signal.SIGKILL)

    def end(self) -> None:
        """Wake it, if it was stopped and is still there."""
        if self.seconds:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGCONT)


@dataclass
class GroupKilled:
    """All processes of a group killed; it is started again after so long."""

    cluster: GroupCluster
    where: str
    seconds: float = 5.0

    @property
    def name(self) -> str:
        """What is done."""
        return f"host {self.where}"

    def begin(self) -> None:
        """Kill them."""
        self.cluster.kill(self.where)

    def end(self) -> None:
        """Start it again."""
        self.cluster.start(self.where)


def _wait(holds: Callable[[], bool], what: str, folder: Path) -> None:
    give_up_at = time.monotonic() + _START_S
    while not holds():
        if time.monotonic() > give_up_at:
            raise ClusterError(f"not within {_START_S:g} s: {what}; look at what its processes said in {folder}")
        time.sleep(_POLL_S)
