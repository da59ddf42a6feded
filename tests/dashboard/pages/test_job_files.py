"""Jobs of files named on the command line, on the page that starts them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from streamlit.testing.v1 import AppTest

from psplatform.cli.commands.train import job_fields
from psplatform.client.runs import programs
from psplatform.jobs.job import Job

Show = Callable[..., AppTest]

SLOW = "slow:chance=0.1,factor=4"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the jobs that are started, which are understood as the command line understands their files."""
    found: list[dict[str, Any]] = []

    def start(arguments: Sequence[str], folder: str) -> programs.Program:
        path = next(one for one in arguments if one.endswith(".yaml"))
        Job(**job_fields(path, {}))
        found.append(yaml.safe_load(Path(path).read_text()))
        return programs.Program(Path(folder) / "fake.json", ("psplatform", *arguments), 0.0, None)  # type: ignore[arg-type]

    monkeypatch.setattr(programs, "start", start)
    monkeypatch.setattr("psplatform.dashboard.programs.program_of", lambda store: store)
    return found


@pytest.fixture
def show(bench: Any, tmp_path: Path) -> Show:
    """Show the page for a job file with these fields."""

    def page(**fields: Any) -> AppTest:
        file = tmp_path / "job.yaml"
        file.write_text(yaml.safe_dump({"workload": "digits", **fields}))
        bench.settings = replace(bench.settings, jobs=(("job.yaml", str(file)),))
        app = bench.show("start")
        app.selectbox(key="what").select("job file job.yaml").run()
        assert not app.exception
        return app

    return page


def start(app: AppTest) -> str:
    """Press Start; return what the page says is wrong."""
    assert not app.button(key="start").disabled, [one.value for one in app.caption]
    app.button(key="start").click().run()
    assert not app.exception
    return " ".join(one.value for one in app.error).replace("\\", "")


def test_stragglers_of_a_job_are_shown_and_kept(show: Show, started: list[dict[str, Any]]) -> None:
    app = show(stragglers=SLOW)
    assert app.text_input(key="job.stragglers").placeholder == SLOW
    start(app)
    assert started[0]["stragglers"] == SLOW


@pytest.mark.parametrize("given", [SLOW, {"slow_chance": 0.1, "slow_factor": 4.0, "factors": [1, 2.5]}])
def test_a_job_can_be_given_no_stragglers(show: Show, started: list[dict[str, Any]], given: Any) -> None:
    app = show(stragglers=given)
    assert app.text_input(key="job.stragglers").placeholder.startswith(SLOW)
    app.text_input(key="job.stragglers").input("none").run()
    start(app)
    assert "stragglers" not in started[0]


def test_slow_servers_are_shown_in_words_and_can_be_removed(show: Show, started: list[dict[str, Any]]) -> None:
    app = show(slow_servers={"shards": [0, 2], "seconds": 1.0, "chance": 0.05}, shards=3)
    assert app.text_input(key="job.slow_servers").placeholder == "shards=0+2,seconds=1.0,chance=0.05"
    app.text_input(key="job.slow_servers").input("none").run()
    start(app)
    assert "slow_servers" not in started[0]


def test_a_file_may_name_a_trace_and_the_page_may_not(
    show: Show, started: list[dict[str, Any]], tmp_path: Path
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("slot,sequence,seconds\n0,0,0.5\n")
    app = show(stragglers=f"trace:{trace}")
    assert start(app) == ""
    assert started[0]["stragglers"] == f"trace:{trace}"
    app = show()
    app.text_input(key="job.stragglers").input(f"trace:{trace}").run()
    assert app.button(key="start").disabled


def test_a_trace_that_is_not_there_is_named(show: Show, started: list[dict[str, Any]]) -> None:
    assert "cannot read the trace /nowhere.csv" in start(show(stragglers="trace:/nowhere.csv"))
    assert started == []


@pytest.mark.parametrize(("stop", "updates"), [({"updates": 50}, "50"), ({"epochs": 2}, "1000")])
def test_a_cosine_by_its_name_ends_with_the_run(
    show: Show, started: list[dict[str, Any]], stop: dict[str, Any], updates: str
) -> None:
    app = show(schedule="cosine", stop=stop)
    assert app.text_input(key="schedule.cosine.updates").placeholder == updates
    assert start(app) == ""
    assert started[0]["schedule"] == "cosine"


def test_a_scheduler_in_a_file_is_not_passed_over_in_silence(show: Show) -> None:
    said = " ".join(one.value for one in show(scheduler="tcp://far:8786").caption).replace("\\", "")
    assert "names the scheduler tcp://far:8786; from here the run starts on a cluster of this machine" in said
    assert "names the scheduler" not in " ".join(one.value for one in show().caption)
