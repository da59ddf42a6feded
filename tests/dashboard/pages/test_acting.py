"""Stopping and breaking runs, and what a scheduler says of them: with the scheduler faked."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from psplatform.client import chaos
from psplatform.client.runs.programs import Program
from psplatform.dashboard.pages.frame import library
from psplatform.replication.stores.store import update_run

Check = Callable[[AppTest], None]


def press(app: AppTest, key: str) -> AppTest:
    return app.button(key=key).click().run()


def unescaped(texts: Any) -> str:
    return " ".join(one.value for one in texts).replace("\\", "")


def test_a_run_that_goes_on_is_stopped(bench: Any, shelf: Any, scheduler: Any, healthy: Check) -> None:
    shelf.live("digits-a")
    app = press(bench.show("overview"), "stop")
    healthy(app)
    assert scheduler.run.stopped == ["stopped on the dashboard"]
    assert "The run is stopping" in unescaped(app.caption)
    table = bench.show("runs")
    healthy(table)


def test_no_page_waits_for_a_run_that_is_to_stop(bench: Any, shelf: Any, scheduler: Any) -> None:
    scheduler.slow = True
    shelf.live("digits-a")
    app = press(bench.show("overview"), "stop")
    assert not app.exception
    assert "Under way: stopping the run." in unescaped(app.caption)
    assert app.button(key="stop").disabled


def test_why_a_run_could_not_be_stopped_is_said_until_the_next_press_and_of_that_run_alone(
    bench: Any, shelf: Any, scheduler: Any
) -> None:
    scheduler.fault = OSError("no route")
    shelf.live("digits-a")
    scheduler.live = {**scheduler.live, "digits-b": shelf.live("digits-b")}
    app = press(bench.show("overview", run="digits-a"), "stop")
    for _ in range(3):
        assert unescaped(app.error) == "stopping the run failed (OSError: no route)"
        app.run()
    app.multiselect(key="run").set_value(["digits-b"]).run()
    assert not app.exception
    assert not app.error
    app.multiselect(key="run").set_value(["digits-a"]).run()
    assert unescaped(app.error)
    scheduler.fault = None
    press(app, "stop")
    assert not app.error


def test_a_run_that_nobody_knows_any_more_is_not_said_to_stop(bench: Any, shelf: Any, scheduler: Any) -> None:
    shelf.live("digits-a")
    app = bench.show("overview")
    scheduler.live = {}
    library().forget_list()
    press(app, "stop")
    assert not app.exception
    assert not app.get("toast")
    assert "nothing was stopped" in unescaped(app.error)


def test_a_program_that_has_ended_is_not_said_to_stop(
    bench: Any, shelf: Any, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Program, "running", property(lambda one: True))
    program = fake.start(["train", "--store", shelf.live("digits-a")], bench.settings.records)
    monkeypatch.setattr("psplatform.dashboard.programs.program_of", lambda store: program)
    monkeypatch.setattr("psplatform.dashboard.pages.actions.cluster_of", lambda listed: None)
    monkeypatch.setattr(Program, "interrupt", lambda one: False)
    app = press(bench.show("overview"), "stop")
    assert not app.exception
    assert not app.get("toast")
    assert "nothing was stopped" in unescaped(app.error)
    monkeypatch.setattr(Program, "interrupt", lambda one: True)
    press(app, "stop")
    assert not app.error
    assert "The run is stopping" in unescaped(app.get("toast"))


def test_runs_of_the_scheduler_are_rows_with_their_figures_where_their_stores_are_here(
    bench: Any, shelf: Any, scheduler: Any, healthy: Check, tmp_path: Path
) -> None:
    away = replace(shelf, folder=tmp_path / "another folder").live("away")
    shelf.finished("digits-b")
    shelf.live("digits-a")
    scheduler.live = {**scheduler.live, "away": away}
    table = bench.show("runs")
    healthy(table)
    rows = {row["run"]: row for row in table.dataframe[0].value.to_dict("records")}
    states = {name: row["state"] for name, row in rows.items()}
    assert states == {"digits-a": "live", "digits-b": "finished", "away": "live", "elsewhere": "live"}
    assert rows["away"]["updates"] == 20
    assert "its store /far/away.zarr cannot be read from here" in rows["elsewhere"]["why"]
    assert "cannot be read" not in rows["away"]["why"]
    overview = bench.show("overview", run="away")
    healthy(overview)
    assert overview.multiselect(key="run").value == ["away"]


def test_a_run_that_was_started_beside_the_only_store_can_be_opened(
    bench: Any, fake: Any, shelf: Any, healthy: Check
) -> None:
    """As `psplatform dashboard STORE` shows it."""
    bench.settings = replace(bench.settings, store=shelf.finished("digits-a"))
    shelf.finished("not-asked-for")
    app = press(bench.show("start"), "start")
    name = Path(fake.commands[0][3]).stem
    shelf.live(name)
    app.run()
    healthy(app)
    library().forget_list()
    overview = bench.show("overview", run=name)
    healthy(overview)
    assert overview.multiselect(key="run").value == [name]
    assert set(overview.multiselect(key="run").options) == {"digits-a", name}


def test_a_copy_of_the_store_of_a_run_that_goes_on_is_not_that_run(
    bench: Any, shelf: Any, scheduler: Any, healthy: Check
) -> None:
    """Nothing that is done with the copy is done to the run; the copy can be recovered."""
    bench.settings = replace(bench.settings, allow_chaos=True)
    shelf.live("digits-a")
    shutil.copytree(shelf.recoverable("copied"), shelf.folder / "backup.zarr")
    update_run(str(shelf.folder / "backup.zarr"), run="digits-a")
    app = bench.show("failures", run="digits-a (backup.zarr)")
    healthy(app)
    assert "Recover" in [one.label for one in app.button]
    assert not {one.key for one in app.button} & {"kill", "pause"}
    overview = bench.show("overview", run="digits-a (backup.zarr)")
    healthy(overview)
    assert not [one for one in overview.button if one.key == "stop"]
    own = bench.show("overview", run="digits-a (digits-a.zarr)")
    assert [one for one in own.button if one.key == "stop"]


def test_a_run_of_somebody_else_cannot_be_stopped(bench: Any, shelf: Any) -> None:
    shelf.live("digits-a")
    app = bench.show("overview")
    assert not [one for one in app.button if one.key == "stop"]
    assert "This run was started elsewhere" in unescaped(app.caption)


def test_a_run_that_is_over_is_not_stopped(bench: Any, shelf: Any) -> None:
    shelf.finished("digits-a")
    assert not [one for one in bench.show("overview").button if one.key == "stop"]


def test_nothing_is_broken_where_that_is_not_allowed(bench: Any, shelf: Any, scheduler: Any) -> None:
    shelf.live("digits-a")
    app = bench.show("failures")
    assert not app.exception
    assert not {one.key for one in app.button} & {"kill", "pause"}


def test_processes_are_killed_and_paused_where_that_is_allowed(
    bench: Any, shelf: Any, scheduler: Any, monkeypatch: pytest.MonkeyPatch, healthy: Check
) -> None:
    hurt: list[Any] = []
    monkeypatch.setattr(chaos, "kill", lambda run, role: hurt.append(("kill", role)) or 7)
    monkeypatch.setattr(chaos, "pause", lambda run, role, seconds: hurt.append(("pause", role, seconds)) or 7)
    bench.settings = replace(bench.settings, allow_chaos=True)
    shelf.live("digits-a")
    shelf.finished("over")
    app = bench.show("failures", run="digits-a")
    app.selectbox(key="target").select("worker-0").run()
    press(app, "kill")
    healthy(app)
    app.number_input(key="pause seconds").set_value(3)
    press(app, "pause")
    healthy(app)
    assert hurt == [("kill", "worker-0"), ("pause", "worker-0", 3.0)]
    assert "Paused process 7 of worker-0 for 3 s." in unescaped(app.caption)
    over = bench.show("failures", run="over")
    assert not {one.key for one in over.button} & {"kill", "pause"}


def test_nothing_else_is_hurt_while_a_kill_is_under_way(bench: Any, shelf: Any, scheduler: Any, healthy: Check) -> None:
    """A second kill would hit the server that took over; the figures are drawn meanwhile."""
    scheduler.slow = True
    bench.settings = replace(bench.settings, allow_chaos=True)
    shelf.live("digits-a")
    app = press(bench.show("failures"), "kill")
    healthy(app)
    assert [one.disabled for one in app.button if one.key in ("kill", "pause")] == [True, True]
    assert "Under way: killing the process of server-0." in unescaped(app.caption)
    assert app.get("bidi_component")


def test_pages_show_what_is_known_while_the_coordinator_does_not_answer(
    bench: Any, shelf: Any, scheduler: Any, monkeypatch: pytest.MonkeyPatch, healthy: Check
) -> None:
    """No page waits for it: a fault of its own would stop every figure."""
    monkeypatch.setattr(scheduler, "begin", lambda *_: pytest.fail("a page does something unasked"))
    scheduler.trouble = "the coordinator is silent"
    bench.settings = replace(bench.settings, allow_chaos=True)
    shelf.live("digits-a")
    for page in ("failures", "protection"):
        app = bench.show(page)
        healthy(app)
        assert "the coordinator is silent" in unescaped(app.caption)
    assert "tcp://a:3" in app.dataframe[0].value["process"].tolist()
