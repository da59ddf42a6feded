"""What stands on a page stays what it is while runs come and go: names, ticked rows, chosen stretches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from psplatform.client.runs.listing import Listed, State
from psplatform.dashboard.pages.frame import library, named
from psplatform.dashboard.pages.runs import _key_of

Check = Callable[[AppTest], None]


def listed(run: str, store: str) -> Listed:
    return Listed(run, store, State.FINISHED, "it ended", {})


def test_every_store_of_a_shared_id_is_named_by_its_folder() -> None:
    """Whichever was started last, a name means the same store."""
    own, copy, other = listed("a", "runs/a.zarr"), listed("a", "runs/backup.zarr"), listed("b", "runs/b.zarr")
    expected = {"a (a.zarr)": own, "a (backup.zarr)": copy, "b": other}
    assert named([own, copy, other]) == named([other, copy, own]) == expected


def test_no_two_runs_have_one_name() -> None:
    """Not even where one has the id that another gets as its name, or the folders have the same names."""
    found = [listed("a", "x/a.zarr"), listed("a", "y/a.zarr"), listed("a", "x/c.zarr"), listed("a (c.zarr)", "z/d")]
    names = named(found)
    assert len(names) == len(found)
    assert names == named(found[::-1])
    assert names["x/a.zarr"].store == "x/a.zarr"


def test_a_copy_that_was_started_later_does_not_take_the_name(shelf: Any, bench: Any, healthy: Check) -> None:
    shelf.finished("digits-a")
    shelf.write("copy", run="digits-a", started=1.7e9)
    app = bench.show("overview", address="digits-a (digits-a.zarr)")
    healthy(app)
    assert app.multiselect(key="run").value == ["digits-a (digits-a.zarr)"]
    start = bench.show("start")
    healthy(start)
    jobs = {one for one in start.selectbox(key="what").options if "digits-a" in one}
    assert jobs == {"job of the run digits-a (digits-a.zarr)", "job of the run digits-a (copy.zarr)"}


def test_ticked_rows_are_of_the_table_that_they_were_ticked_in(shelf: Any, bench: Any) -> None:
    """A selection is kept by the table's key and holds row numbers: a run that appears makes another table."""
    assert _key_of(["a", "b"]) == _key_of(["a", "b"])
    assert _key_of(["a", "b"]) != _key_of(["c", "a", "b"])
    shelf.finished("digits-a")
    app = bench.show("runs")
    before = app.dataframe[0].proto.id
    app.run()
    assert app.dataframe[0].proto.id == before
    shelf.finished("digits-b")
    library().forget_list()
    app = bench.show("runs")
    assert app.dataframe[0].proto.id != before


def test_what_is_ticked_stays_so_when_another_run_appears(shelf: Any, bench: Any) -> None:
    shelf.finished("digits-a")
    app = bench.show("runs")
    assert app.button(key="open").disabled
    app.session_state["ticked"] = ["digits-a"]  # as by hand: this test has no mouse
    shelf.finished("digits-b")
    library().forget_list()
    app.run()
    rows = app.dataframe[0].value["run"].tolist()
    assert sorted(rows) == ["digits-a", "digits-b"]
    assert app.session_state["ticked"] == ["digits-a"]
    assert not app.button(key="open").disabled


def test_a_chosen_stretch_stays_while_the_run_goes_on(
    shelf: Any, bench: Any, healthy: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psplatform.dashboard.pages.workers.KEPT_S", 1.0)
    going_on = [one for one in shelf.trained.records if one["kind"] not in ("finished", "left")]
    middle = 2 * len(going_on) // 3
    store = shelf.live("digits-a", upto=middle)
    app = bench.show("workers")
    app.toggle(key="stretch").set_value(True).run()
    app.slider[0].set_value((0.5, 1.0)).run()
    before = app.slider[0].max
    shelf.log(store, going_on[middle:], term=2)
    app.run()
    healthy(app)
    assert (app.slider[0].value, app.slider[0].max) == ((0.5, 1.0), before)
    app.toggle(key="stretch").set_value(False).run()
    app.toggle(key="stretch").set_value(True).run()
    assert app.slider[0].max > before
