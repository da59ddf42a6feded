"""Every role, hurt in every way: training goes on to its end, and what had to happen is on record.

Roles: a gradient worker; a replica; a server; a server of one shard that is a replica of another (``both``); the
coordinator, which shares a process with the first server; and the program that started the run.  Ways: SIGKILL; SIGSTOP
until the lease is over, then SIGCONT; and the end of a process in good order, as an adaptive cluster asks for it
(``close``) and by SIGTERM (``terminate``).

By default one run is killed (a replica, a server, the coordinator), one is stopped (a server, the coordinator), and one
ends process by process in good order (a server by ``close``, the coordinator by SIGTERM), on clusters that are repaired
each time; and everything is killed at once and recovered.  What every process did is recorded meanwhile, and held
against the guarantees by a checker that shares no code with it (`psplatform.bench.history`).  Gradient workers and
programs are hurt in `test_workers` and `test_programs`.  With `PSPLATFORM_FULL_MATRIX=1` each cell is tried by itself,
with a run and a cluster of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import psplatform as ps
from psplatform.bench.history import check
from psplatform.client.runs.recovery import recover
from psplatform.replication.checkpoints.retention import checkpoints_of
from psplatform.replication.stores.store import describe_run
from psplatform.runtime.store.recording import HISTORY

Start = Callable[..., ps.Run]
Log = Callable[..., list[dict[str, Any]]]
Watch = Callable[[Any, ps.Run], Any]
Until = Callable[..., None]
Reaches = Callable[[str, int], None]
Segments = Callable[[str], list[Path]]
LIMIT_S = 180.0
FULL = bool(os.environ.get("PSPLATFORM_FULL_MATRIX"))

ROLES = ("worker", "replica", "server", "coordinator")
WAYS = ("kill", "stop", "close", "terminate")
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "terminate": signal.SIGTERM}
PATIENT = {
    "workload": "digits",
    "options": {},
    "stragglers": "constant:seconds=0.01",
    "evaluate_every": 25,
    "replication": ps.Bounded(),
    "worker_lease_s": 2,
    # Where cores are busy, several processes importing torch at once, a longest lease of 2 s takes servers for lost
    # that are not: then whoever is hurt may not be a server any more.
    "server_lease_s": 6,
}


class FaultTarget:
    """A run that is hurt, and whoever is at work for it."""

    def __init__(self, seen: Any, until: Until, reaches: Reaches) -> None:
        self.cluster, self.run, self._seen = seen.cluster, seen.run, seen
        self.log, self.actors, self.protected = seen.log, seen.actors, seen.protected
        self._until, self._reaches = until, reaches
        reaches(self.run.store, 20)

    def server_of(self, shard: int) -> str:
        """Return the name of the copy that serves a shard."""
        risen = [one["copy"] for one in self.log("promoted") if one["shard"] == shard]
        return risen[-1] if risen else f"server-{shard}"

    def coordinator(self) -> str:
        """Return the address of the coordinator."""
        return str(self._seen.card()["address"])

    def address_of(self, role: str) -> str:
        """Return the process of a role; where several have it, of one that has no more important one."""
        if role == "coordinator":
            return self.coordinator()
        actors, servers = self.actors(), [self.server_of(shard) for shard in (0, 1)]
        if role == "worker":
            return next(at for name, at in actors.items() if name.startswith("worker"))
        if role == "server":
            return next(actors[name] for name in servers if actors[name] != self.coordinator())
        serving = {actors[name] for name in servers}
        return next(at for name, at in actors.items() if name.startswith("replica") and at not in serving)

    def hurt(self, role: str, way: str) -> None:
        """Hurt whoever has that role now, see the run overcome it, and repair the cluster."""
        self._until(self.protected, "the run is protected")
        address, before, risen = self.address_of(role), self.mishaps(), len(self.log("promoted"))
        pid = self.cluster.pids()[address]
        if way == "close":
            self.close(address)
        else:
            os.kill(pid, SIGNALS[way])
        self._until(lambda: self.overcome(role, before), f"{role} {way}: what is due is on record")
        lost = {one["process"] for one in self.log("promoted")[risen:]}
        assert lost == ({f"{address} pid {pid}"} if role in ("server", "coordinator") else set()), "it is named"
        self._reaches(self.run.store, 10)
        if way == "stop":
            os.kill(pid, signal.SIGCONT)
            self._reaches(self.run.store, 10)
        else:
            self.cluster.wait_for_end(pid)
        self.cluster.repair(len(self.cluster.workers))

    def close(self, address: str) -> None:
        """Ask a Dask worker to end in good order, as adaptive clusters do."""

        def ask(dask_scheduler: Any) -> None:
            dask_scheduler.close_worker(address)

        self.cluster.client.run_on_scheduler(ask)

    def mishaps(self) -> dict[str, int]:
        """Count what is on record of each kind of loss."""
        promoted = self.log("promoted")
        return {
            "worker": len(self.log("lost") + self.log("left")),
            "replica": sum(one["event"] == "lost" for one in self.log("copy")),
            "server": sum(one["role"] == "server" for one in promoted),
            "coordinator": sum(one["role"] == "coordinator" for one in promoted),
        }

    def overcome(self, role: str, before: dict[str, int]) -> bool:
        """Whether the loss of that role is on record."""
        return self.mishaps()[role] > before[role]

    def finish(self) -> dict[str, Any]:
        """Stop the run; return its summary, having seen that it ended well and had gone on learning."""
        summary: dict[str, Any] = self._seen.finish()
        assert [one["outcome"] for one in self.log("finished")] == ["stopped"]
        assert describe_run(self.run.store)["outcome"] == "stopped"
        return summary


@pytest.fixture
def recorded(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let every process record what it does; at the end, hold all of it against the guarantees."""
    folder = tmp_path_factory.mktemp("history")
    monkeypatch.setenv(HISTORY, str(folder))
    yield
    report = check(folder)
    assert report.violations == []
    assert {"publish", "pulled", "computes"} <= report.counts.keys(), "there was something to check"


