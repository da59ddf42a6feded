"""Every page shows every kind of store, or says in a sentence why it cannot."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from psplatform.dashboard.pages import frame, runs

Check = Callable[[AppTest], None]

ABOUT_RUNS = ("overview", "delays", "workers", "drops", "network", "protection", "decisions", "failures")
PAGES = ("runs", *ABOUT_RUNS, "start", "what_if", "programs")
STATES = ("live", "finished", "failed", "recoverable")


def titled(app: AppTest) -> None:
    assert len(app.title) == 1


@pytest.mark.parametrize("state", STATES)
def test_pages_show_a_run_in_every_state(shelf: Any, bench: Any, healthy: Check, state: str) -> None:
    getattr(shelf, state)("digits-a")
    for page in PAGES:
        app = bench.show(page)
        healthy(app)
        titled(app)
        assert not app.info or page == "programs", [one.value for one in app.info]
    overview = bench.show("overview")
    assert next(one.value for one in overview.metric if one.label == "State") == state


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [("newer", "has format 99"), ("foreign", "holds no run of psplatform"), ("torn", "")],
)
def test_pages_say_why_a_store_cannot_be_shown(
    shelf: Any, bench: Any, healthy: Check, kind: str, sentence: str
) -> None:
    getattr(shelf, kind)("broken")
    for page in PAGES:
        app = bench.show(page)
        healthy(app)
        titled(app)
        if page in ABOUT_RUNS:
            shown = " ".join(one.value for one in [*app.error, *app.warning, *app.info]).replace("\\", "")
            assert sentence in shown


@pytest.mark.parametrize("place", ["an empty folder", "no folder", "a file"])
def test_pages_of_a_folder_without_runs_say_what_to_do(bench: Any, healthy: Check, tmp_path: Path, place: str) -> None:
    if place == "an empty folder":
        (tmp_path / "runs").mkdir()
    elif place == "a file":
        (tmp_path / "runs").write_text("not a folder")
    for page in PAGES:
        app = bench.show(page)
        healthy(app)
        titled(app)
        if page not in ("start", "programs"):
            assert any("There is no run in" in one.value for one in app.info)


@pytest.mark.parametrize("place", ["an empty store", "a file"])
def test_pages_of_one_store_that_is_none_say_so(bench: Any, healthy: Check, tmp_path: Path, place: str) -> None:
    store = tmp_path / "runs" / "run.zarr"
    if place == "a file":
        store.parent.mkdir()
        store.write_text("not a store")
    else:
        store.mkdir(parents=True)
    bench.settings = replace(bench.settings, store=str(store))
    for page in PAGES:
        app = bench.show(page)
        healthy(app)
        if page in ABOUT_RUNS:
            assert len(app.error) == 1
            assert "run" in app.error[0].value


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_store_that_may_not_be_read_is_foreign(shelf: Any, bench: Any, healthy: Check) -> None:
    store = Path(shelf.finished("digits-a"))
    store.chmod(0)
    try:
        app = bench.show("overview")
        healthy(app)
        assert app.error
    finally:
        store.chmod(0o700)


def test_figures_follow_a_store_that_is_written_at_this_moment(
    shelf: Any, bench: Any, healthy: Check, spec: Callable[[AppTest, str], dict[str, Any]]
) -> None:
    store = shelf.live("digits-a", upto=60)
    app = bench.show("overview")
    before = spec(app, "losses")["data"]
    version = next(one.value for one in app.metric if one.label == "Version")
    rest = [one for one in shelf.trained.records if one["kind"] not in ("finished", "left")][60:]
    shelf.log(store, rest, term=2)
    app.run()
    healthy(app)
    assert spec(app, "losses")["data"] != before
    assert [one["uid"] for one in spec(app, "losses")["data"][:3]] == [one["uid"] for one in before[:3]]
    assert int(next(one.value for one in app.metric if one.label == "Version")) > int(version)


def test_a_page_of_a_run_that_is_over_is_shown_anew_when_it_goes_on_again(
    shelf: Any, bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recovered in another browser or from a terminal; until then nothing is drawn."""
    store = shelf.recoverable("digits-a")
    parts: list[tuple[Callable[[], None], float]] = []
    whole = frame.st.fragment
    monkeypatch.setattr(
        frame.st,
        "fragment",
        lambda act, *, run_every: parts.append((act, run_every)) or whole(act, run_every=run_every),
    )
    bench.show("overview")
    [(look, every)] = [(act, every) for act, every in parts if every is not None]
    assert 2 <= every <= 5
    anew: list[int] = []
    monkeypatch.setattr(frame.st, "rerun", lambda: anew.append(1))
    monkeypatch.setattr(frame, "chart", lambda *_: pytest.fail("a figure is drawn"))
    look()
    assert anew == []
    shelf.log(store, shelf.trained.records[60:70], term=2)
    frame.library().forget_list()
    look()
    assert anew == [1]


