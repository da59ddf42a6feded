"""The barrier at which workers wait least: one predicted push per worker, as close together as can be.

Every function takes the predicted push times of n workers, ``float64[R]`` each and increasing (R >= 1, not necessarily
the same for all), and says which push of each is its last before the barrier.  `zipline` is exact; `gridscan` and
`fullgridscan` are the heuristics it is compared with.

Source: X. Zhao, M. Papagelis, A. An, B. X. Chen, J. Liu, Y. Hu, "Elastic bulk synchronous parallel model for
distributed deep learning", ICDM 2019, algorithms 1 and 2.

Differences from the paper
    * Algorithm 2 keeps the set of the workers' latest points and evaluates it point by point.  Here all points are
      evaluated at once: in the merged order a point is its worker's latest until the worker's next point comes, its
      successor; so the oldest latest point at position k is the first one whose successor comes after k.  A running
      maximum of the successors and a binary search give it for every k.  The result is the same, to the tie.
    * Algorithm 1 takes the points of a row one by one; here each other list is searched for all of them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Barrier:
    """Where the workers meet.

    Attributes
    ----------
    quotas
        ``int64[n]``: pushes of each worker until the barrier, at least 1; the last of them is its final one.
    spread
        Seconds between the first and the last final push (d* of the paper): what the first one to arrive waits.
    time
        Time of the last final push.
    """

    quotas: NDArray[np.int64]
    spread: float
    time: float


def zipline(points: Sequence[Times]) -> Barrier:
    """Return the barrier of least spread, the earliest of several; O(N log N) for N points.

    Simultaneous points count in the order of the workers.
    """
    lengths = np.array([len(one) for one in points])
    ends = np.cumsum(lengths)
    # A stable sort keeps simultaneous points in the order of the workers, because the lists follow each other.
    times = np.concatenate(points)
    order = np.argsort(times, kind="stable")
    times, total = times[order], len(order)
    position = np.empty(total, np.int64)
    position[order] = np.arange(total)
    successor = np.append(position[1:], total)
    successor[ends - 1] = total
    reach = np.maximum.accumulate(successor[order])
    # Before every worker has had a point there is nothing to evaluate.
    candidates = np.arange(position[ends - lengths].max(), total)
    spreads = times[candidates] - times[np.searchsorted(reach, candidates, side="right")]
    best = int(np.argmin(spreads))
    taken = np.repeat(np.arange(len(points)), lengths)[order[: candidates[best] + 1]]
    return Barrier(np.bincount(taken, minlength=len(points)), float(spreads[best]), float(times[candidates[best]]))


def gridscan(points: Sequence[Times]) -> Barrier:
    """Return the best barrier around a point of the worker whose first point is earliest; O(n R log R)."""
    designated = min(range(len(points)), key=lambda worker: (points[worker][0], worker))
    return _around(points, points[designated])


def fullgridscan(points: Sequence[Times]) -> Barrier:
    """Return the best barrier around a point of any worker: the work of `gridscan` n times."""
    return _around(points, np.sort(np.concatenate(points)))


def _around(points: Sequence[Times], centres: Times) -> Barrier:
    """Return the best barrier among those made of every list's point nearest to one of `centres`."""
    earliest, latest = centres.copy(), centres.copy()
    for one in points:
        chosen = one[_nearest(one, centres)]
        np.minimum(earliest, chosen, out=earliest)
        np.maximum(latest, chosen, out=latest)
    best = int(np.argmin(latest - earliest))
    quotas = np.array([int(_nearest(one, centres[best : best + 1])[0]) + 1 for one in points])
    return Barrier(quotas, float(latest[best] - earliest[best]), float(latest[best]))


def _nearest(times: Times, centres: Times) -> NDArray[np.int64]:
    """Return the index of the time nearest to each centre, the earlier of two."""
    middles = (times[1:] + times[:-1]) / 2
    return np.searchsorted(middles, centres)