@pytest.fixture
def fault_target(start: Start, watch: Watch, until: Until, reaches: Reaches) -> Callable[..., FaultTarget]:
    """Start a run to be hurt."""

    def begin(cluster: Any, **fields: Any) -> FaultTarget:
        return FaultTarget(watch(cluster, start(cluster, **{**PATIENT, **fields})), until, reaches)

    return begin


def assert_failovers(summary: dict[str, Any], roles: tuple[str, ...]) -> None:
    """As many as servers were hurt: the coordinator's process has one as well."""
    found = [one["role"] for one in summary["failovers"]]
    assert found.count("coordinator") == roles.count("coordinator")
    assert found.count("server") >= roles.count("coordinator") + roles.count("server")


def assert_clean(one: FaultTarget, until: Until, segments: Segments) -> None:
    """Nothing of the run is left in shared memory, and its log can be read to the end."""
    until(lambda: segments(one.run.run) == [], "nothing is left in shared memory")
    assert one.log("finished")


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize(
    ("way", "roles"), [("kill", ("replica", "server", "coordinator")), ("stop", ("server", "coordinator"))]
)
def test_a_run_survives_what_befalls_its_processes(
    new_cluster: Callable[[], Any],
    fault_target: Callable[..., FaultTarget],
    until: Until,
    segments: Segments,
    way: str,
    roles: tuple[str, ...],
) -> None:
    """Role after role, in one run: it goes on learning, and nobody who was replaced speaks again."""
    cluster = new_cluster()
    cluster.repair(6)
    one = fault_target(cluster)
    for role in roles:
        one.hurt(role, way)
    assert_failovers(one.finish(), roles)
    assert_clean(one, until, segments)


@pytest.mark.usefixtures("recorded")
def test_processes_that_end_in_good_order_lose_nothing(
    new_cluster: Callable[[], Any], fault_target: Callable[..., FaultTarget], until: Until, segments: Segments
) -> None:
    """As an adaptive cluster ends them, or by SIGTERM: every update is handed over."""
    cluster = new_cluster()
    cluster.repair(6)
    one = fault_target(cluster)
    one.hurt("server", "close")
    one.hurt("coordinator", "terminate")
    summary = one.finish()
    assert_failovers(summary, ("server", "coordinator"))
    assert_nothing_lost(summary)
    assert_clean(one, until, segments)


