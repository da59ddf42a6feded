"""Several visitors, reloads, and what they see when the dashboard or the scheduler goes away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest


@pytest.fixture
def address(new_cluster: Callable[..., str]) -> str:
    return new_cluster()


@pytest.fixture
def url(address: str, train: Callable[..., str], serve: Callable[..., str], tmp_path: Path) -> str:
    train(address, "--workers", 2)
    return serve(tmp_path / "runs", "--scheduler", address)


@pytest.fixture
def page(url: str, visit: Callable[..., Any]) -> Any:
    """A window that was opened before there was a run, and shows it now."""
    found = visit(url)
    found.visit("overview", "Overview")
    found.until(lambda: found.metric("Version") > 0, "the run is shown")
    return found


def run_of(page: Any) -> str:
    """Return the run that is chosen on a page."""
    return str(page.widget("run").get_by_role("group", name="Selected values").inner_text())


def axis_of(page: Any) -> str:
    return str(page.figure("losses", "one => one._fullLayout?.xaxis.title.text"))


def test_every_window_keeps_its_run_and_its_axis_over_pages_reloads_and_restarts(
    page: Any,
    url: str,
    visit: Callable[..., Any],
    processes: Any,
    serve: Callable[..., str],
    address: str,
    tmp_path: Path,
) -> None:
    other = visit(url)
    other.visit("overview", "Overview")
    other.until(lambda: other.metric("Version") > 0, "the other window shows the run")
    chosen = run_of(other)

    page.widget("axis").get_by_role("radio", name="seconds").click()
    page.until(lambda: "[s]" in axis_of(page), "the figure is drawn over seconds")
    other.until(lambda: "version" in axis_of(other), "the other figure is drawn over versions as before")
    for window in (page, other):
        before = window.metric("Version")
        window.until(lambda w=window, b=before: w.metric("Version") > b, "the version grows in both windows")
    page.turn_to("Delays")
    page.turn_to("Overview")
    page.until(lambda: "[s]" in axis_of(page), "the axis is kept from page to page")

    before = other.metric("Version")
    other.page.reload()
    other.see("Overview")
    other.until(lambda: other.metric("Version") > before, "the run goes on after the reload")
    assert run_of(other) == chosen

    before = page.metric("Version")
    processes.kill("dashboard")
    serve(tmp_path / "runs", "--scheduler", address, port=urlsplit(url).port)
    page.until(lambda: page.metric("Version") > before + 20, "the page shows the run without being touched")
    assert run_of(page) == chosen


def test_stored_data_is_shown_when_the_scheduler_is_gone(page: Any, processes: Any) -> None:
    shown: dict[str, str] = {}

    def is_stored() -> bool:
        shown.update(page.metrics())  # all of one moment: while the page is drawn anew, some are not there
        return shown.get("Checkpoint", "none") != "none" and shown.get("Version", "").isdecimal()

    page.until(is_stored, "a checkpoint is written")

    processes.kill("cluster-scheduler")

    page.until(lambda: "What is stored is shown" in page.texts, "the page says that the scheduler is gone")
    page.until(lambda: page.metrics().get("State") == "recoverable", "the page says what the run is now")
    page.until(lambda: page.metric("Version") >= int(shown["Version"]), "the version is still shown")
    assert not page.page.get_by_test_id("stException").count()
