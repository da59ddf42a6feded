"""What is heard of a scheduler beside the page, whatever kind of scheduler answers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from distributed import Client

from psplatform.client.cluster_view import look_at_cluster
from psplatform.dashboard.cluster import Cluster
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
            until(file.exists, "the scheduler listens")
            yield file
        finally:
            scheduler.kill()
            scheduler.wait()


def test_a_scheduler_without_psplatform_is_named_and_asked_again(without_psplatform: Path, until: Until) -> None:
    found = Cluster(str(without_psplatform))
    try:
        until(lambda: found.news.trouble != "", "its trouble is told")
        assert "lacks psplatform (ModuleNotFoundError: there is no psplatform here)" in found.news.trouble
        assert found.news.trouble.endswith("install the same there")
        assert found.news.view is None
        first = found.news
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
