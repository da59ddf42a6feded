"""Dask workers that restart, that hang and that lack psplatform are told from each other before a run starts."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

import psplatform
from psplatform.client.starting import preflight
from psplatform.client.starting.preflight import able_workers
from psplatform.errors import ClusterError, ConfigurationError
from psplatform.runtime.timeouts import TIMEOUTS

A, B, NEW = "tcp://10.0.0.1:1", "tcp://10.0.0.2:2", "tcp://10.0.0.2:3"
OURS = psplatform.__version__


class FakeCluster:
    """Stands for a client: what its scheduler knows at each look, and what each Dask worker answers.

    An address after ``~`` is that of one that has registered and does not run yet.
    """

    def __init__(self, looks: list[list[str]], answers: dict[str, Any], events: list[Any] | None = None) -> None:
        self._looks, self._answers, self._events = looks, answers, events or []
        self.scheduler = SimpleNamespace(identity=self._identity, events=self._tell)
        self.said: list[str] = []

    async def _identity(self, n_workers: int) -> Any:
        addresses = self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]
        status = {one.lstrip("~"): "init" if one.startswith("~") else "running" for one in addresses}
        return {"workers": {one: {"host": one, "resources": {}, "status": status[one]} for one in status}}

    async def _tell(self, topic: str) -> Any:
        return self._events

    async def run(self, function: Any, version: str, workers: list[str], on_error: str) -> Any:
        if any(self._answers.get(one) == "hangs" for one in workers):
            await asyncio.sleep(60)
        return {one: self._answers.get(one, OURS) for one in workers}

    def able(self, wanted: int) -> list[str]:
        found = asyncio.run(able_workers(cast(Any, self), wanted, self.said.append))
        return [one.address for one in found]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "RESTART_S", 60.0)
    monkeypatch.setattr(preflight, "_LOOK_S", 0.01)
    monkeypatch.setattr("psplatform.runtime.cluster.TIMEOUTS", replace(TIMEOUTS, ask_all_s=0.1, ask_one_s=0.1))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the deadline come soon."""
    monkeypatch.setattr(preflight, "RESTART_S", 0.2)


def died(address: str) -> tuple[float, dict[str, Any]]:
    return time.time(), {"action": "remove-worker", "worker": address, "expected": False}


def test_one_that_comes_back_between_the_two_questions_is_there() -> None:
    """It was missing when the workers were counted, and had come back when it was asked who restarts."""
    came = time.time(), {"action": "add-worker", "worker": NEW}
    cluster = FakeCluster([[A], [A, NEW]], {}, [died(B), came])
    assert cluster.able(2) == [A, NEW]
    assert not cluster.said


def test_one_that_has_registered_and_does_not_run_yet_is_waited_for() -> None:
    """Its scheduler says that it has come back before it says that it takes tasks."""
    came = time.time(), {"action": "add-worker", "worker": NEW}
    looks = [[A, "~" + NEW]] * 3 + [[A, NEW]]
    assert FakeCluster(looks, {}, [died(B), came]).able(2) == [A, NEW]


def test_one_that_never_runs_is_done_without_after_a_deadline(impatient: None) -> None:
    cluster = FakeCluster([[A, "~" + NEW]], {})
    assert cluster.able(2) == [A]
    assert cluster.said[-1] == "going on without 1 Dask workers that did not start within 0.2 s"


def test_one_that_does_not_answer_because_it_restarts_is_waited_for() -> None:
    cluster = FakeCluster([[A, B], [A], [A, NEW]], {B: OSError("connection refused")}, [died(B)])
    assert cluster.able(2) == [A, NEW]
    assert cluster.said[0] == "waiting for 1 Dask workers that are not ready"


def test_one_that_died_before_is_waited_for_where_it_is_needed() -> None:
    looks = [[A], [A], [A, NEW]]
    assert FakeCluster(looks, {}, [died(B)]).able(2) == [A, NEW]


def test_nobody_is_waited_for_where_there_are_enough() -> None:
    assert FakeCluster([[A], [A, NEW]], {}, [died(B)]).able(1) == [A]


def test_one_that_was_replaced_or_was_asked_to_leave_is_not_waited_for() -> None:
    back = time.time(), {"action": "add-worker", "worker": A}
    retired = time.time(), {"action": "remove-worker", "worker": NEW, "expected": True}
    cluster = FakeCluster([[A]], {}, [died(B), back, retired])
    assert cluster.able(2) == [A]
    assert not cluster.said


def test_one_that_hangs_is_done_without_after_a_deadline(impatient: None) -> None:
    cluster = FakeCluster([[A, B]], {B: "hangs"})
    assert cluster.able(1) == [A]
    assert cluster.said[-1] == f"going on without {B}: no answer within 0.2 s"


def test_where_nobody_answers_the_cluster_is_to_blame_not_what_is_installed(impatient: None) -> None:
    cluster = FakeCluster([[A, B]], {A: OSError("refused"), B: "hangs"})
    with pytest.raises(ClusterError, match=r"none of the 2 Dask workers answered within 0.2 s"):
        cluster.able(1)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (ModuleNotFoundError("No module named 'psplatform'"), "has no psplatform"),
        ("0.0.1", f"has psplatform 0.0.1, not {OURS}"),
    ],
)
def test_one_that_answers_and_lacks_this_psplatform_is_named_at_once(answer: Any, said: str) -> None:
    cluster = FakeCluster([[A, B]], {A: OSError("restarts"), B: answer})
    with pytest.raises(ConfigurationError, match=f"the Dask worker {B} {said}.*; install the same psplatform"):
        cluster.able(2)
    assert not cluster.said


def test_a_cluster_without_any_dask_worker_is_refused() -> None:
    with pytest.raises(ClusterError, match="the scheduler has no Dask workers; start some"):
        FakeCluster([[]], {}).able(1)
