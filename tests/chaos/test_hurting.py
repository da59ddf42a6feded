"""Hurting a run on purpose: the process that is meant, and no other, and the run survives it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import psplatform as ps
from psplatform.client import chaos
from psplatform.client.chaos import Target, kill, pause, targets
from psplatform.errors import ClusterError, ConfigurationError

Start = Callable[..., ps.Run]
Reaches = Callable[[str, int], None]
Until = Callable[..., None]
LIMIT_S = 180.0
KINDS = ["coordinator", "evaluator", "replica", "server", "standby", "worker", "worker"]
PROTECTED = {"replication": ps.Bounded(), "shards": 1, "evaluate_every": 50}


@pytest.fixture
def protected(
    cluster: Any, start: Start, reaches: Reaches, until: Until, watch: Callable[..., Any]
) -> Iterator[ps.Run]:
    """Start a run with a server, its replica, a standby and an evaluator; it ends well, whatever was done to it."""
    run = start(cluster, **PROTECTED)
    reaches(run.store, 5)
    until(watch(cluster, run).protected, "server and coordinator have whoever would take over")
    until(lambda: sorted(one.kind for one in targets(run)) == KINDS, "every role is there")
    yield run
    reaches(run.store, 20)
    run.stop("seen enough")
    assert run.wait(LIMIT_S)["outcome"] == "stopped"


def state_of(pid: int) -> str:
    """Return the kernel's letter for what a process does, ``T`` for stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def of_kind(run: ps.Run, kind: str) -> list[Target]:
    return [one for one in targets(run) if one.kind == kind]


def test_the_roles_of_a_run_are_told_by_their_kind(protected: ps.Run) -> None:
    """With the addresses that the run itself tells."""
    found = targets(protected)
    assert {one.role: one.address for one in found} == protected.roles()
    kinds = {one.role: one.kind for one in found}
    assert (kinds["coordinator"], kinds["server-0"], kinds["standby"]) == ("coordinator", "server", "standby")
    assert {role.partition("-")[0] for role, kind in kinds.items() if kind == "worker"} == {"worker"}


def test_a_replica_that_was_promoted_is_a_server(protected: ps.Run, cluster: Any, until: Until) -> None:
    """Killing the server, with whom the coordinator shares a process, and asking through the one that takes over."""
    (replica,) = of_kind(protected, "replica")
    (server,) = of_kind(protected, "server")
    pids = cluster.pids()
    assert kill(protected, server.role) == pids[server.address]
    cluster.wait_for_end(pids[server.address])

    def served() -> list[Target]:
        with contextlib.suppress(ClusterError):  # the standby is taking over
            return of_kind(protected, "server")
        return []

    until(lambda: [one.role for one in served()] == [replica.role], "the replica is the server")
    assert server.role not in {one.role for one in targets(protected)}


def test_only_the_process_of_the_role_is_killed(protected: ps.Run, cluster: Any) -> None:
    pids = cluster.pids()
    worker = of_kind(protected, "worker")[0]
    assert kill(protected, worker.role) == pids[worker.address]
    cluster.wait_for_end(pids[worker.address])
    assert cluster.pids() == {address: pid for address, pid in pids.items() if address != worker.address}


def test_a_process_is_stopped_and_goes_on_although_the_program_that_stopped_it_has_ended(
    protected: ps.Run, cluster: Any, until: Until
) -> None:
    worker = of_kind(protected, "worker")[0]
    pid = cluster.pids()[worker.address]
    lines = ["import sys, psplatform as ps", "from psplatform.client.chaos import pause"]
    lines += ["print(pause(ps.attach(sys.argv[1]), sys.argv[2], 8), flush=True)", "import os; os._exit(0)"]
    command = [sys.executable, "-c", "\n".join(lines), protected.store, worker.role]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT_S)
    assert int(done.stdout) == pid
    until(lambda: state_of(pid) == "T", "it is stopped")
    until(lambda: state_of(pid) != "T", "it goes on")
    assert pid in cluster.pids().values()


def test_a_stopped_process_is_not_waited_for_and_ends_when_it_goes_on(
    protected: ps.Run, cluster: Any, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chaos, "_ORDER_S", 1.0)
    monkeypatch.setattr(chaos, "_GONE_S", 1.0)
    worker = of_kind(protected, "worker")[0]
    pid = pause(protected, worker.role, 20)
    until(lambda: state_of(pid) == "T", "it is stopped")
    client = protected.client
    assert client is not None
    with pytest.raises(ClusterError, match=f"{worker.address} did not answer within 1 s; it may be stopped"):
        chaos.ask(client, chaos._run_there, worker.address, chaos.pause_this_process, 1.0)
    with pytest.raises(ClusterError, match=f"process {pid} of {worker.role} .* does not end; if it is stopped"):
        kill(protected, worker.role)
    assert state_of(pid) == "T"
    cluster.wait_for_end(pid)


@pytest.mark.parametrize("seconds", [0, 0.5, 601, -1, float("nan"), float("inf")])
def test_a_pause_without_a_sensible_end_is_refused(seconds: float) -> None:
    with pytest.raises(ConfigurationError, match="a pause takes 1 to 600 seconds") as caught:
        pause(ps.Run("none", "nowhere"), "worker-1", seconds)
    assert caught.value.field == "seconds"


def test_a_role_that_the_run_has_not_is_refused_and_those_it_has_are_named(
    cluster: Any, start: Start, reaches: Reaches
) -> None:
    run = start(cluster, shards=1)
    reaches(run.store, 5)
    named = ", ".join(sorted(run.roles()))
    for hurt in (kill, lambda *words: pause(*words, 2)):
        with pytest.raises(ConfigurationError, match=f"run {run.run} has no 'worker-99'; it has {named}"):
            hurt(run, "worker-99")


def test_a_run_that_is_over_is_not_hurt(cluster: Any, start: Start) -> None:
    pids = cluster.pids()
    run = start(cluster, stop=ps.Stop(updates=5))
    run.wait(LIMIT_S)
    for known in (run, ps.attach(run.store)):
        with pytest.raises(ConfigurationError, match=f"run {run.run} is over; there is nothing left of it to hurt"):
            kill(known, "worker-1")
    assert cluster.pids() == pids


def test_a_process_that_a_nanny_watches_over_is_killed_and_replaced(
    job: Callable[..., ps.Job], reaches: Reaches, until: Until
) -> None:
    with contextlib.closing(ps.train(job(shards=1))) as run:
        reaches(run.store, 5)
        worker = of_kind(run, "worker")[0]
        pid = kill(run, worker.role)
        until(lambda: not Path(f"/proc/{pid}").exists(), "its process is gone")
        until(lambda: len(of_kind(run, "worker")) == 2 and worker.role not in run.roles(), "another has its place")
        run.stop("seen enough")
        assert run.wait(LIMIT_S)["outcome"] == "stopped"
