"""What is heard of a scheduler beside the page, whatever kind of scheduler answers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest
from distributed import Client
from distributed.comm import CommClosedError

from psplatform.client import chaos
from psplatform.client.chaos import Target
from psplatform.client.clusters.cluster_view import look_at_cluster
from psplatform.client.clusters.connecting import ANSWER_S
from psplatform.dashboard import cluster as cluster_module
from psplatform.dashboard.cluster import Cluster, ClusterNews, Deed
from psplatform.dashboard.pages import frame
from psplatform.errors import ClusterError

Until = Callable[..., None]


@pytest.fixture
def without_psplatform(tmp_path: Path, until: Until) -> Iterator[Path]:
    """Return the scheduler file of a scheduler whose environment cannot import psplatform."""
    broken = tmp_path / "psplatform"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise ModuleNotFoundError('there is no psplatform here')\n")
    file = tmp_path / "scheduler.json"
    command = [sys.executable, "-m", "dask", "scheduler", "--host", "127.0.0.1", "--port", "0"]
    quiet = ["--scheduler-file", str(file), "--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
    with (tmp_path / "output.txt").open("w") as output:
        scheduler = subprocess.Popen([*command, *quiet], cwd=tmp_path, stdout=output, stderr=output)
        try:
            until(lambda: file.exists() and file.read_text(), "the scheduler listens")
            yield file
        finally:
            scheduler.kill()
            scheduler.wait()


def test_a_scheduler_without_psplatform_is_named_and_asked_again(without_psplatform: Path, until: Until) -> None:
    found = Cluster(str(without_psplatform))
    try:
        heard: list[ClusterNews] = []

        def is_named() -> bool:
            heard.append(found.news)
            return "lacks psplatform (ModuleNotFoundError: there is no psplatform here)" in heard[-1].trouble

        until(is_named, "what it lacks is told; before, it may not answer in time")
        first = heard[-1]
        assert first.trouble.endswith("install the same there")
        assert first.view is None
        until(lambda: found.news is not first, "it is asked again")
    finally:
        found.close()


def test_what_fails_on_the_scheduler_is_an_error_of_the_cluster(without_psplatform: Path) -> None:
    with (
        Client(scheduler_file=str(without_psplatform), set_as_default=False) as client,
        pytest.raises(ClusterError, match="install the same there"),
    ):
        look_at_cluster(client)


def test_an_answer_that_nobody_expected_ends_no_asking(monkeypatch: pytest.MonkeyPatch, until: Until) -> None:
    asked: list[int] = []

    def ask(self: Cluster) -> None:
        asked.append(1)
        raise TypeError("another Dask")

    monkeypatch.setattr(Cluster, "_ask", ask)
    found = Cluster("tcp://127.0.0.1:1")
    try:
        found.await_answer(120)
        assert "runs another version of psplatform or Dask" in found.news.trouble
        until(lambda: len(asked) > 1, "it is asked again")
    finally:
        found.close()


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Return a scheduler that answers, whose runs can be attached to without a network."""

    def ask(self: Cluster) -> None:
        self._client = SimpleNamespace(close=lambda timeout: None)

    monkeypatch.setattr(Cluster, "_ask", ask)
    monkeypatch.setattr("psplatform.client.runs.attaching.attach", lambda run, client: run)
    found = Cluster("tcp://127.0.0.1:1")
    found.await_answer(120)
    yield found
    found.close()