def test_a_process_of_a_run_cannot_be_retired_and_the_run_does_not_notice(
    cluster: Any, fault_target: Callable[..., FaultTarget], until: Until, reaches: Reaches
) -> None:
    """Dask refuses to move actors: it says so by retiring nobody, and every role stays where it is."""
    one = fault_target(cluster)
    until(one.protected, "the run is protected")
    before = one.actors()
    assert cluster.client.retire_workers(sorted(set(before.values()))) == {}
    reaches(one.run.store, 20)
    assert one.actors() == before
    assert set(one.mishaps().values()) == {0}
    assert_nothing_lost(one.finish())


def assert_nothing_lost(summary: dict[str, Any]) -> None:
    assert [each["updates_lost"] for each in summary["failovers"]] == [0] * len(summary["failovers"])
    assert summary["lost_positions"] == []


def bits_of(run: ps.Run) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in run.parameters()[0].items()}


@pytest.mark.usefixtures("recorded")
def test_after_everything_was_killed_the_run_goes_on_from_its_last_cut(
    new_cluster: Callable[[], Any], job: Callable[..., ps.Job], until: Until, segments: Segments, log: Log
) -> None:
    """Scheduler, program's client and all; on a new cluster, with another number of shards, to the end asked for."""
    dead = new_cluster()
    dead.repair(4)
    fields = {**PATIENT, "checkpoints": ps.Checkpoints(every_updates=20), "stop": ps.Stop(updates=100_000)}
    run = ps.train(job(**fields), dead.client)
    until(lambda: len(checkpoints_of(run.store)) >= 2, "two checkpoints")
    dead.end()
    cut = checkpoints_of(run.store)[-1].version
    living = new_cluster()
    living.repair(4)
    stop = ps.Stop(updates=cut + 30)
    again = recover(run.store, living.client, shards=3, stop=stop)
    summary = again.wait(LIMIT_S)
    assert (summary["outcome"], summary["updates"]) == ("updates", cut + 30)
    assert summary["run"] == run.run
    began = [one["loss"] for one in log(run.store, "evaluated")]
    assert summary["loss"] < began[0]
    undisturbed = ps.train(job(**{**fields, "stop": stop, "store": f"{run.store}-undisturbed"}), living.client)
    undisturbed.wait(LIMIT_S)
    assert bits_of(again) == bits_of(undisturbed), "as if nobody had been killed"
    until(lambda: segments(run.run) == [], "nothing is left in shared memory, of the killed neither")


# --- the whole matrix ---

whole = pytest.mark.skipif(not FULL, reason="takes minutes; set PSPLATFORM_FULL_MATRIX=1")


@whole
@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("role", [*ROLES, "both"])
def test_a_cell(
    new_cluster: Callable[[], Any],
    fault_target: Callable[..., FaultTarget],
    until: Until,
    segments: Segments,
    role: str,
    way: str,
) -> None:
    """One role, hurt in one way; with four processes a server is a replica of the other shard."""
    cluster = new_cluster()
    cluster.repair(4 if role == "both" else 6)
    one = fault_target(cluster)
    one.hurt("server" if role == "both" else role, way)
    summary = one.finish()
    assert_failovers(summary, {"both": ("server",), "worker": (), "replica": ()}.get(role, (role,)))
    if way in ("close", "terminate"):
        assert_nothing_lost(summary)
    assert_clean(one, until, segments)


@whole
@pytest.mark.parametrize("way", ["kill", "stop", "terminate"])
def test_the_program(
    cluster: Any,
    psplatform: Callable[..., subprocess.Popen[str]],
    reaches: Reaches,
    until: Until,
    log: Log,
    tmp_path: Path,
    way: str,
) -> None:
    """The run does not need it: another program ends the run."""
    store = tmp_path / "run.zarr"
    flags = ["--workers", "2", "--shards", "2", "--updates", "1000000000", "--stragglers", "constant:seconds=0.01"]
    program = psplatform("train", "digits", "--scheduler", cluster.address, "--store", store, *flags)
    until((store / "log").exists, "the run has begun")
    reaches(str(store), 10)
    program.send_signal(SIGNALS[way])
    if way == "terminate":
        program.wait(LIMIT_S)
    else:
        reaches(str(store), 50)
    run = ps.attach(str(store), cluster.client)
    run.stop("seen enough")
    assert run.wait(LIMIT_S)["outcome"] == "stopped"
    assert [one["outcome"] for one in log(str(store), "finished")] == ["stopped"]
