"""What somebody does with a figure stays while it refreshes itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

REFRESHES = 3
_RANGES = "one => [one._fullLayout.xaxis.range, one._fullLayout.yaxis.range]"
_NEWEST = "one => Math.max(...one._fullData.find(trace => trace.name === 'training').x)"
_MARK = "one => { for (const part of [one, one.querySelector('.main-svg')]) part.isTheSame = true; }"
_MARKED = "one => [one, one.querySelector('.main-svg')].map(part => part.isTheSame ?? false)"


def await_refreshes(page: Any, count: int) -> None:
    """Wait until the page has shown so many other versions."""
    for _ in range(count):
        before = page.metric("Version")
        page.until(lambda b=before: page.metric("Version") > b, "the page refreshes itself")


def zoom(page: Any, key: str) -> None:
    """Drag over the middle of a figure."""
    area = page.widget(key).locator(".nsewdrag").first
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    mouse = page.page.mouse
    mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.3 * box["height"])
    mouse.down()
    mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.7 * box["height"], steps=8)
    mouse.up()


def test_a_figure_keeps_its_zoom_its_hidden_curves_and_its_element(
    tmp_path: Path,
    new_cluster: Callable[..., str],
    train: Callable[..., str],
    serve: Callable[..., str],
    visit: Callable[..., Any],
) -> None:
    address = new_cluster()
    train(address, "--workers", 2)
    page = visit(serve(tmp_path / "runs", "--scheduler", address))
    page.visit("overview", "Overview")
    page.until(lambda: page.metric("Accuracy") > 0, "a version was evaluated")
    page.until(lambda: page.widget("losses").locator(".legendtoggle").count() >= 2, "both curves have a name")
    newest = page.figure("losses", _NEWEST)
    page.figure("losses", _MARK)

    whole = page.figure("losses", _RANGES)
    zoom(page, "losses")
    page.until(lambda: page.figure("losses", _RANGES) != whole, "the figure is zoomed")
    chosen = page.figure("losses", _RANGES)
    page.hide("losses", "held-out")
    hidden = page.hidden("losses")

    await_refreshes(page, REFRESHES)

    assert page.figure("losses", _RANGES) == chosen
    assert page.hidden("losses") == hidden
    assert page.figure("losses", _MARKED) == [True, True]
    assert page.figure("losses", _NEWEST) > newest
