"""How long the searches for a barrier take, beside the figures their authors published.

Source of the sizes, the instances and the published figures: X. Zhao et al., "Elastic bulk synchronous parallel model
for distributed deep learning", ICDM 2019, table II (C++, one core of a Xeon E5-2620 v3, mean of 10), and the public
code of its authors.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from psplatform.policies.elastic import predicted_pushes
from psplatform.policies.zipline import Barrier, Times, fullgridscan, gridscan, zipline

Row = dict[str, Any]

ALGORITHMS: dict[str, Callable[[Sequence[Times]], Barrier]] = {
    "zipline": zipline,
    "gridscan": gridscan,
    "fullgridscan": fullgridscan,
}
PUBLISHED_SECONDS = {
    "zipline": {(10, 15): 149e-6, (10, 150): 1.32e-3, (100, 15): 6.37e-3, (100, 150): 4.99e-2}
    | {(1000, 15): 0.253, (1000, 150): 2.38},
    "gridscan": {(10, 15): 168e-6, (10, 150): 5.50e-3, (100, 15): 1.11e-3, (100, 150): 4.38e-2}
    | {(1000, 15): 7.45e-3, (1000, 150): 0.257},
    "fullgridscan": {(10, 15): 1.54e-3, (10, 150): 4.67e-2, (100, 15): 8.13e-2, (100, 150): 2.15}
    | {(1000, 15): 4.04, (1000, 150): 207.0},
}
"""By algorithm and (workers, lookahead)."""
REPEATS = 10
ENOUGH_S = 3.0
"""A cell is not repeated any more once it took this long: its mean is then sure enough, and nobody likes to wait."""
PAST_PUSHES = 20
INTERVALS_MS = (1000, 1500)


def measure(report: Callable[[Row], None] | None = None) -> list[Row]:
    """Return one row per algorithm and size: its mean time, whether it found the best barrier, the published time.

    Parameters
    ----------
    report
        Called with each row as soon as it is known.

    Returns
    -------
    list of dict
        ``algorithm, workers, lookahead, seconds, exact, published_seconds``.
    """
    rows = []
    for algorithm, published in PUBLISHED_SECONDS.items():
        for (workers, lookahead), published_seconds in published.items():
            points = instance(workers, lookahead)
            seconds, found = _timed(ALGORITHMS[algorithm], points)
            row: Row = {
                "algorithm": algorithm,
                "workers": workers,
                "lookahead": lookahead,
                "seconds": seconds,
                "exact": found.spread == one_by_one(points).spread,
                "published_seconds": published_seconds,
            }
            rows.append(row)
            if report is not None:
                report(row)
    return rows


def instance(
    workers: int, lookahead: int, *, seed: int = 0, intervals_ms: tuple[int, int] = INTERVALS_MS
) -> list[Times]:
    """Return predicted pushes as the authors draw them, in milliseconds: `workers` arrays ``float64[lookahead]``.

    Each worker pushes at a constant interval, an integer drawn uniformly from `intervals_ms`, ends included, after an
    offset of less than one millisecond per worker.  All push `PAST_PUSHES` times, and on until the time of the latest
    of these; what comes then is predicted.
    """
    rng = np.random.default_rng(seed)
    intervals = rng.integers(intervals_ms[0], intervals_ms[1] + 1, workers)
    offsets = rng.integers(0, workers, workers)
    now = (offsets + PAST_PUSHES * intervals).max()
    last = now - (now - offsets) % intervals
    drawn = zip(last.tolist(), intervals.tolist(), strict=True)
    return [predicted_pushes(pushed_at, interval, float(now), lookahead) for pushed_at, interval in drawn]


def one_by_one(points: Sequence[Times]) -> Barrier:
    """Return what `zipline` returns, found point after point: the independent reference.

    The latest points of all workers are kept in the order of their arrival, so that the oldest is at the head.
    """
    merged = sorted((float(one), worker) for worker, times in enumerate(points) for one in times)
    latest: OrderedDict[int, float] = OrderedDict()
    spread, position = float("inf"), -1
    for number, (now, worker) in enumerate(merged):
        latest[worker] = now
        latest.move_to_end(worker)
        oldest = next(iter(latest.values()))
        if len(latest) == len(points) and now - oldest < spread:
            spread, position = now - oldest, number
    quotas = np.zeros(len(points), np.int64)
    for _, worker in merged[: position + 1]:
        quotas[worker] += 1
    return Barrier(quotas, spread, merged[position][0])


def _timed(search: Callable[[Sequence[Times]], Barrier], points: Sequence[Times]) -> tuple[float, Barrier]:
    """Return the mean time of a search, and what it found."""
    taken: list[float] = []
    found = None
    while found is None or (len(taken) < REPEATS and sum(taken) < ENOUGH_S):
        began = time.perf_counter()
        found = search(points)
        taken.append(time.perf_counter() - began)
    return fmean(taken), found
