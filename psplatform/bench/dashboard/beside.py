"""What a page that is open takes of a training on the same machine.

One training goes on for all of it.  In turns a page of it is open and refreshed, and its server is stopped, which takes
nothing.  Neighbouring turns are compared: whole trainings, one after the other, differ by more than what is measured.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import stdev
from typing import Any, Final

from psplatform.bench.clusters.served import Served
from psplatform.bench.tasks.dense import seconds_of, task_of
from psplatform.client.clusters.embedded import end_cluster, start_cluster
from psplatform.client.launch import train
from psplatform.core.plan import Stop
from psplatform.dashboard.session import Session
from psplatform.errors import ClusterError
from psplatform.jobs.job import Job
from psplatform.jobs.optimizers import SGD
from psplatform.telemetry.log.reader import LogReader

Row = dict[str, Any]
Report = Callable[[Row], None]

POLICY: Final = "ssp"
TRAINERS: Final = 2
SETTLE_S: Final = 0.5
"""At the beginning of each turn, in which what the turn before left is done; not counted."""

_PROCESSES: Final = TRAINERS + 2
_PARAMETERS: Final = 100_000
_LIMIT_S: Final = 120.0
_LONGEST_S: Final = 24 * 3600.0
_WARM_UP_COMMITS: Final = 100


@dataclass(frozen=True, slots=True)
class Turn:
    """A time, in seconds since 1970, in which a page was open or not."""

    watched: bool
    begin: float
    end: float

    def rate(self, commits: Sequence[float]) -> float:
        """Return the commits per second in it, given the times of all, in order."""
        return (bisect_left(commits, self.end) - bisect_left(commits, self.begin)) / (self.end - self.begin)


def measure_training(place: Path, pairs: int, seconds: float, gradient_s: float, tell: Report) -> Row:
    """Train for so many pairs of turns of so many seconds each; return what the page takes.

    Returns
    -------
    dict
        ``slowdown``, the share of the updates per second that is lost, ``error``, its standard error from how much the
        pairs differ, ``with`` and ``without``, the updates per second, ``pairs`` one by one, and what that rests on.
    """
    task = task_of(_PARAMETERS, gradient_s, "compute")
    folder = place / "training"
    store = str(folder / "run.zarr")
    job = Job(
        task=task,
        device="cpu",
        policy=POLICY,
        optimizer=SGD(lr=1e-4),
        workers=TRAINERS,
        stop=Stop(seconds=_LONGEST_S),
        evaluate_every=None,
        torch_threads=1,
        store=store,
    )
    cluster, client = start_cluster(_PROCESSES)
    try:
        with Served(folder, place / "records") as server:
            run = train(job, client)
            try:
                turns, told = _watch(server, run.run, store, pairs, seconds)
                run.stop("it was measured")
                run.wait(_LIMIT_S)
            finally:
                run.close()
    finally:
        end_cluster(client, cluster)
    found = compare(turns, _commits(store))
    tell({"slowdown": found["slowdown"], "give or take": found["error"]})
    rests_on = {"policy": POLICY, "workers": TRAINERS, "seconds": seconds, "gradient_core_seconds": seconds_of(task)}
    return {**found, **rests_on, **told}


def _watch(server: Served, run: str, store: str, pairs: int, seconds: float) -> tuple[list[Turn], Row]:
    """Return the turns that were taken, and how often the page was refreshed in them and what its server computed."""
    with Session(server.port, "overview", f"run={run}") as session:
        session.wait_opened(_LIMIT_S)
        _await_commits(store)
        before, computed = session.look().refreshes, server.cpu_seconds()
        turns = _take_turns(server, session, pairs, seconds)
        refreshes, cpu_s = session.look().refreshes - before, server.cpu_seconds() - computed
    return turns, {"refreshes": refreshes, "server_cpu_seconds": cpu_s}


def _take_turns(server: Served, session: Session, pairs: int, seconds: float) -> list[Turn]:
    turns = []
    try:
        for number in range(pairs):
            # Which comes first alternates: what changes slowly counts for both.
            for watched in (True, False) if number % 2 else (False, True):
                session.refresh(on=watched)
                if watched:
                    server.go_on()
                    session.wait_refreshes(session.look().refreshes + 1, _LIMIT_S)
                else:
                    server.pause()
                time.sleep(SETTLE_S)
                begin = time.time()
                time.sleep(seconds)
                turns.append(Turn(watched, begin, time.time()))
    finally:
        server.go_on()
        session.refresh(on=True)
    return turns


def _await_commits(store: str) -> None:
    give_up_at = time.monotonic() + _LIMIT_S
    while len(_commits(store)) < _WARM_UP_COMMITS:
        if time.monotonic() > give_up_at:
            raise ClusterError(f"the training made no updates within {_LIMIT_S:g} s; look at {store}")
        time.sleep(SETTLE_S)


def _commits(store: str) -> list[float]:
    """Return when each commit was made, in seconds since 1970."""
    at, began = list[float](), math.inf
    for records, position in LogReader(store).iter_from():
        at += [record["at"] for record in records if record["kind"] == "commit"]
        # A segment is written right after its newest record.  The time that the log names is of before the start.
        written = (Path(store) / "log" / position.name).stat().st_mtime
        began = min(began, written - max(record["at"] for record in records))
    return [began + one for one in at]


def compare(turns: Sequence[Turn], commits: Sequence[float]) -> Row:
    """Return what turns tell, which come in pairs, given the times of all commits in order.

    Raises
    ------
    ClusterError
        If nothing was committed in the turns without a page.
    """
    pairs = [sorted(turns[place : place + 2], key=lambda one: one.watched) for place in range(0, len(turns), 2)]
    rates = [(without.rate(commits), with_page.rate(commits)) for without, with_page in pairs]
    count = len(rates)
    without, with_page = (sum(one[place] for one in rates) / count for place in (0, 1))
    if not without:
        raise ClusterError("the training that is to be slowed down made no updates; look at its store")
    losses = [1 - after / before if before else math.nan for before, after in rates]
    return {
        "slowdown": 1 - with_page / without,
        "error": stdev(losses) / math.sqrt(count) if count > 1 else math.nan,
        "with": with_page,
        "without": without,
        "pairs": [{"without": before, "with": after} for before, after in rates],
    }
