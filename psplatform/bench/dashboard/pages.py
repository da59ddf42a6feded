"""What the dashboard costs: how soon a long run's page is there, what refreshing takes, and what it takes of training.

The server is a process as ``psplatform dashboard`` starts it, and a session behaves as the application in a browser
does, but for drawing.  A browser's own work on the machine is not part of any figure.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

from psplatform.bench.clusters.served import Served
from psplatform.bench.dashboard.beside import measure_training
from psplatform.bench.dashboard.long_run import LiveRun, make
from psplatform.dashboard.session import Session
from psplatform.errors import ClusterError

Row = dict[str, Any]
Report = Callable[[Row], None]

TARGETS: Final = {
    "open_seconds": 3.0,
    "refresh_cpu_share": 0.3,
    "refresh_cpu_share_workers": 0.3,
    "training_slowdown": 0.02,
}
"""What is aimed at, at most."""

STARTS: Final = 3
"""Fresh servers that a page is opened on: one that has read a log keeps it."""

FIGURES: Final = 3
"""Plots of either page; with fewer, it is not what was to be measured."""

_LIMIT_S: Final = 120.0
_SAMPLE_S: Final = 0.5
_SETTLE_REFRESHES: Final = 2


def measure(
    report: Report | None = None,
    *,
    commits: int = 100_000,
    workers: int = 64,
    seconds: float = 60.0,
    minutes: float = 1.0,
    pairs: int = 60,
    train_seconds: float = 3.0,
    gradient_s: float = 0.03,
) -> Row:
    """Measure opening, refreshing, memory and the slowdown of training, in this order.

    Parameters
    ----------
    commits, workers
        Of the simulated run that is opened, and that goes on while its pages refresh.
    seconds
        For which the CPU time of each page's refreshes is counted.
    minutes
        For which the server's memory is watched while a page refreshes.
    pairs, train_seconds
        Of turns in which a page of a training is open and is not, and how long each takes.
    gradient_s
        What a gradient of that training computes.

    Returns
    -------
    dict
        ``open_seconds, open_cpu_seconds, refresh_cpu_share, refresh_cpu_share_workers, training_slowdown,
        resident_mib``, medians where something was measured more than once, `TARGETS` beside them as ``rows``, and
        under ``opening, refreshing, resident, training`` each single measurement and what it rests on.
    """
    tell = report or (lambda row: None)
    with tempfile.TemporaryDirectory(prefix="psplatform-bench-") as name:
        place = Path(name)
        for folder in ("over", "live", "training", "records"):
            (place / folder).mkdir()
        source = place / "over" / "long.zarr"
        records = make(str(source), commits, workers)
        tell({"made": "a long run", "records": records})
        opening = _opening(place, commits, tell)
        refreshing, resident = _refreshing(place, str(source), seconds, minutes, tell)
        training = measure_training(place, pairs, train_seconds, gradient_s, tell)
    found = {
        "open_seconds": median(opening["seconds"]),
        "open_cpu_seconds": median(opening["cpu_seconds"]),
        "refresh_cpu_share": refreshing["overview"]["share"],
        "refresh_cpu_share_workers": refreshing["workers"]["share"],
        "training_slowdown": training["slowdown"],
        "resident_mib": resident["max"],
    }
    return {
        "rows": [{"measure": one, "value": found[one], "target": TARGETS.get(one)} for one in found],
        **found,
        "run": {"commits": commits, "workers": workers, "records": records},
        "opening": opening,
        "refreshing": refreshing,
        "resident": resident,
        "training": training,
    }


def _opening(place: Path, commits: int, tell: Report) -> Row:
    """Open the run that is over on one fresh server after the other."""
    found: Row = {"seconds": [], "cpu_seconds": []}
    for _ in range(STARTS):
        with Served(place / "over", place / "records") as server:
            before = server.cpu_seconds()
            with Session(server.port, "overview", "run=long") as session:
                took_s = session.wait_opened(_LIMIT_S)
                page = session.look()
                found["cpu_seconds"].append(server.cpu_seconds() - before)
        version = page.metrics.get("Version")
        if version != str(commits) or page.figures < FIGURES:
            text = f"the page shows version {version} of {commits} and {page.figures} figures; it says {page.alerts}"
            raise ClusterError(f"{text}; open it in a browser and look")
        found["seconds"].append(took_s)
        found |= {"figures": page.figures, "received_bytes": page.received_bytes}
        tell({"opened in": took_s, "of CPU": found["cpu_seconds"][-1]})
    return found


def _refreshing(place: Path, source: str, seconds: float, minutes: float, tell: Report) -> tuple[Row, Row]:
    """Let pages of a run that goes on refresh; return what that computes, and the server's memory."""
    pages = {}
    with LiveRun(source, str(place / "live" / "live.zarr")) as run, Served(place / "live", place / "records") as server:
        memory = Memory(server, run)
        for name in ("overview", "workers"):
            with _visiting(server, name, "live") as session:
                pages[name] = _refreshes(server, session, memory, seconds)
            tell({"refreshing": name, "share": pages[name]["share"]})
        with _visiting(server, "overview", "live"):
            memory.samples.clear()
            memory.watch(60 * minutes)
    resident = memory.told()
    tell({"resident": resident["max"], "growth per minute": resident["growth_per_minute"]})
    return pages, resident


def _visiting(server: Served, page: str, run: str) -> Session:
    """Return a session whose page is there and refreshes."""
    session = Session(server.port, page, f"run={run}")
    try:
        session.wait_opened(_LIMIT_S)
        session.wait_refreshes(_SETTLE_REFRESHES, _LIMIT_S)
        shown = session.look()
        if shown.figures < FIGURES:
            raise ClusterError(f"the page {page} shows {shown.figures} figures; it says {shown.alerts}")
    except BaseException:
        session.close()
        raise
    return session


def _refreshes(server: Served, session: Session, memory: Memory, seconds: float) -> Row:
    before = session.look()
    began, computed = time.monotonic(), server.cpu_seconds()
    memory.watch(seconds)
    session.wait_refreshes(before.refreshes + 1, _LIMIT_S)  # of none, nothing can be said
    cpu_s, took_s = server.cpu_seconds() - computed, time.monotonic() - began
    page = session.look()
    return {
        "share": cpu_s / took_s,
        "cpu_seconds": cpu_s,
        "seconds": took_s,
        "refreshes": page.refreshes - before.refreshes,
        "received_bytes": page.received_bytes - before.received_bytes,
        "figures": page.figures,
        # Of the run, as the page tells it; not every page does.
        "updates": int(page.metrics.get("Version", 0)) - int(before.metrics.get("Version", 0)) or None,
    }


class Memory:
    """What memory a server has over time, while a run goes on."""

    def __init__(self, server: Served, run: LiveRun) -> None:
        self._server, self._run = server, run
        self.samples: list[tuple[float, float]] = []

    def watch(self, seconds: float) -> None:
        """Look every now and then for so long."""
        give_up_at = time.monotonic() + seconds
        while True:
            now = time.monotonic()
            self.samples.append((now, self._server.resident_mib()))
            self._run.require_going()
            if now >= give_up_at:
                return
            time.sleep(min(_SAMPLE_S, max(0.0, give_up_at - now)))

    def told(self) -> Row:
        """Return MiB at the start, at the end and at most, and how many more it became in a minute."""
        (began, first), (ended, last) = self.samples[0], self.samples[-1]
        minutes = (ended - began) / 60
        return {
            "start": first,
            "end": last,
            "max": max(mib for _, mib in self.samples),
            "growth_per_minute": (last - first) / minutes if minutes else math.nan,
            "minutes": minutes,
        }
