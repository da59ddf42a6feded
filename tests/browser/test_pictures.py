"""What every page looks like: pictures of all of them, and what can be checked of a picture by a program.

``PSPLATFORM_SCREENSHOTS`` names the folder that the pictures are written to, in every size and scheme.  Where it names
none, each size comes with one scheme: what a page lacks in width does not depend on its colours.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

PAGES = {
    "": "Runs",
    "overview": "Overview",
    "delays": "Delays",
    "workers": "Workers",
    "drops": "Dropped updates",
    "network": "Network",
    "replication": "Replication",
    "decisions": "Decisions of the policy",
    "failures": "Failures and recovery",
    "start": "Start a run",
    "what-if": "What if",
    "programs": "Programs",
}
SIZES = ((1280, 800), (1920, 1080))
SCHEMES = ("light", "dark")
LOOKS = tuple(product(SIZES, SCHEMES) if os.environ.get("PSPLATFORM_SCREENSHOTS") else zip(SIZES, SCHEMES, strict=True))

_PROBES = ("_stcore/health", "_stcore/host-config")
"""What Streamlit's own script asks for below the page's address first, and then above it."""

_TOO_WIDE = """main => [main, ...main.querySelectorAll('[data-testid=stMainBlockContainer]')]
    .filter(one => one.scrollWidth > one.clientWidth + 1).map(one => `${one.scrollWidth} > ${one.clientWidth}`)"""
_CUT = """all => all.flatMap(metric => [metric, ...metric.querySelectorAll('*')]
    .filter(one => one.clientWidth && getComputedStyle(one).overflowX !== 'visible'
        && one.scrollWidth > one.clientWidth + 1)
    .map(one => `${one.innerText}: ${one.scrollWidth} > ${one.clientWidth}`))"""

_UNDRAWN = ".psplatform-chart:not(:has(.main-svg))"
_BRIGHTNESS = "one => Math.max(...getComputedStyle(one).backgroundColor.match(/[0-9]+/g).slice(0, 3))"


@pytest.fixture
def album(tmp_path: Path) -> Path:
    """Folder of the pictures."""
    folder = Path(os.environ.get("PSPLATFORM_SCREENSHOTS") or tmp_path / "pictures")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def faults_of(page: Any, path: str, title: str) -> Iterator[str]:
    """Yield what is wrong with a page as it stands."""
    if not page.page.get_by_role("heading", name=title, exact=True).is_visible():
        yield "it has no title"
    yield from (f"exception: {one}" for one in page.page.get_by_test_id("stException").all_inner_texts())
    yield from (f"wider than its window: {one}" for one in page.page.get_by_test_id("stMain").evaluate(_TOO_WIDE))
    yield from (f"cut: {one}" for one in page.page.get_by_test_id("stMetric").evaluate_all(_CUT))


def complaints_of(page: Any) -> list[str]:
    """Return what a page has asked for elsewhere, and said on the console."""
    elsewhere = [one for one in page.requests if not one.startswith((page.url, "data:", "blob:"))]
    said = [one for one in page.complaints if not ("404" in one and any(probe in one for probe in _PROBES))]
    return [*(f"request to {one}" for one in elsewhere), *(f"console: {one}" for one in said)]


def photograph(page: Any, album: Path, state: str, query: str = "") -> list[str]:
    """Write pictures of every page; return what is wrong with them."""
    found: list[str] = []
    for path, title in PAGES.items():
        page.visit(f"{path}{query}", title)
        page.page.wait_for_load_state("networkidle")
        page.until(lambda: not page.page.get_by_test_id("stSkeleton").count(), f"everything on {title!r} has come")
        page.until(lambda: not page.page.locator(_UNDRAWN).count(), f"every figure on {title!r} is drawn")
        for (width, height), scheme in LOOKS:
            page.page.set_viewport_size({"width": width, "height": height})
            page.page.emulate_media(color_scheme=scheme)
            page.page.wait_for_timeout(300)  # a figure follows its window and its colours after a while
            name = f"{state}-{path or 'runs'}-{width}-{scheme}"
            page.page.screenshot(path=album / f"{name}.png", animations="disabled")
            found += [f"{name}: {one}" for one in faults_of(page, path, title)]
            if (page.page.get_by_test_id("stApp").evaluate(_BRIGHTNESS) < 128) != (scheme == "dark"):
                found.append(f"{name}: it is not {scheme}")
    return [*found, *(f"{state}: {one}" for one in complaints_of(page))]


def test_the_pages_of_an_empty_folder(
    tmp_path: Path, serve: Callable[..., str], visit: Callable[..., Any], album: Path
) -> None:
    assert photograph(visit(serve(tmp_path / "runs")), album, "empty") == []


def test_the_pages_of_a_busy_cluster_and_of_what_is_left_of_it(
    tmp_path: Path,
    processes: Any,
    new_cluster: Callable[..., str],
    train: Callable[..., str],
    serve: Callable[..., str],
    visit: Callable[..., Any],
    album: Path,
) -> None:
    address = new_cluster(workers=4)
    slow = "shifted-exponential:shift=0.02,mean=0.03;slow:chance=0.1,factor=4"
    store = train(address, "--workers", 3, "--policy", "backup", "--stragglers", slow, "--shards", 2, name="busy")
    page = visit(serve(tmp_path / "runs", "--scheduler", address, "--allow-chaos"))
    page.visit("overview", "Overview")
    page.until(lambda: page.metric("Accuracy") > 0, "a version was evaluated")
    page.kill_server()
    page.turn_to("Dropped updates")
    page.until(lambda: page.metric("Dropped") > 0, "a gradient was dropped")

    assert photograph(page, album, "busy") == []

    for name in ("dashboard", "cluster-scheduler", "cluster-workers", "train-busy"):
        processes.kill(name)
    broken = tmp_path / "broken"
    damage(Path(store), broken)
    page = visit(serve(broken, "--scheduler", address, name="blind"))
    run = json.loads((Path(store) / "zarr.json").read_text())["attributes"]["psplatform"]["run"]
    assert photograph(page, album, "broken", f"?run={run}") == []
    page.visit("overview?run=alien.zarr", "Overview")
    page.until(lambda: "What is stored is shown" in page.texts, "the page says that the scheduler is gone")
    assert "alien" in page.texts


def damage(store: Path, folder: Path) -> None:
    """Fill a folder with a store whose newest checkpoint and a part of whose log are damaged, and with foreign ones."""
    whole = shutil.copytree(store, folder / "damaged.zarr")
    segments = sorted((whole / "log").glob("*.msgpack"))
    segments[len(segments) // 2].write_bytes(b"\\xc1 no record")
    newest = max(whole.glob("checkpoints/*"))
    for part in newest.rglob("c/*"):
        if part.is_file():
            part.write_bytes(b"")
    alien = folder / "alien.zarr"
    alien.mkdir()
    (alien / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group", "attributes": {}}')
    torn = shutil.copytree(store, folder / "torn.zarr")
    (torn / "zarr.json").write_text('{"zarr_format": 3, "attr')
