"""What a visitor has chosen in a figure outlives refreshes, and not what it was chosen for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

import psplatform as ps
from psplatform.replication.stores.store import create_run
from psplatform.telemetry.log.writer import EventLog

_BAND = "one => one._fullData.find(trace => trace.name === 'training highest')._length"
_RANGE = "one => [...one._fullLayout.xaxis.range]"
_FREE = "one => one._fullLayout.xaxis.autorange"
_TITLE = "one => one._fullLayout.xaxis.title.text"
_END = "one => one.layout.xaxis.autorangeoptions.clipmax"

COMMITS = 540
SHOWN = (450, 490, COMMITS)
"""Commits that the log has, from one look to the next: the band appears above 512."""


@pytest.fixture(scope="module")
def parts() -> list[list[dict[str, Any]]]:
    """Return the log of a training of the simulator that goes on, cut where it has so many commits."""
    job = ps.Job(
        workload="mlp",
        options={"samples": 200, "dimension": 4, "classes": 2},
        policy="asp",
        workers=2,
        batch_size=8,
        evaluate_every=100,
        stop=ps.Stop(updates=COMMITS),
    )
    records = [one for one in ps.simulate(job, keep_records=True).records if one["kind"] not in ("finished", "left")]
    commits = [place for place, one in enumerate(records) if one["kind"] == "commit"]
    ends = [0, *(commits[count - 1] + 1 for count in SHOWN[:-1]), len(records)]
    return [records[begin:end] for begin, end in pairwise(ends)]


def write(log: EventLog, records: list[dict[str, Any]]) -> None:
    for one in records:
        log.buffer(one)
    log.flush()


def begin(folder: Path, name: str, records: list[dict[str, Any]]) -> EventLog:
    """Make the store of a run that goes on; return its log."""
    store = str(folder / f"{name}.zarr")
    create_run(store, {**records[0], "run": name, "store": store, "started": 1.6e9})
    log = EventLog(store, 1)
    write(log, [{**records[0], "run": name}, *records[1:]])
    return log


@pytest.fixture
def breath(tmp_path: Path) -> Iterator[None]:
    """Let the runs go on, as their stores tell: each is written to again and again."""
    over = Event()

    def breathe() -> None:
        while not over.wait(1.0):
            for one in (tmp_path / "runs").glob("*.zarr/log/*"):
                os.utime(one)

    thread = Thread(target=breathe, daemon=True)
    thread.start()
    yield
    over.set()
    thread.join()


def zoom(page: Any, key: str) -> list[float]:
    """Drag along a figure; return the range that is shown then."""
    area = page.widget(key).locator(".nsewdrag").first
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    mouse = page.page.mouse
    mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.5 * box["height"])
    mouse.down()
    mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.5 * box["height"], steps=8)
    mouse.up()
    page.until(lambda: not page.figure(key, _FREE), "the figure is zoomed")
    found: list[float] = page.figure(key, _RANGE)
    return found


@pytest.mark.usefixtures("breath")
def test_choices_outlive_refreshes_and_not_what_they_were_made_for(
    tmp_path: Path, parts: list[list[dict[str, Any]]], serve: Callable[..., str], visit: Callable[..., Any]
) -> None:
    """Lanes move on under a zoom; a hidden curve gets a band; another axis and another run are shown whole."""
    folder = tmp_path / "runs"
    log = begin(folder, "a", parts[0])
    begin(folder, "b", parts[0])
    page = visit(serve(folder))
    page.visit("workers?run=a", "Workers")
    page.until(lambda: page.figure("lanes", _END) > 0, "the lanes are drawn")
    before, chosen = page.figure("lanes", _END), zoom(page, "lanes")
    write(log, parts[1])
    page.until(lambda: page.figure("lanes", _END) > before, "the lanes go on")
    assert page.figure("lanes", _RANGE) == chosen

    page.turn_to("Overview")
    page.until(lambda: page.figure("losses", _BAND) == 1, "there is no band yet")
    page.hide("losses", "training")
    hidden = page.hidden("losses")
    write(log, parts[2])
    page.until(lambda: page.figure("losses", _BAND) > 1, "the band is there")
    assert page.hidden("losses") == hidden
    assert "held-out" not in hidden

    zoom(page, "losses")
    page.widget("axis").get_by_role("radio", name="seconds").click()
    page.until(lambda: "[s]" in page.figure("losses", _TITLE), "the figure is drawn over seconds")
    assert page.figure("losses", _FREE)
    assert page.hidden("losses") == hidden
    zoom(page, "losses")
    page.choose("run", "b")
    page.until(lambda: page.figure("losses", "one => one._fullData.length") > 4, "both runs are drawn")
    page.until(lambda: page.figure("losses", _FREE), "they are shown whole")


def test_an_open_page_of_a_silent_run_goes_on_with_the_run(
    tmp_path: Path, parts: list[list[dict[str, Any]]], serve: Callable[..., str], visit: Callable[..., Any]
) -> None:
    """It was recovered from a terminal; each figure is there once."""
    folder = tmp_path / "runs"
    log = begin(folder, "a", parts[0])
    for one in folder.glob("*.zarr/log/*"):
        os.utime(one, (1.6e9, 1.6e9))
    page = visit(serve(folder))
    page.visit("overview?run=a", "Overview")
    page.until(lambda: page.metrics().get("State") == "failed", "the run is silent, without a checkpoint")
    zoom(page, "losses")
    write(log, parts[1])
    page.until(lambda: page.metrics().get("State") == "live", "the page shows that the run goes on")
    page.until(lambda: page.metric("Version") > SHOWN[0], "what came since is shown")
    assert page.widget("losses").locator(".js-plotly-plot").count() == 1
    assert not page.figure("losses", _FREE), "the figure is still zoomed"