def test_a_policy_that_is_not_installed_here_is_shown_by_name(shelf: Any, bench: Any, healthy: Check) -> None:
    job = {**shelf.trained.job, "policy": "far-away"}
    records = [{**one, "policy": "far-away"} if one["kind"] == "run" else one for one in shelf.trained.records]
    shelf.write("digits-a", records, policy="far-away", job=job)
    for page in PAGES:
        healthy(bench.show(page))
    shown = [one.value for one in bench.show("decisions").markdown]
    assert any("far\\-away" in one for one in shown)
    assert "far-away" in bench.show("runs").dataframe[0].value["policy"].tolist()
    app = bench.show("start")
    app.selectbox(key="what").select("job of the run digits-a").run()
    healthy(app)
    assert "is not installed here" in app.error[0].value
    assert app.button(key="start").disabled
    app = bench.show("what_if")
    healthy(app)
    assert "far-away" not in app.multiselect(key="policies").value


def test_a_run_that_the_address_names_and_there_is_none_is_left_out(shelf: Any, bench: Any, healthy: Check) -> None:
    for name in ("digits-a", "digits-b"):
        shelf.finished(name)
    newest = bench.show("overview").multiselect(key="run").value
    assert len(newest) == 1
    other = "digits-a" if newest == ["digits-b"] else "digits-b"
    for app in (bench.show("overview", run="nowhere"), bench.show("overview", address="nowhere")):
        healthy(app)
        assert app.multiselect(key="run").value == newest
    assert bench.show("overview", address=other).multiselect(key="run").value == [other]


def test_several_runs_are_drawn_over_each_other(
    shelf: Any, bench: Any, healthy: Check, spec: Callable[[AppTest, str], dict[str, Any]]
) -> None:
    for name in ("a", "b"):
        shelf.finished(name)
    app = bench.show("overview", run="a")
    app.multiselect(key="run").set_value(["a", "b"]).run()
    healthy(app)
    names = {one["name"] for one in spec(app, "losses")["data"]}
    assert {"a", "b"} <= names
    app = bench.show("delays", run="a")
    app.multiselect(key="run").set_value(["b", "a"]).run()
    healthy(app)
    assert any("This page shows the first: b" in one.value for one in app.sidebar.caption)


