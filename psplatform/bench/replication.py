"""What replicas and checkpoints cost: updates per second beside a run without, and the bytes that replicas are sent.

Runs follow each other on one cluster.  Of each, only the middle counts, from the log: neither start nor end.  The two
claims are measured in pairs, with and without, whose order alternates: what the machine does besides, it does to both.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final

from psplatform.bench.dense import Dense, Effort, seconds_of, task_of
from psplatform.core.plan import Stop
from psplatform.errors import ClusterError
from psplatform.jobs.checkpoints import Checkpoints
from psplatform.jobs.job import Job
from psplatform.jobs.optimizers import SGD
from psplatform.jobs.replication import Bounded, Chain, NoReplication, Replication
from psplatform.runtime.embedded import end_cluster, start_cluster
from psplatform.runtime.launch import train
from psplatform.telemetry.reader import LogReader

Row = dict[str, Any]
Report = Callable[[Row], None]

WORKERS: Final = 2
PROCESSES: Final = WORKERS + 2
BOUNDS: Final = (2, 8, 20, 50)
CLAIMED_BOUND: Final = 20
NORM_STEPS: Final = 20
"""Mean updates in the bound that is given as a distance."""

CHECKPOINT_S: Final = 10.0
SLOTS: Final = 1
"""State vectors of the optimiser: its momentum."""

_WARM_UP: Final = 1 / 3
"""Part of a run that is not counted: a standby is made then, and the first transfers touch fresh memory."""

_PERIODS: Final = 1.25
"""How long runs with checkpoints go on, in periods from one of them to the next: runs differ among each other by more
than the parts of one, so that many short ones tell more than few long ones."""

_PERIODS_WARM_UP: Final = 1 / 5
"""The part of such a run that is not counted: what is left is one period, in which the first checkpoint is written."""

_TRANSFERS: Final = 3
"""How many there shall be at least in what is counted of a run whose bytes are told."""

_END_S: Final = 120.0
_CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Rates:
    """What is counted of one run: updates per second, bytes, mean norm of an update if known, complete checkpoints."""

    updates_per_second: float
    bytes_per_update: float
    step: float | None
    checkpoints: int


@dataclass(frozen=True, slots=True)
class Course:
    """What all runs have in common."""

    client: Any
    task: Dense
    seconds: float

    def run(
        self,
        replication: Replication,
        checkpoints: Checkpoints | None = None,
        seconds: float = 0.0,
        warm_up: float = _WARM_UP,
    ) -> Rates:
        """Train for a while; return what the log tells of it."""
        with tempfile.TemporaryDirectory() as folder:
            store = str(Path(folder) / "run.zarr")
            job = Job(
                task=self.task,
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
        return rates_of(records, warm_up)


def rates_of(records: list[Row], warm_up: float = _WARM_UP) -> Rates:
    """Return what a run's log tells, that part at the run's beginning left out."""
    applied = [record for record in records if record["kind"] == "applied"]
    if not applied:
        raise ClusterError("a run made no update in its time: give each run more seconds")
    begins_at = applied[0]["at"] + warm_up * (applied[-1]["at"] - applied[0]["at"])
    counted = [record for record in applied if record["at"] >= begins_at]
    first, last = counted[0], counted[-1]
    updates = last["version"] - first["version"]
    steps = [record["divergence"] / record["lag"] for record in counted if record.get("lag")]
    seconds = last["at"] - first["at"]
    return Rates(
        updates_per_second=updates / seconds if seconds else math.nan,
        bytes_per_update=_bytes_per_update(counted),
        step=sum(steps) / len(steps) if steps else None,
        checkpoints=sum(_is_complete(record) and begins_at <= record["at"] <= last["at"] for record in records),
    )


def _is_complete(record: Row) -> bool:
    return bool(record["kind"] == "checkpoint" and record["event"] == "complete")


def _bytes_per_update(applied: list[Row]) -> float:
    """Return it from one transfer to another, if there are two: from anywhere else it would depend on how many fit."""
    sent = [(record["version"], record.get("to_replica_bytes", 0)) for record in applied]
    begun = [now for before, now in pairwise(sent) if now[1] > before[1]]
    (first, before), (last, then) = (begun[0], begun[-1]) if len(begun) > 1 else (sent[0], sent[-1])
    return (then - before) / (last - first) if last > first else math.nan


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
        Of each claim.
    seconds
        Of each run at least: those with large bounds go on for three transfers, those with checkpoints for one of them.
    gradient_s, effort
        What a gradient takes at least, and how: a wait leaves cores idle, which a server then has for itself.

    Returns
    -------
    dict
        ``results, overhead, gradient``; the overhead is the part of the updates per second that is missing.  A
        gradient's `core_seconds` is how long it keeps a core busy that nobody else uses.
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
    checkpoints, long = Checkpoints(every_seconds=checkpoint_s), (_PERIODS * checkpoint_s, _PERIODS_WARM_UP)

    def run(replication: Replication) -> Callable[[], Rates]:
        return lambda: course.run(replication)

    def run_long(written: Checkpoints | None) -> Callable[[], Rates]:
        return lambda: course.run(bounded, written, *long)

    return {
        "bounded": _pairs("bounded", run(bounded), run(NoReplication()), pairs, report),
        "checkpoint": _pairs("checkpoint", run_long(checkpoints), run_long(None), pairs, report),
    }


def _modes(course: Course, report: Report | None) -> list[Row]:
    beside: list[Rates] = []

    def run(replication: Replication, bound: float = 0.0) -> Rates:
        # A single run without would be a poor measure for all the others: they are compared with the median of these.
        beside.append(course.run(NoReplication()))
        found = course.run(replication, seconds=_seconds_for(bound, beside[-1]))
        if report is not None:
            report({"run": len(beside), "updates_per_second": found.updates_per_second})
        return found

    rows = [*_from_servers(course.task, run), *_from_workers(course.task, run)]
    alone = median(each.updates_per_second for each in beside)
    rows.insert(0, _row("none", None, None, replace(beside[0], updates_per_second=alone), 0.0))
    for row in rows:
        row["relative"] = row["updates_per_second"] / alone
    return rows


def _from_servers(task: Dense, run: Callable[..., Rates]) -> list[Row]:
    """Return the rows of replicas that get states and updates from their servers, and of one in the store."""
    rows = [_row("chain", 0, "updates", run(Chain()), _vectors(task, 1))]
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


def _from_workers(task: Dense, run: Callable[..., Rates]) -> list[Row]:
    """Return the rows of replicas that take every gradient of every update from the workers."""
    bounded = Bounded(max_divergence=CLAIMED_BOUND, unit="updates", source="workers")
    rows = [
        _row("chain", 0, "updates", run(Chain(source="workers")), _vectors(task, WORKERS)),
        _row("bounded", CLAIMED_BOUND, "updates", run(bounded), _vectors(task, WORKERS)),
    ]
    return [{**row, "source": "workers"} for row in rows]


def _seconds_for(bound: float, alone: Rates) -> float:
    return _TRANSFERS * bound / alone.updates_per_second / (1 - _WARM_UP)


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
    name: str, costly: Callable[[], Rates], plain: Callable[[], Rates], pairs: int, report: Report | None
) -> Row:
    """Return the median part of the updates per second that is missing, with an interval of confidence."""
    missing, checkpoints = [], 0
    for number in range(pairs):
        if number % 2:
            beside, found = plain(), costly()
        else:
            found, beside = costly(), plain()
        checkpoints += found.checkpoints
        missing.append(1 - found.updates_per_second / beside.updates_per_second)
        if report is not None:
            report({"overhead of": name, "pair": number + 1, "overhead": missing[-1]})
    low, high, confidence = interval(missing)
    told = {"median": median(missing), "low": low, "high": high, "confidence": confidence}
    return {**told, "pairs": pairs, "checkpoints": checkpoints}


def interval(values: list[float]) -> tuple[float, float, float]:
    """Return an interval that holds the median of what `values` are drawn from, and how sure that is.

    Its ends are order statistics: the narrowest symmetric pair that is sure enough, or the extremes if none is.
    Source: W. Conover, "Practical nonparametric statistics", 1999, section 3.2.
    """
    ordered, count = sorted(values), len(values)

    def confidence(rank: int) -> float:
        return 1 - sum(math.comb(count, below) for below in range(rank + 1)) * 2.0 ** (1 - count)

    rank = 0
    while rank + 1 < count // 2 and confidence(rank + 1) >= _CONFIDENCE:
        rank += 1
    return ordered[rank], ordered[count - 1 - rank], max(0.0, confidence(rank))
