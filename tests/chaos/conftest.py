"""A Dask cluster of real processes, which run what users run, that tests may hurt."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from distributed import Client
from forked_dask import Program

import psplatform as ps
from psplatform.errors import PsplatformError
from psplatform.runtime.comms.hosting import dataset_name
from psplatform.runtime.dataplane.segments import _folders
from psplatform.telemetry.log.reader import LogReader

LIMIT_S: Final = 180.0
WORKERS: Final = 5
Record = dict[str, Any]
Until = Callable[..., None]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.chaos)


class Cluster:
    """A scheduler and Dask workers, each a process of this test's own; `end` ends them all, by their ids."""

    def __init__(self, folder: Path, until: Until) -> None:
        self._until = until
        self._folder = folder
        self._file = folder / "scheduler.json"
        self.workers: list[Program] = []
        self.clients: list[Client] = []
        self.scheduler = self._dask("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", self._file)
        until(lambda: self._file.exists() and self._file.read_text(), "the scheduler listens")
        self.client = self.connect()
        self.address: str = self.client.scheduler.address

    def _dask(self, *arguments: object) -> Program:
        quiet = ["--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
        return Program(*arguments, *quiet, folder=self._folder, output=self._folder / "output.txt")

    def connect(self) -> Client:
        """Return another client, closed with the cluster."""
        client = Client(scheduler_file=str(self._file), timeout=LIMIT_S, set_as_default=False, direct_to_workers=True)
        self.clients.append(client)
        return client

    def start_worker(self, host: str = "127.0.0.1") -> Program:
        """Start another Dask worker, on an address of this machine that is a host of its own to Dask."""
        settings = ["--host", host, "--no-nanny", "--nthreads", "1", "--memory-limit", "0"]
        worker = self._dask("worker", self.address, *settings)
        self.workers.append(worker)
        return worker

    def repair(self, count: int = WORKERS) -> None:
        """Wake whom a test has stopped, replace whom it has killed, and wait until the scheduler knows them all."""
        for worker in self.workers:
            with contextlib.suppress(ProcessLookupError):
                worker.send_signal(signal.SIGCONT)
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        while len(self.workers) < count:
            self.start_worker()
        for extra in self.workers[count:]:
            extra.kill()
            extra.wait(LIMIT_S)
        self.workers = self.workers[:count]
        pids = {worker.pid for worker in self.workers}
        self._until(lambda: set(self.pids().values()) == pids, f"{count} Dask workers are there")

    def pids(self) -> dict[str, int]:
        """Return the process id of each Dask worker that answers, by address."""
        found = self.client.run(os.getpid, on_error="return")
        return {address: pid for address, pid in found.items() if isinstance(pid, int)}

    def wait_for_end(self, pid: int) -> None:
        """Wait until the Dask worker with that process id has ended."""
        next(one for one in self.workers if one.pid == pid).wait(LIMIT_S)

    def end(self) -> None:
        """Kill every process, all at once; a second time changes nothing."""
        for client in self.clients:
            with contextlib.suppress(OSError, TimeoutError):
                client.close(timeout=2)
        processes = [*self.workers, self.scheduler]
        for process in processes:
            process.kill()  # takes a stopped process as well
        for process in processes:
            process.wait(LIMIT_S)


@pytest.fixture
def new_cluster(tmp_path_factory: pytest.TempPathFactory, until: Until) -> Iterator[Callable[[], Cluster]]:
    """Start a cluster for one test alone."""
    clusters: list[Cluster] = []

    def make() -> Cluster:
        clusters.append(Cluster(tmp_path_factory.mktemp("cluster"), until))
        return clusters[-1]

    yield make
    for cluster in clusters:
        cluster.end()


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory, until: Until) -> Iterator[Cluster]:
    """Start a cluster that several tests use one after the other."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), until)
    yield cluster
    cluster.end()


@pytest.fixture
def cluster(lasting: Cluster) -> Cluster:
    """Return a cluster of five Dask workers in good health."""
    lasting.repair()
    return lasting


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., ps.Job]:
    """Describe a run that goes on until it is stopped, each iteration of which takes a hundredth of a second.

    Nothing of it is protected.
    """

    def make(**fields: Any) -> ps.Job:
        known = {
            "workload": "mlp",
            "options": {"samples": 2000},
            "workers": 2,
            "shards": 2,
            "stop": ps.Stop(updates=10**9),
            "stragglers": "constant:seconds=0.01",
            "evaluate_every": None,
            "torch_threads": 1,
            "replication": ps.NoReplication(),
            "checkpoints": ps.Checkpoints.never(),
            "store": str(tmp_path / "run.zarr"),
        }
        return ps.Job(**{**known, **fields})

    return make


@pytest.fixture
def start(job: Callable[..., ps.Job]) -> Iterator[Callable[..., ps.Run]]:
    """Start a run on a cluster; it is stopped when the test ends, if it still can be."""
    runs: list[ps.Run] = []

    def begin(cluster: Cluster, **fields: Any) -> ps.Run:
        run = ps.train(job(**fields), cluster.client)
        runs.append(run)
        return run

    yield begin
    for run in runs:
        with contextlib.suppress(PsplatformError, TimeoutError, OSError):
            run.stop("the test is over")
            run.wait(LIMIT_S)
        run.close()


def read_log(store: str, kind: str | None = None) -> list[Record]:
    records = [record for records, _ in LogReader(store).iter_from() for record in records]
    return [record for record in records if kind in (None, record["kind"])]


@pytest.fixture
def log() -> Callable[..., list[Record]]:
    """Read the event log in a store, one kind of record or all of them."""
    return read_log


@pytest.fixture
def reaches(until: Until) -> Callable[..., None]:
    """Wait until the log in a store shows so many updates more than now."""

    def wait(store: str, updates: int) -> None:
        def version() -> int:
            return max((record["version"] for record in read_log(store, "commit")), default=0)

        wanted = version() + updates
        until(lambda: version() >= wanted, f"the log reaches version {wanted}")

    return wait


class Watched:
    """A run on a cluster that it shares with a test, as its log, its actors and its card show it."""

    def __init__(self, cluster: Cluster, run: ps.Run, until: Until) -> None:
        self.cluster, self.run, self._until = cluster, run, until

    def log(self, kind: str) -> list[Record]:
        """Return the records of that kind."""
        return read_log(self.run.store, kind)

    def card(self) -> dict[str, Any]:
        """Return what the coordinator has published of the run."""
        found: dict[str, Any] = self.cluster.client.get_metadata([dataset_name(self.run.run)], default={})
        return found

    def actors(self, *initial_roles: str) -> dict[str, str]:
        """Return the address of each of the run's actors whose name begins like that, or of all, by name."""

        def known(dask_scheduler: Any) -> dict[str, str]:
            return {str(task.key): one.address for task in dask_scheduler.tasks.values() for one in task.who_has or ()}

        of_run = f"psplatform-{self.run.run}-"
        found = self.cluster.client.run_on_scheduler(known)
        named = {key.removeprefix(of_run): at for key, at in found.items() if key.startswith(of_run)}
        return {name: at for name, at in named.items() if name.startswith(initial_roles or "")}

    def protected(self) -> bool:
        """Whether every shard has a replica in sync, and the coordinator a standby."""
        return not (self.log("protection") or [{"shards": []}])[-1]["shards"] and bool(self.card().get("standby"))

    def finish(self) -> dict[str, Any]:
        """Stop the run; return its summary, having seen that it ended well and had gone on learning."""
        # The last version is evaluated in any case: how often before depends on how busy the machine is.
        self._until(lambda: len(self.log("evaluated")) > 1, "two versions are evaluated")
        self.run.stop("seen enough")
        summary = self.run.wait(LIMIT_S)
        assert (summary["outcome"], summary["detail"]) == ("stopped", "seen enough")
        losses = [one["loss"] for one in self.log("evaluated")]
        assert losses[-1] < losses[0], "it has gone on learning"
        versions = [one["version"] for one in self.log("commit")]
        assert versions == sorted(set(versions)), "no version twice, none back"
        return summary


@pytest.fixture
def watch(until: Until) -> Callable[[Cluster, ps.Run], Watched]:
    """Watch a run."""
    return lambda cluster, run: Watched(cluster, run, until)


@pytest.fixture
def segments() -> Callable[[str], list[Path]]:
    """List what lies in shared memory under a run's id."""
    return lambda run: [path for folder in _folders() for path in folder.glob(f"*{run}*")]


@pytest.fixture
def psplatform(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the command line as a process of its own, which ends with the test at the latest."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", "from psplatform.cli.main import main; main()"]
        text = [str(one) for one in arguments]
        pipe = subprocess.PIPE
        process = subprocess.Popen([*command, *text], cwd=tmp_path, stdout=pipe, stderr=pipe, text=True)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate(timeout=LIMIT_S)