def test_no_default_is_set_twice(
    shelf: Any, bench: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streamlit warns of a widget that has a default and a value of the session."""
    monkeypatch.setattr("streamlit.elements.lib.policies._shown_default_value_warning", False)
    shelf.finished("digits-a")
    for run in (None, "digits-a"):
        app = bench.show("overview", run=run)
        app.run()
        assert app.multiselect(key="run").value == ["digits-a"]
    texts = [one.getMessage() for one in caplog.records]
    texts += [one.value for one in app.warning]
    assert not [one for one in texts if re.search("created with a default value", one)]


ODD = (
    ("run", "policy_parameters", "many"),
    ("run", "optimizer", "fast"),
    ("run", "replication", 3),
    ("run", "shards", "two"),
    ("run", "staleness_bound", "some"),
    ("commit", "decision", {"k": "two"}),
)


@pytest.mark.parametrize(("kind", "name", "value"), ODD)
def test_a_log_of_another_writer_keeps_no_other_run_from_being_shown(
    shelf: Any, bench: Any, healthy: Check, kind: str, name: str, value: Any
) -> None:
    """What is not of the kind that it should be is said in a sentence, on the pages that would show it."""
    records = [{**one, name: value} if one["kind"] == kind else one for one in shelf.trained.records]
    shelf.write("odd", records)
    shelf.finished("digits-a")
    found = {row["run"]: row for row in bench.show("runs").dataframe[0].value.to_dict("records")}
    assert found["digits-a"]["updates"] == 20
    assert "odd" in found
    said = []
    for page in ("delays", "protection", "decisions"):
        app = bench.show(page, run="odd")
        healthy(app)
        said += [one.value.replace("\\", "") for one in app.error]
    assert said
    refused = f"kind {kind!r} has a field {name!r} that is none"
    assert all("says what this psplatform does not understand" in one or refused in one for one in said)


@pytest.mark.parametrize(
    ("name", "value"),
    list({"started": "yesterday", "policy": ["a"], "scheduler": 7, "workers": "many", "term": "x", "job": [1]}.items()),
)
def test_a_description_of_another_writer_is_shown_as_it_is(
    shelf: Any, bench: Any, healthy: Check, name: str, value: Any
) -> None:
    shelf.write("odd", **{name: value})
    for page in ("runs", "overview", "failures", "start", "what_if"):
        healthy(bench.show(page))


def test_a_run_that_cannot_be_shown_is_a_row_with_a_sentence(
    shelf: Any, bench: Any, healthy: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is wrong with it, the other rows are as they are without it."""
    whole = runs._row
    for name in ("good", "odd"):
        shelf.finished(name)
    monkeypatch.setattr(runs, "_row", lambda name, *rest: {}["gone"] if name == "odd" else whole(name, *rest))
    app = bench.show("runs")
    healthy(app)
    found = {row["run"]: row for row in app.dataframe[0].value.to_dict("records")}
    assert found["good"]["updates"] == 20
    assert "does not understand (KeyError)" in found["odd"]["why"]


def test_runs_are_sorted_by_age_as_times_are(shelf: Any, bench: Any, healthy: Check) -> None:
    """In the table, by a click; texts such as 9 min and 10 min would be sorted as texts."""
    for number, started in enumerate((1.6e9, 1.6e9 + 86400, 1e300)):
        shelf.finished(f"run-{number}", started=started)
    app = bench.show("runs")
    healthy(app)
    table = app.dataframe[0].value.set_index("run")["age"]
    assert str(table.dtype).startswith("datetime64")
    assert table["run-1"] - table["run-0"] == timedelta(days=1)
    assert table.isna().to_dict() == {"run-0": False, "run-1": False, "run-2": True}


@pytest.mark.parametrize("kind", ["newer", "foreign", "torn"])
def test_a_run_that_cannot_be_shown_hides_no_other(
    shelf: Any, bench: Any, healthy: Check, spec: Callable[[AppTest, str], dict[str, Any]], kind: str
) -> None:
    """Of one whose log is damaged, what was read before stands beside the others."""
    shelf.finished("well")
    getattr(shelf, kind)("broken")
    name = "broken.zarr" if kind in ("newer", "foreign") else "broken"
    app = bench.show("overview", run="well")
    app.multiselect(key="run").set_value([name, "well"]).run()
    healthy(app)
    assert len(app.error) == 1
    drawn = {one["name"].removesuffix(" highest").removesuffix(" lowest") for one in spec(app, "losses")["data"]}
    assert drawn == ({"training", "held-out"} if kind != "torn" else drawn | {"well", "broken"})


def test_what_was_read_before_a_damaged_segment_is_shown(
    shelf: Any, bench: Any, healthy: Check, spec: Callable[[AppTest, str], dict[str, Any]]
) -> None:
    shelf.torn("broken")
    app = bench.show("overview")
    healthy(app)
    assert app.error
    assert spec(app, "losses")["data"]
