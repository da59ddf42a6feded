"""A coordinator that does not answer is gone only if its process is, or says that it has none."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from psplatform.client.run import Run
from psplatform.client.runs.recovery import _goes_on
from psplatform.errors import ClusterError, StoreError
from psplatform.replication.stores.models import save_model
from psplatform.replication.stores.store import create_run, update_run
from psplatform.runtime.cluster import cluster_of
from psplatform.runtime.comms.calls import Peer
from psplatform.telemetry.log.writer import EventLog

RUN = "digits-bsp-1a2b3c"
PEER = Peer("tcp://127.0.0.1:1", f"psplatform-{RUN}-1-coordinator")
SUMMARY = {"updates": 7}

NOWHERE = "tcp://127.0.0.1:9"
"""The address of a standby whose process has left the cluster."""


@dataclass
class Cluster:
    """What a client says of a cluster whose coordinator answers, or does not.

    ``answers`` are what it says to the next questions: a status, ``None`` for silence, or what is raised; after them
    it is silent.
    """

    answers: list[Any] = field(default_factory=list)
    there: bool = True
    standby: str = ""
    asked: list[str] = field(default_factory=list)
    scheduler: Any = field(default_factory=lambda: SimpleNamespace(address="tcp://127.0.0.1:2"))
    closed: bool = False

    def sync(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if self.closed:
            raise RuntimeError("IOLoop is closed")
        if function is cluster_of:
            return [], ({PEER.address} if self.there else set()) | ({self.standby} - {"", NOWHERE})
        return asyncio.run(function(*arguments, **named))

    def rpc(self, address: str) -> Any:
        return self

    async def get_logs(self, n: int) -> Any:
        self.asked.append("get_logs")
        return [("INFO", "distributed.nanny - INFO - Worker process 123 was killed by signal 11")]

    async def actor_execute(self, *, function: str, **call: Any) -> Any:
        self.asked.append(function)
        answer = self.answers.pop(0) if self.answers else None
        if answer is None:
            await asyncio.sleep(3600)
        if isinstance(answer, Exception):
            raise answer
        return {"status": "OK", "result": answer}

    def get_metadata(self, keys: list[str], default: Any) -> Any:
        return {"address": PEER.address, "key": PEER.key, "store": "", "standby": self.standby}

    def has_what(self) -> dict[str, tuple[str, ...]]:
        return {PEER.address: (PEER.key,)}

    def processing(self) -> dict[str, tuple[str, ...]]:
        return {}


def status(phase: str) -> dict[str, Any]:
    return {"phase": phase, "step": "", "summary": SUMMARY, "failure": None, "trouble": ""}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psplatform.client.runs.coordinator_link._DEADLINE_S", 0.05)
    for name, seconds in (("_POLL_S", 0.01), ("_TAKEOVER_S", 0.1)):
        monkeypatch.setattr(f"psplatform.client.run.{name}", seconds)


@pytest.fixture
def run_on(tmp_path: Path) -> Callable[[Cluster], Run]:
    """Make a run whose coordinator is known."""
    store = str(tmp_path / "run.zarr")
    create_run(store, {"run": RUN})

    def make(cluster: Any) -> Run:
        return Run(RUN, store, client=cluster, coordinator=PEER)

    return make


@pytest.mark.parametrize("standby", ["", "tcp://127.0.0.1:3"])
def test_a_silent_coordinator_whose_process_is_there_is_busy(run_on: Callable[[Cluster], Run], standby: str) -> None:
    """Also where it has a standby, which is as busy and has not taken over."""
    run = run_on(Cluster(standby=standby))
    found = run.status()
    assert (found["phase"], found["failure"]) == ("unknown", None)
    assert "does not answer, but its process is there: it is busy" in found["trouble"]
    with pytest.raises(TimeoutError, match="is not over after"):
        run.wait(timeout_s=0.2)


def test_one_that_answers_again_is_waited_for_to_the_end(run_on: Callable[[Cluster], Run]) -> None:
    cluster = Cluster([status("running"), None, None, status("running"), status("over")])
    assert run_on(cluster).wait(timeout_s=60) == SUMMARY


def test_an_order_to_stop_that_a_busy_coordinator_did_not_hear_is_given_again(run_on: Callable[[Cluster], Run]) -> None:
    cluster = Cluster([None] * 6 + [status("running"), "stopping", status("over")])
    run = run_on(cluster)
    run.stop()
    assert run.wait(timeout_s=60) == SUMMARY
    assert cluster.asked == ["stop", "status"] * 3 + ["status", "stop", "status"]


def test_an_order_that_a_coordinator_took_and_died_with_is_given_to_the_next(tmp_path: Path) -> None:
    """The first is found and told, the second call breaks: what it has heard before counts for nothing."""
    store = str(tmp_path / "run.zarr")
    create_run(store, {"run": RUN})
    cluster: Any = Cluster(["stopping", None, status("running"), "stopping"])
    Run(RUN, store, client=cluster).stop()
    assert cluster.asked == ["stop", "stop", "status", "stop"]


GONE = {
    "its process has left the cluster": Cluster(there=False),
    "its process has no such actor": Cluster([KeyError(PEER.key)] * 9),
}


@pytest.mark.parametrize("cluster", GONE.values(), ids=GONE)
def test_one_that_cannot_answer_any_more_is_gone(run_on: Callable[[Cluster], Run], cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match=f"the coordinator of run {RUN} is gone"):
        run_on(cluster).wait(timeout_s=60)


def ended(run: Run) -> None:
    """Let the store of a run say how it ended, as whoever leads it does last."""
    log = EventLog(run.store, 1)
    for record in ({"kind": "run", "at": 0.0, "run": RUN}, {"kind": "finished", "at": 2.0, **FINISHED}):
        log.append(record)
    log.close()
    update_run(run.store, outcome="updates")


FINISHED = {"outcome": "updates", "detail": "7 updates", "version": 7, "loss": 0.1, "accuracy": None, "seconds": 2.0}

OVER = {
    "its process has left the cluster": Cluster(there=False, standby="tcp://127.0.0.1:3"),
    "its process has no such actor": Cluster([KeyError(PEER.key)] * 9, standby="tcp://127.0.0.1:3"),
}


@pytest.mark.parametrize("cluster", OVER.values(), ids=OVER)
def test_how_a_run_ended_is_read_from_its_store_at_once_where_nobody_answers_any_more(
    run_on: Callable[[Cluster], Run], monkeypatch: pytest.MonkeyPatch, cluster: Cluster
) -> None:
    """Although its card says that a standby exists: nobody will take over a run that is over."""
    waits: list[float] = []
    monkeypatch.setattr("psplatform.client.run.time.sleep", waits.append)
    run = run_on(cluster)
    ended(run)
    summary = run.wait(timeout_s=60)
    assert (summary["outcome"], summary["detail"]) == ("updates", "7 updates")
    assert waits == []


def test_what_is_waited_for_is_said(run_on: Callable[[Cluster], Run]) -> None:
    """While a standby is looked for, and while a coordinator is there that does not answer."""
    steps: list[str] = []
    with pytest.raises(ClusterError, match="is gone"):
        run_on(Cluster(there=False, standby="tcp://127.0.0.1:3")).wait(step=steps.append)
    assert set(steps) == {"the coordinator does not answer; waiting up to 0.1 s for its standby to take over"}
    steps.clear()
    with pytest.raises(TimeoutError):
        run_on(Cluster()).wait(timeout_s=0.2, step=steps.append)
    assert all("its process is there: it is busy or stopped" in text for text in steps)
    assert steps


def test_a_store_that_another_run_has_by_now_tells_nothing_of_this_one(run_on: Callable[[Cluster], Run]) -> None:
    """Neither how it ended nor its model: those are the other's, and the error names both."""
    run = run_on(Cluster(there=False))
    shutil.rmtree(run.store)
    other = Run("mlp-asp-4d5e6f", run.store)
    create_run(run.store, {"run": other.run})
    ended(other)
    save_model(run.store, {"weight": np.zeros(2)}, version=7)
    for ask in (run.wait, run.parameters):
        with pytest.raises(StoreError, match=f"now holds run mlp-asp-4d5e6f; of run {RUN}, whose store was removed"):
            ask()
    assert other.parameters()[1] == 7


