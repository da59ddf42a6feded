"""``bench dashboard``: a real server, a session that speaks its protocol, real trainings, all of them short."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

from psplatform.bench.clusters.served import Served
from psplatform.bench.dashboard import pages
from psplatform.bench.dashboard.beside import Turn, compare
from psplatform.bench.dashboard.long_run import LiveRun, make
from psplatform.dashboard.session import Session
from psplatform.errors import ClusterError
from psplatform.telemetry.log.reader import LogReader
from psplatform.telemetry.read_model import RunView

COMMITS = 300
WORKERS = 8
LIMIT_S = 180.0


def _programs() -> set[int]:
    """Processes that this one has started; not those by which Python cleans up after them, and forks others."""
    own, found = ("resource_tracker", "multiprocessing.forkserver"), set[int]()
    for one in psutil.Process().children(recursive=True):
        try:
            if one.status() != psutil.STATUS_ZOMBIE and not any(name in part for part in one.cmdline() for name in own):
                found.add(one.pid)
        except psutil.NoSuchProcess:
            continue
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the folder in which temporary folders are made."""
    folder = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        yield folder


def _small(report: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
    return pages.measure(
        report,
        commits=COMMITS,
        workers=WORKERS,
        seconds=2.0,
        minutes=0.02,
        pairs=2,
        train_seconds=1.0,
        gradient_s=0.001,
    )


@pytest.fixture(scope="module")
def found(place: Path) -> dict[str, Any]:
    """Measure for seconds."""
    before = _programs()
    result = _small()
    assert _programs() <= before
    assert list(place.glob("psplatform-bench-*")) == []
    return result


def test_every_figure_is_there_beside_its_target(found: dict[str, Any]) -> None:
    names = [
        "open_seconds",
        "open_cpu_seconds",
        "refresh_cpu_share",
        "refresh_cpu_share_workers",
        "training_slowdown",
        "resident_mib",
    ]
    assert [row["measure"] for row in found["rows"]] == names
    for row in found["rows"]:
        assert row["value"] == found[row["measure"]]
        assert row["target"] == pages.TARGETS.get(row["measure"])


def test_what_the_figures_rest_on_is_told(found: dict[str, Any]) -> None:
    assert (found["run"]["commits"], found["run"]["workers"]) == (COMMITS, WORKERS)
    assert found["run"]["records"] > 4 * COMMITS, "each commit is told by four records"
    assert len(found["opening"]["seconds"]) == len(found["opening"]["cpu_seconds"]) == pages.STARTS
    assert found["opening"]["figures"] == pages.FIGURES
    for page in ("overview", "workers"):
        told = found["refreshing"][page]
        assert told["share"] == told["cpu_seconds"] / told["seconds"]
        assert told["received_bytes"] > 0 < told["refreshes"]
    assert found["resident"]["start"] <= found["resident"]["max"] == found["resident_mib"]


def test_a_training_is_compared_with_itself_while_nobody_looks_at_it(found: dict[str, Any]) -> None:
    told = found["training"]
    assert len(told["pairs"]) == 2
    assert all(pair["with"] > 0 < pair["without"] for pair in told["pairs"])
    assert told["with"] == pytest.approx(sum(pair["with"] for pair in told["pairs"]) / 2)
    assert told["slowdown"] == found["training_slowdown"] == 1 - told["with"] / told["without"]
    assert 0 < told["refreshes"] < 12, "none while it is stopped"


def test_turns_are_compared_by_the_commits_in_them() -> None:
    turns = [Turn(False, 10.0, 12.0), Turn(True, 12.5, 14.5), Turn(True, 15.0, 17.0), Turn(False, 17.5, 19.5)]
    commits = [10.5, 11.0, 11.5, 11.9, 12.1, 13.0, 14.0, 15.0, 16.0, 16.5, 17.0, 18.0, 18.5, 19.0, 19.4, 19.6]
    found = compare(turns, commits)
    assert found["pairs"] == [{"without": 2.0, "with": 1.0}, {"without": 2.0, "with": 1.5}]
    assert (found["without"], found["with"], found["slowdown"]) == (2.0, 1.25, 0.375)
    assert found["error"] == pytest.approx(0.125)
    with pytest.raises(ClusterError, match="made no updates"):
        compare(turns, [])


@pytest.mark.parametrize("step", ["opened in", "refreshing"])
def test_ctrl_c_leaves_nothing_behind(place: Path, step: str) -> None:
    before = _programs()

    def interrupt(row: dict[str, Any]) -> None:
        if step in row:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _small(interrupt)
    assert _programs() <= before
    assert list(place.glob("psplatform-bench-*")) == []


def test_a_page_without_its_figures_is_not_measured(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "FIGURES", 4)
    before = _programs()
    with pytest.raises(ClusterError, match="3 figures"):
        _small()
    assert _programs() <= before
    assert list(place.glob("psplatform-bench-*")) == []


def test_a_live_run_goes_on_where_the_one_before_it_ended(tmp_path: Path) -> None:
    source, store = str(tmp_path / "over.zarr"), str(tmp_path / "live.zarr")
    records = make(source, COMMITS, WORKERS)
    view = RunView()
    with LiveRun(source, store) as run:
        reader = LogReader(store)
        while sum(1 for found, _ in reader.iter_from() for _ in found) < 3 * records:
            run.require_going()
    versions = list[int]()
    clocks = {slot: list[int]() for slot in range(WORKERS)}
    for found, _ in LogReader(store).iter_from():
        for record in found:
            view.apply(record)
            if record["kind"] == "commit":
                versions.append(record["version"])
            if record["kind"] == "start":
                clocks[record["slot"]].append(record["clock"])
                assert record["min_clock"] <= record["clock"]
    assert versions == list(range(1, len(versions) + 1))
    assert len(versions) > 2 * COMMITS
    assert all(earlier < later for of_slot in clocks.values() for earlier, later in pairwise(of_slot))
    assert view.outcome is None


def test_a_page_that_there_is_not_is_an_error(tmp_path: Path) -> None:
    with (
        Served(tmp_path, tmp_path) as server,
        Session(server.port, "no-such-page") as session,
        pytest.raises(ClusterError, match="no-such-page"),
    ):
        session.wait_opened(LIMIT_S)


def test_a_server_that_goes_away_ends_the_session_with_an_error(tmp_path: Path) -> None:
    with Served(tmp_path, tmp_path) as server, Session(server.port, "overview") as session:
        session.wait_opened(LIMIT_S)
        server.close()
        with pytest.raises(ClusterError, match="connection"):
            session.wait_refreshes(1, LIMIT_S)
