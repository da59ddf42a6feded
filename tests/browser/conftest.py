"""A browser, a dashboard and a Dask cluster, each a real process of the test's own."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from psplatform.client.clusters.ports import free_port
from psplatform.client.runs.programs import programs

LIMIT_S: Final = 180.0
PRESSED_S: Final = 10.0
FAILED: Final = pytest.StashKey[bool]()
WIDE: Final = (1280, 1600)
_TAIL: Final = 4000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Let fixtures know whether their test has failed: then they tell what they saw."""
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@dataclass(slots=True)
class Programs:
    """The processes of a test, each the first of a session of its own; `end` ends them all, by their ids."""

    folder: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def state(self) -> Path:
        """Where what a dashboard starts is recorded, instead of among the user's own records."""
        return self.folder / "state"

    def start(self, name: str, *arguments: object) -> None:
        """Start a Python module with arguments, under a name that its output file has too."""
        quiet = {"XDG_STATE_HOME": str(self.state), "PYTHONUNBUFFERED": "1"}
        with self.output(name).open("ab") as output:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", *map(str, arguments)],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, **quiet},
            )

    def output(self, name: str) -> Path:
        """Return the file that a program prints into."""
        return self.folder / f"{name}.txt"

    def kill(self, name: str) -> None:
        """End a program and those it has started in its session, at once."""
        process = self.running.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(LIMIT_S)

    def end(self) -> None:
        """End every process, and the runs that pages have started; a second time changes nothing."""
        for name in list(self.running):
            self.kill(name)
        for folder in self.state.glob("psplatform/*"):
            for program in programs(folder):
                program.kill()

    def tell(self) -> None:
        """Print the end of what every program has said."""
        for file in [*sorted(self.folder.glob("*.txt")), *sorted(self.state.glob("psplatform/*/*.[oe]*"))]:
            print(f"--- {file.name}\n{file.read_text(errors='replace')[-_TAIL:]}")


@pytest.fixture
def processes(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Programs]:
    """Return what starts processes; all of them are ended after the test."""
    found = Programs(tmp_path)
    yield found
    found.end()
    if request.node.stash.get(FAILED, False):
        found.tell()


