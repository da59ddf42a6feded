"""What the documents promise is tried on processes as a reader would start them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest
from distributed import Client

ROOT = Path(__file__).resolve().parents[2]
START_LIMIT_S = 180.0
RUN_LIMIT_S = 300.0
LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Shell:
    """Starts programs in a folder, each as the head of a group of its own, so that what it starts ends with it.

    Attributes
    ----------
    folder
        Where they run, and where Python also looks for modules.
    """

    folder: Path

    def start(self, arguments: list[str], output: int | IO[str] = subprocess.DEVNULL) -> subprocess.Popen[str]:
        """Start a program that is ended with `end`."""
        return subprocess.Popen(
            _named(arguments),
            cwd=self.folder,
            env=self._environment(),
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str) -> str:
        """Run a program to its end and return what it printed; it must succeed in time."""
        log = self.folder / f"output-{len(list(self.folder.glob('output-*')))}.txt"
        with log.open("w") as output:
            process = self.start(list(arguments), output)
            try:
                code = process.wait(RUN_LIMIT_S)
            finally:
                self.end(process)
        said = log.read_text()
        assert code == 0, f"{' '.join(arguments)} ended with {code}:\n{said}"
        return said

    def end(self, process: subprocess.Popen[str]) -> None:
        """End a program and what it started."""
        for sign, limit_s in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0)):
            # Once its head has been waited for, the group's number may be anybody's.
            if process.poll() is not None:
                return
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(limit_s)

    def wait_for(self, condition: Callable[[], bool], what: str, *processes: subprocess.Popen[str]) -> None:
        """Wait until `condition` holds, while all of `processes` live, for at most `START_LIMIT_S`."""
        deadline = time.monotonic() + START_LIMIT_S
        while not condition():
            assert all(process.poll() is None for process in processes), f"a process ended; waiting for {what}"
            assert time.monotonic() < deadline, f"waited {START_LIMIT_S:g} s for {what}"
            time.sleep(LOOK_S)  # what another process writes is announced to nobody

    def _environment(self) -> Mapping[str, str]:
        # Two cores serve several processes: one thread each, or they wait for each other.
        return {**os.environ, "PYTHONPATH": str(self.folder), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


@dataclass(frozen=True, slots=True)
class Cluster:
    """A scheduler with four Dask workers, and a shell on the same machine."""

    address: str
    shell: Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Return a shell in a folder of this test."""
    return Shell(tmp_path)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, cluster_commands: tuple[str, str]) -> Iterator[Cluster]:
    """Start the cluster with the README's own commands, at a port that the system chooses."""
    shell = Shell(tmp_path_factory.mktemp("cluster"))
    scheduler_line, worker_line = cluster_commands
    found = shell.folder / "scheduler.json"
    options = ["--host", "127.0.0.1", "--port", "0", "--dashboard-address", ":0", "--scheduler-file", str(found)]
    scheduler = shell.start([*scheduler_line.split(), *options])
    workers: subprocess.Popen[str] | None = None
    try:
        # The file is this scheduler's own, so the address can be nobody else's.
        shell.wait_for(lambda: bool(_address_in(found)), "the scheduler", scheduler)
        address = _address_in(found)
        line = worker_line.replace("tcp://scheduler-host:8786", address)
        workers = shell.start([*line.split(), "--no-dashboard"])
        with Client(address, timeout=START_LIMIT_S, set_as_default=False) as client:
            client.wait_for_workers(4, timeout=START_LIMIT_S)
        yield Cluster(address, shell)
    finally:
        for process in filter(None, (workers, scheduler)):
            shell.end(process)


@pytest.fixture(scope="session")
def cluster_commands() -> tuple[str, str]:
    """Return the README's lines that start a scheduler and workers."""
    lines = (ROOT / "README.md").read_text().splitlines()
    scheduler = next(line for line in lines if line.startswith("dask scheduler"))
    return scheduler, next(line for line in lines if line.startswith("dask worker"))


def _address_in(found: Path) -> str:
    try:
        return str(json.loads(found.read_text())["address"])
    except (FileNotFoundError, json.JSONDecodeError):  # not there yet, or not whole
        return ""


def _named(arguments: list[str]) -> list[str]:
    program, *rest = arguments
    if program == "python":
        return [sys.executable, *rest]
    return [str(Path(sysconfig.get_path("scripts")) / program), *rest]
