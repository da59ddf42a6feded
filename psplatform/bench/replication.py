"""What replicas and checkpoints cost: updates per second beside a run without, and the bytes that replicas are sent.

Runs follow each other on one cluster.  Of each, only the middle counts, from the log: neither start nor end.  Both
claims are measured in pairs of runs, with and without, whose order alternates: what the machine does besides, it does
to both.  Still one run differs from the next by more than checkpoints cost.  So these are measured within runs as well:
by how much longer those updates took that one may have held up, compared with others of the same run.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

from psplatform.bench.measuring.rates import WARM_UP, Rates, Row, cost_of_checkpoints, interval, rates_of
from psplatform.bench.tasks.dense import Dense, Effort, seconds_of, task_of
from psplatform.client.clusters.embedded import end_cluster, start_cluster
from psplatform.client.launch import train
from psplatform.core.plan import Stop
from psplatform.jobs.checkpoints import Checkpoints
from psplatform.jobs.job import Job
from psplatform.jobs.optimizers import SGD
from psplatform.jobs.replication import Bounded, Chain, NoReplication, Replication
from psplatform.telemetry.log.reader import LogReader

Report = Callable[[Row], None]
MeasureMode = Callable[[Replication, float], Rates]
"""Measures a mode of replication, whose transfers are about so many updates apart; 0 where each update is sent."""

WORKERS: Final = 2
PROCESSES: Final = WORKERS + 2
BOUNDS: Final = (2, 8, 20, 50)
CLAIMED_BOUND: Final = 20
NORM_STEPS: Final = 20
"""Mean updates in the bound that is given as a distance."""

CHECKPOINT_S: Final = 10.0
SLOTS: Final = 1
"""State vectors of the optimiser: its momentum."""

_LONG: Final = 2.7
"""How long runs with checkpoints go on, in times from one checkpoint to the next: they have two, and go on behind the
second for a while."""

_LONG_WARM_UP: Final = 0.5 / _LONG
"""The part of such a run that is not counted."""

_TRANSFERS: Final = 3
"""How many there shall be at least in what is counted of a run whose bytes are told."""

_END_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Course:
    """What all runs have in common."""

    client: Any
    task: Dense
    seconds: float

    def run(self, replication: Replication, checkpoints: Checkpoints | None = None, seconds: float = 0.0) -> list[Row]:
        """Train for a while; return the log."""
        with tempfile.TemporaryDirectory() as folder:
            store = str(Path(folder) / "run.zarr")
            job = Job(
                task=self.task,
                device="cpu",
                optimizer=SGD(lr=1e-4, momentum=0.9),
                workers=WORKERS,
                replication=replication,
                checkpoints=checkpoints or Checkpoints.never(),
                stop=Stop(seconds=max(self.seconds, seconds)),
                evaluate_every=None,
                torch_threads=1,
                store=store,
            )
            run = train(job, self.client)
            run.wait(job.stop.seconds + _END_S if job.stop.seconds is not None else _END_S)
            records = [record for found, _ in LogReader(store).iter_from() for record in found]
            run.close()
        return records


def measure(
    report: Report | None = None,
    *,
    parameters: int = 10_000_000,
    pairs: int = 20,
    seconds: float = 8.0,
    gradient_s: float = 0.1,
    effort: Effort = "compute",
    checkpoint_s: float = CHECKPOINT_S,
) -> Row:
    """Run every mode once, each behind a run without replicas, then the pairs of both claims.

    Parameters
    ----------
    pairs
        Of runs with and without replicas, and half as many with and without checkpoints, as these take longer.
    seconds
        Of each run at least: those with large bounds go on for three transfers, those with checkpoints for two of them.
    gradient_s, effort
        What a gradient takes at least, and how: a wait leaves cores idle, which a server then has for itself.

    Returns
    -------
    dict
        ``results, overhead, gradient``.  An overhead is a part of the updates per second: ``bounded`` what is missing
        with replicas, by pairs of runs; ``checkpoint`` what checkpoints take, of which each run with them gives one
        value, their number, and ``runs``, the same by pairs of runs.  Each has a median, the interval that holds it,
        and a mean; those of ``checkpoint`` are ``None`` where none could be measured.  A gradient's `core_seconds` is
        how long it keeps a core busy that nobody else uses.
    """
    task = task_of(parameters, gradient_s, effort)
    cluster, client = start_cluster(PROCESSES)
    try:
        course = Course(client, task, seconds)
        results = _modes(course, report)
        overhead = _overhead(course, pairs, checkpoint_s, report)
    finally:
        end_cluster(client, cluster)
    gradient = {
        "effort": effort,
        "seconds": gradient_s,
        "core_seconds": seconds_of(task) if effort == "compute" else None,
        "parameters": task.width**2,
        "rows": task.rows,
    }
    return {"results": results, "overhead": overhead, "gradient": gradient}


def _overhead(course: Course, pairs: int, checkpoint_s: float, report: Report | None) -> Row:
    bounded = Bounded(max_divergence=CLAIMED_BOUND, unit="updates")
    replicas = _pairs("bounded", lambda: course.run(bounded), lambda: course.run(NoReplication()), pairs, report)
    return {"bounded": replicas, "checkpoint": _checkpoints(course, bounded, pairs, checkpoint_s, report)}


def _checkpoints(course: Course, bounded: Bounded, pairs: int, every_s: float, report: Report | None) -> Row:
    # One is kept: then the second removes the first, as each does in long runs.
    written, seconds, costs = Checkpoints(every_seconds=every_s, keep=1), _LONG * every_s, list[tuple[float, int]]()

    def with_checkpoints() -> list[Row]:
        records = course.run(bounded, written, seconds)
        costs.append(cost_of_checkpoints(records, _LONG_WARM_UP))
        return records

    def without() -> list[Row]:
        return course.run(bounded, None, seconds)

    runs = _pairs("checkpoint", with_checkpoints, without, math.ceil(pairs / 2), report, _LONG_WARM_UP)
    parts = [cost_s / every_s for cost_s, found in costs if found]
    return {**_told(parts), "checkpoints": sum(found for _, found in costs), "runs": runs}


def _modes(course: Course, report: Report | None) -> list[Row]:
    beside: list[Rates] = []

    def run(replication: Replication, bound: float) -> Rates:
        # A single run without would be a poor measure for all the others: they are compared with the median of these.
        beside.append(rates_of(course.run(NoReplication())))
        found = rates_of(course.run(replication, seconds=_seconds_for(bound, beside[-1])))
        if report is not None:
            report({"run": len(beside), "updates_per_second": found.updates_per_second})
        return found

    rows = [*_from_servers(course.task, run), *_from_workers(course.task, run)]
    alone = median(each.updates_per_second for each in beside)
    rows.insert(0, _row("none", None, None, replace(beside[0], updates_per_second=alone), 0.0))
    for row in rows:
        row["relative"] = row["updates_per_second"] / alone
    return rows


def _from_servers(task: Dense, run: MeasureMode) -> list[Row]:
    """Return the rows of replicas that get states and updates from their servers, and of one in the store."""
    rows = [_row("chain", 0, "updates", run(Chain(), 0.0), _vectors(task, 1))]
    step = None
    for bound in BOUNDS:
        rates = run(Bounded(max_divergence=bound, unit="updates"), bound)
        step = rates.step or step
        rows.append(_row("bounded", bound, "updates", rates, _closed_form(task, bound - 1)))
    if step is not None:
        rates = run(Bounded(max_divergence=NORM_STEPS * step, unit="norm"), NORM_STEPS)
        rows.append(_row("bounded", NORM_STEPS * step, "norm", rates, _closed_form(task, NORM_STEPS - 1)))
    rates = run(Bounded(max_divergence=CLAIMED_BOUND, unit="updates", target="store"), CLAIMED_BOUND)
    cold = _row("bounded", CLAIMED_BOUND, "updates", rates, _closed_form(task, CLAIMED_BOUND - 1))
    return [*rows, {**cold, "target": "store"}]


def _from_workers(task: Dense, run: MeasureMode) -> list[Row]:
    """Return the rows of replicas that take every gradient of every update from the workers."""
    bounded = Bounded(max_divergence=CLAIMED_BOUND, unit="updates", source="workers")
    rows = [
        _row("chain", 0, "updates", run(Chain(source="workers"), 0.0), _vectors(task, WORKERS)),
        _row("bounded", CLAIMED_BOUND, "updates", run(bounded, 0.0), _vectors(task, WORKERS)),
    ]
    return [{**row, "source": "workers"} for row in rows]


def _seconds_for(bound: float, alone: Rates) -> float:
    return _TRANSFERS * bound / alone.updates_per_second / (1 - WARM_UP)


def _vectors(task: Dense, count: float) -> float:
    return 4.0 * task.width**2 * count


def _closed_form(task: Dense, updates: float) -> float:
    """Return bytes per update where the whole state goes out every so many updates.

    That is a bound's number of them less one, if transfers arrive before the next step is staged: the fewest bytes.
    """
    return _vectors(task, (1 + SLOTS) / max(1.0, updates))


def _row(mode: str, bound: float | None, unit: str | None, rates: Rates, expected: float) -> Row:
    return {
        "mode": mode,
        "max_divergence": bound,
        "unit": unit,
        "target": "replica" if bound is not None else None,
        "source": "server" if bound is not None else None,
        "updates_per_second": rates.updates_per_second,
        "bytes_to_replica_per_update": rates.bytes_per_update,
        "closed_form_bytes_per_update": expected,
    }


def _pairs(
    name: str,
    costly: Callable[[], list[Row]],
    plain: Callable[[], list[Row]],
    pairs: int,
    report: Report | None,
    warm_up: float = WARM_UP,
) -> Row:
    """Return the median part of the updates per second that is missing, with an interval of confidence."""
    missing = []
    for number in range(pairs):
        if number % 2:
            beside, found = plain(), costly()
        else:
            found, beside = costly(), plain()
        missing.append(1 - rates_of(found, warm_up).updates_per_second / rates_of(beside, warm_up).updates_per_second)
        if report is not None:
            report({"overhead of": name, "pair": number + 1, "overhead": missing[-1]})
    return {**_told(missing), "pairs": pairs}


def _told(overheads: list[float]) -> Row:
    if not overheads:
        return dict.fromkeys(("median", "mean", "low", "high", "confidence"))
    low, high, confidence = interval(overheads)
    return {
        "median": median(overheads),
        "mean": fmean(overheads),
        "low": low,
        "high": high,
        "confidence": confidence,
    }