@pytest.fixture
def new_cluster(processes: Programs, until: Callable[..., None]) -> Callable[..., str]:
    """Start a scheduler and worker processes under nannies, as a user does by hand; return its address."""

    def start(workers: int = 3, name: str = "cluster") -> str:
        address = f"tcp://127.0.0.1:{free_port()}"
        quiet = ["--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
        listening = ["--host", "127.0.0.1", "--port", address.rpartition(":")[2]]
        processes.start(f"{name}-scheduler", "dask", "scheduler", *listening, *quiet)
        settings = ["--nworkers", workers, "--nthreads", 1, "--memory-limit", 0, "--host", "127.0.0.1"]
        folder = ["--local-directory", processes.folder]
        processes.start(f"{name}-workers", "dask", "worker", address, *settings, *folder, "--no-dashboard")
        said = processes.output(f"{name}-scheduler")
        until(lambda: said.read_text().count("Register worker") >= workers, f"{workers} Dask workers have come")
        return address

    return start


@pytest.fixture
def serve(processes: Programs, until: Callable[..., None]) -> Callable[..., str]:
    """Start a dashboard; return its URL once it answers."""

    def start(*arguments: object, name: str = "dashboard", port: int | None = None) -> str:
        port = port or free_port()
        processes.start(name, "psplatform", "dashboard", *arguments, "--port", port)
        url = f"http://127.0.0.1:{port}"
        until(lambda: _answers(f"{url}/_stcore/health"), f"the dashboard answers at {url}")
        return url

    return start


@pytest.fixture
def train(processes: Programs) -> Callable[..., str]:
    """Start a run that goes on until it is stopped, by the command line, without waiting for it; return its store."""

    def start(scheduler: str, *options: object, name: str = "run") -> str:
        store = str(processes.folder / "runs" / f"{name}.zarr")
        endless = ["--updates", 10**6, "--stragglers", "constant:seconds=0.02", "--evaluate-every", 20]
        lasting = ["--checkpoint-every", 20, "--store", store, "--scheduler", scheduler]
        small = ["digits", "-w", "network=perceptron"]
        processes.start(f"train-{name}", "psplatform", "train", *small, *endless, *lasting, *options)
        return store

    return start


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310  a dashboard of the test's own
            return bool(answer.status == 200)
    except OSError:
        return False


@dataclass(slots=True)
class Visitor:
    """A page in a browser, what it has asked for, and what it has complained of."""

    page: Any
    url: str
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Listen to what the page does."""
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self._hear(message))  # noqa: PLW0108  Playwright marks a method's owner
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _hear(self, message: Any) -> None:
        if message.type == "error":
            self.complaints.append(f"{message.text} ({(message.location or {}).get('url', '')})")

    def visit(self, path: str, title: str) -> None:
        """Open a page by its address, and wait until it is there."""
        self.page.goto(f"{self.url}/{path}", timeout=LIMIT_S * 1000)
        self.see(title)

    def turn_to(self, link: str, title: str | None = None) -> None:
        """Open a page by the navigation, as a user does: the session goes on."""
        self.page.get_by_test_id("stSidebarNav").get_by_role("link", name=link, exact=True).click()
        self.see(title or link)

    def see(self, title: str) -> None:
        """Wait until a page of that title is shown and its script has ended."""
        heading = self.page.get_by_role("heading", name=title, exact=True)
        self.until(heading.is_visible, f"the page {title!r} is shown")
        self.settle()

    def settle(self) -> None:
        """Wait until the page's script does not run; one that refreshes itself stands still in between."""
        running = self.page.locator("[data-test-script-state='running'], [data-test-script-state='initial']")
        self.until(lambda: running.count() == 0, "the script of the page has ended")

    def until(self, condition: Callable[[], object], what: str, limit_s: float = LIMIT_S) -> None:
        """Wait until something holds, while the page goes on; fail with words if it does not in time."""
        deadline = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail(f"not within {limit_s:g} s: {what}")
            self.page.wait_for_timeout(100)

    def widget(self, key: str) -> Any:
        """Return the widget that the program knows by that key."""
        return self.page.locator(".st-key-" + re.sub(r"[^a-zA-Z0-9_-]", "-", key))

    def enter(self, key: str, text: str) -> None:
        """Type into a field and leave it, as a user does."""
        field = self.widget(key).locator("input")
        field.fill(text)
        field.press("Enter")
        self.settle()

    def choose(self, key: str, option: str) -> None:
        """Choose an option of a select box."""
        self.widget(key).locator("input").click()
        self.page.get_by_role("option", name=option, exact=True).click()
        self.settle()

    def unfold(self, *titles: str) -> None:
        """Open sections that are folded."""
        for title in titles:
            self.page.locator("summary", has_text=title).click()

    def press(self, name: str) -> None:
        """Press a button by its text."""
        self.page.get_by_test_id("stMain").get_by_role("button", name=name, exact=True).click()

    def metrics(self) -> dict[str, str]:
        """Return the figures in frames on the page, as texts by their labels."""
        script = """all => all.map(one => [
            one.querySelector('[data-testid=stMetricLabel]').innerText.trim(),
            one.querySelector('[data-testid=stMetricValue]').innerText.trim()])"""
        return dict(self.page.get_by_test_id("stMetric").evaluate_all(script))

    def metric(self, label: str) -> float:
        """Return one of the figures, NaN where it is not (yet) one."""
        try:
            return float(self.metrics().get(label, "nan"))
        except ValueError:
            return float("nan")

    def kill_server(self) -> None:
        """Kill the process that serves shard 0, on the page that offers it, and see its replica promoted."""
        self.turn_to("Failures", "Failures and recovery")
        self.until(self.widget("target").is_visible, "the page offers to kill processes")
        self.choose("target", "server-0 (server)")
        self.press("Kill")
        self.until(lambda: self.metric("Failovers") >= 1, "a replica is promoted")

    def figure(self, key: str, script: str) -> Any:
        """Return what a JavaScript function makes of the figure that the program knows by that key, once it is drawn.

        A figure that the page has just put in another's place has no layout yet.
        """
        drawn = f"one => one._fullLayout && one._fullData ? [({script})(one)] : null"
        plot = self.widget(key).locator(".js-plotly-plot")
        found: list[Any] = []
        self.until(lambda: found.extend(plot.evaluate(drawn) or ()) or found, f"the figure {key!r} is drawn")
        return found[0]

    def hidden(self, key: str) -> list[str]:
        """Return the names of the curves of a figure that its legend hides."""
        script = "one => one._fullData.filter(trace => trace.visible === 'legendonly').map(trace => trace.name)"
        return [str(name) for name in self.figure(key, script)]

    def hide(self, key: str, curve: str, limit_s: float = LIMIT_S) -> None:
        """Hide a curve by the legend, and press again if the page moved the legend away from under the pointer."""
        entry = self.widget(key).locator(".traces", has_text=curve).locator(".legendtoggle").first
        deadline = time.monotonic() + limit_s
        while curve not in self.hidden(key):
            if time.monotonic() > deadline:
                pytest.fail(f"not within {limit_s:g} s: the curve {curve!r} is hidden")
            entry.click(timeout=limit_s * 1000)
            pressed = time.monotonic()
            while curve not in self.hidden(key) and time.monotonic() < pressed + PRESSED_S:
                self.page.wait_for_timeout(100)

    @property
    def texts(self) -> str:
        """All that can be read in the middle of the page."""
        return str(self.page.get_by_test_id("stMain").inner_text())


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Return a Chromium; skip where there is none, or nothing that drives it."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright, which drives the browser, is missing")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no command `chromium`: install a Chromium to test the dashboard in")
    # For one module: its loop would be in the way of tests that run one of their own.
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


@pytest.fixture
def visit(browser: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Visitor]]:
    """Open a browser window of its own, which shares nothing with others."""
    visitors: list[Visitor] = []

    def open_window(url: str, size: Sequence[int] = WIDE, scheme: str = "light") -> Visitor:
        viewport = {"width": size[0], "height": size[1]}
        context = browser.new_context(viewport=viewport, color_scheme=scheme)
        context.set_default_timeout(LIMIT_S * 1000)
        visitors.append(Visitor(context.new_page(), url))
        return visitors[-1]

    yield open_window
    failed = request.node.stash.get(FAILED, False)
    for number, visitor in enumerate(visitors):
        if failed:
            picture = tmp_path / f"failed-{number}.png"
            with contextlib.suppress(Exception):  # a page that has crashed has no picture
                visitor.page.screenshot(path=picture, full_page=True)
            print(f"--- the page {visitor.page.url}: {picture}; it complained: {visitor.complaints}")
        visitor.page.context.close()