@pytest.fixture
def dead_on(run_on: Callable[[Cluster], Run]) -> Callable[[Cluster], Run]:
    """Make a run whose coordinator's process has a nanny."""

    def make(cluster: Cluster) -> Run:
        run = run_on(cluster)
        run._link.process = "tcp://127.0.0.1:2", 123
        return run

    return make


def test_how_a_coordinator_died_is_asked_once(dead_on: Callable[[Cluster], Run]) -> None:
    """Later looks need no network, nor a client that is open still."""
    cluster = Cluster(there=False)
    run = dead_on(cluster)
    first = str(run.status()["failure"])
    assert "(process 123) was killed by SIGSEGV (segmentation fault): the coordinator of run" in first
    cluster.closed = True
    assert str(run.status()["failure"]) == first
    assert cluster.asked.count("get_logs") == 1


def test_no_standby_is_waited_for_where_all_processes_have_ended(
    run_on: Callable[[Cluster], Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a signal has ended a program and its cluster together."""
    waits: list[float] = []
    monkeypatch.setattr("psplatform.client.run.time.sleep", waits.append)
    with pytest.raises(ClusterError, match="is gone"):
        run_on(Cluster(there=False, standby=NOWHERE)).wait(timeout_s=60)
    assert waits == []


def test_a_client_that_is_closed_meanwhile_tells_nothing_of_a_death(
    dead_on: Callable[[Cluster], Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(there=False)
    run = dead_on(cluster)

    def close() -> bool:
        cluster.closed = True
        return True

    monkeypatch.setattr(run._link, "left_the_cluster", close)
    monkeypatch.setattr(run._link, "seek", lambda: False)
    with pytest.raises(ClusterError, match=f"^the coordinator of run {RUN} is gone"):
        run.wait(timeout_s=60)


class Withdrawn(Cluster):
    """A scheduler that has forgotten the run, while a program still holds its coordinator."""

    def get_metadata(self, keys: list[str], default: Any) -> Any:
        return default


@pytest.mark.parametrize(("phase", "alive"), [("over", False), ("standing by", True), ("ending", True)])
def test_a_run_that_is_over_and_could_not_write_that_is_over_all_the_same(
    tmp_path: Path, phase: str, alive: bool
) -> None:
    """Its disk may be full: it can be recovered, and who attaches to it hears how it ended."""
    store = str(tmp_path / "run.zarr")
    create_run(store, {"run": RUN})
    held: Any = Withdrawn([status(phase)] * 9)
    assert _goes_on(RUN, store, held) is alive
    found = Run(RUN, store, client=held).status()
    assert (found["phase"], found["summary"] == SUMMARY) == (("unknown", False) if alive else ("over", True))


def test_a_run_whose_coordinator_is_busy_is_not_recovered_beside_it(tmp_path: Path) -> None:
    store = str(tmp_path / "run.zarr")
    create_run(store, {"run": RUN})
    busy: Any = Cluster()
    assert _goes_on(RUN, store, busy)