def test_no_page_waits_for_a_coordinator_that_is_silent(
    reached: Cluster, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    """What was known stands until it answers; it is asked once at a time, however many pages want to know."""
    answer, asked = threading.Event(), []
    targets = [Target("server-0", "server", "tcp://a:1")]

    def ask(run: object) -> list[Target]:
        asked.append(run)
        answer.wait(120)
        if len(asked) > 1:
            raise ClusterError("the coordinator is gone")
        return targets

    monkeypatch.setattr(chaos, "targets", ask)
    assert [reached.watched("digits-a").targets for _ in range(5)] == [None] * 5
    answer.set()
    until(lambda: reached.watched("digits-a").roles == {"server-0": "tcp://a:1"}, "its roles are known")
    assert asked == ["digits-a"]
    until(lambda: reached.watched("digits-a").trouble == "the coordinator is gone", "it is asked again")
    assert reached.watched("digits-a").roles == {"server-0": "tcp://a:1"}


def test_a_question_that_was_not_asked_before_the_end_is_no_failure(
    reached: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """It waits for a thread; closing gives it up, and nothing of that is printed or told of the run."""
    go_on = threading.Event()
    for number in range(cluster_module._MOST_AT_ONCE):
        reached.begin("digits-a", "pausing", lambda run: f"paused, {go_on.wait(120)}", kind=str(number))
    try:
        known = reached.watched("digits-a")
        reached.close()
        assert reached.watched("digits-a") == known
    finally:
        go_on.set()
    assert [one.getMessage() for one in caplog.records if one.name == "concurrent.futures"] == []


def test_one_deed_at_a_time_is_done_in_the_background(reached: Cluster, until: Until) -> None:
    go_on = threading.Event()
    deed = reached.begin("digits-a", "killing", lambda run: f"killed {run}, {go_on.wait(120)}")
    assert deed.running
    assert reached.begin("digits-a", "killing again", lambda run: "killed twice") is deed
    go_on.set()
    until(lambda: not deed.running, "it is done")
    assert reached.deed("digits-a") is deed
    assert deed.outcome() == "killed digits-a, True"

    def fail(run: object) -> str:
        raise OSError("no way")

    failed = reached.begin("digits-a", "pausing", fail)
    until(lambda: not failed.running, "it has failed")
    with pytest.raises(ClusterError, match=r"pausing failed \(OSError: no way\)"):
        failed.outcome()


def test_a_run_is_stopped_while_a_fault_is_under_way(reached: Cluster, until: Until) -> None:
    go_on = threading.Event()
    fault = reached.begin("digits-a", "pausing", lambda run: f"paused, {go_on.wait(120)}")
    stop = reached.begin("digits-a", "stopping", lambda run: f"stopped {run}", kind="stop")
    until(lambda: not stop.running, "it is stopped")
    assert (stop.outcome(), reached.deed("digits-a")) == ("stopped digits-a", fault)
    go_on.set()


@pytest.mark.parametrize("error", [OSError("gone"), CommClosedError("gone"), asyncio.CancelledError("gone")])
def test_whatever_attaching_raises_is_said_in_a_sentence(
    reached: Cluster, monkeypatch: pytest.MonkeyPatch, until: Until, error: BaseException
) -> None:
    def attach(run: str, client: object) -> None:
        raise error

    monkeypatch.setattr("psplatform.client.runs.attaching.attach", attach)
    deed = reached.begin("digits-a", "stopping the run", str)
    until(lambda: not deed.running, "it has failed")
    with pytest.raises(ClusterError, match=rf"stopping the run failed \({type(error).__name__}: gone\)"):
        deed.outcome()


def test_a_scheduler_that_is_silent_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    asking = threading.Event()
    monkeypatch.setattr(Cluster, "_ask", lambda self: asking.wait(120))
    found = Cluster("tcp://127.0.0.1:1")
    monkeypatch.setattr(found._answered, "wait", waited.append)
    now = found._began
    monkeypatch.setattr(cluster_module.time, "monotonic", lambda: now + 2.0)
    found.await_answer(3.0)
    now += 60.0
    found.await_answer(3.0)
    assert waited == [1.0, 0.0]
    asking.set()
    found.close()


def test_a_deed_has_the_time_that_a_kill_can_take() -> None:
    """Ten seconds for the order and its answer, and fifteen until the process has left."""
    assert cluster_module._DEED_S > chaos._ORDER_S + ANSWER_S + chaos._GONE_S
    assert Deed("killing", Future()).running


def test_a_scheduler_of_a_run_is_let_go_when_its_program_has_ended(
    reached: Cluster, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    """No thread, no executor and no client is left that tries a dead port for ever."""
    running = [True]
    monkeypatch.setattr(frame, "_asked", {})
    found = frame.cluster_at("tcp://127.0.0.1:2", lambda: bool(running))
    try:
        found.await_answer(120)
        assert frame.cluster_at("tcp://127.0.0.1:2") is found
        running.clear()
        until(lambda: found.closed and found._client is None, "it is closed")
        with pytest.raises(ClusterError):
            found.begin("digits-a", "stopping", str).outcome()
        until(
            lambda: not any(one.name.startswith("cluster tcp://127.0.0.1:2") for one in threading.enumerate()),
            "its thread ends",
        )
        other = frame.cluster_at("tcp://127.0.0.1:3")
        assert "tcp://127.0.0.1:2" not in frame._asked
        other.close()
        assert not reached.closed, "one that nothing ends is kept"
    finally:
        found.close()
