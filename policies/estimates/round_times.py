"""How long a round takes until its k-th gradient, given how many the round before waited for: the T(h, k) of DBW."""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

Table = NDArray[np.float64]
Mask = NDArray[np.bool_]

ESTIMATORS: Final = ("monotone", "means", "ignore-previous")

_SWEEPS = 100
"""Alternating projections at most; a search that ends here goes on from there at the next estimate."""

_TOLERANCE = 1e-6
"""Relative distance between the projections on rows and on columns at which both are taken for the solution."""


def monotone_table(means: Table, counts: Table, forces: Table | None = None) -> tuple[Table, Table]:
    """Return the table nearest to `means` that grows along its rows and falls along its columns.

    It minimises sum c[h, k] (x[h, k] - means[h, k])^2 subject to x[h, k] <= x[h, k + 1] and x[h + 1, k] <= x[h, k],
    by Dykstra's alternating projections, each an isotonic regression of every row, or of every column.  They ascend
    the dual problem, so any forces of an earlier table are a valid start, whatever its means and counts were.

    Parameters
    ----------
    means, counts
        ``float64[n, n]``: mean and number c of the samples of each cell.  Cells without samples are left out, which
        keeps all constraints between the others as long as every row has samples in its first cells or in none.
    forces
        The second value returned for an earlier table: where to start, which changes the effort and, once the search
        has converged, not the result.

    Returns
    -------
    tuple
        The table, and the forces by which the column constraints hold its cells: ``float64[n, n]`` each.

    Notes
    -----
    J. P. Boyle, R. L. Dykstra, "A method for finding projections onto the intersection of convex sets", 1986.
    """
    sampled = counts > 0
    if not sampled.any():
        return means.copy(), np.zeros_like(means)
    weights = np.where(sampled, counts, 1.0)
    by_columns = np.zeros_like(weights) if forces is None else forces / weights
    enough = _TOLERANCE * float(np.abs(means[sampled]).max())
    for _ in range(_SWEEPS):
        rising = _rising_rows(means - by_columns, counts)
        by_rows = means - by_columns - rising
        table = -_rising_rows((by_rows - means).T, counts.T).T
        by_columns = np.where(sampled, means - by_rows - table, 0.0)
        if float(np.abs(table - rising)[sampled].max()) <= enough:
            break
    return table, by_columns * weights


def fill_gaps(table: Table, sampled: Mask) -> Table:
    """Return the table with each cell that has no samples set to the least that the sampled ones allow.

    That is the largest sampled value at h' >= h, k' <= k; where there is none, the smallest at h' <= h, k' >= k, the
    most they allow; where there is none either, the smallest of all, and 1 in a table without samples.  Optimism makes
    a policy try what it does not know.
    """
    low = np.where(sampled, table, -np.inf)
    low = np.maximum.accumulate(np.maximum.accumulate(low[::-1], axis=0)[::-1], axis=1)
    high = np.where(sampled, table, np.inf)
    high = np.minimum.accumulate(np.minimum.accumulate(high, axis=0)[:, ::-1], axis=1)[:, ::-1]
    least = float(table[sampled].min()) if sampled.any() else 1.0
    filled = np.where(np.isfinite(low), low, np.where(np.isfinite(high), high, least))
    return np.where(sampled, table, filled)


def _rising_rows(values: Table, weights: Table) -> Table:
    """Return the nearest table whose rows do not fall; cells of weight 0 are passed over and keep their value."""
    risen, sampled = values.copy(), weights > 0
    for row in np.flatnonzero(sampled.sum(axis=1) > 1):
        there = sampled[row]
        line = risen[row, there]
        if (np.diff(line) < 0).any():
            risen[row, there] = isotonic_regression(line, weights=weights[row, there]).x
    return risen


class RoundTimes:
    """Samples of T(h, k) with `workers` live workers, and the estimate that fits them.

    Parameters
    ----------
    workers
        The n of the table: 1 <= h, k <= n.
    window
        Samples kept per cell, the newest; ``None`` keeps all.
    estimator
        ``monotone`` fits a table that obeys both monotonicities, ``means`` takes the mean of each cell, and
        ``ignore-previous`` the mean over all h.  All of them fill the cells without samples by `fill_gaps`.

    Notes
    -----
    C. Xu, G. Neglia, N. Sebastianelli, "Dynamic backup workers for parallel machine learning", 2020, define T(h, k).

    *Differences from the paper*: how it is estimated there was not at hand.  Least squares under the monotonicities
    (more gradients take longer; the longer the last round waited, the more workers start this one at once), the
    window and the optimistic filling are reconstructions.
    """

    def __init__(self, workers: int, window: int | None = 1000, estimator: str = "monotone") -> None:
        self._workers, self._window, self._estimator = workers, window, estimator
        self._samples: dict[tuple[int, int], deque[float]] = {}
        self._changed: set[tuple[int, int]] = set()
        self._means, self._counts = np.zeros((workers, workers)), np.zeros((workers, workers))
        self._forces = np.zeros((workers, workers))

    def add(self, before: int, rank: int, seconds: float) -> None:
        """Add that after a round of `before` gradients the `rank`-th one came `seconds` into the round.

        The samples of one round are added in the order of their ranks, from the first.
        """
        row = self._workers if self._estimator == "ignore-previous" else before
        self._samples.setdefault((row, rank), deque(maxlen=self._window)).append(seconds)
        self._changed.add((row, rank))

    @property
    def known(self) -> bool:
        """Whether there is any sample."""
        return bool(self._samples)

    def estimate(self, before: int) -> list[float]:
        """Return T(before, k) for k = 1 .. n, seconds."""
        self._update_means()
        table = self._means
        if self._estimator == "monotone":
            table, self._forces = monotone_table(self._means, self._counts, self._forces)
        row = self._workers if self._estimator == "ignore-previous" else before
        times: list[float] = fill_gaps(table, self._counts > 0)[row - 1].tolist()
        return times

    def state(self) -> dict[str, Any]:
        """Return all samples, and the forces from which the next estimate starts, as plain values."""
        samples = [[row, rank, list(kept)] for (row, rank), kept in sorted(self._samples.items())]
        return {"samples": samples, "forces": self._forces.tolist()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what `state` returned: the next estimate is the same, bit for bit."""
        self._samples = {(row, rank): deque(kept, self._window) for row, rank, kept in state["samples"]}
        self._changed = set(self._samples)
        self._forces = np.array(state["forces"], dtype=np.float64)

    def _update_means(self) -> None:
        # A correctly rounded sum of what is kept: no error piles up as old samples go, and `restore` adds none.
        for row, rank in self._changed:
            kept = self._samples[row, rank]
            self._counts[row - 1, rank - 1] = len(kept)
            self._means[row - 1, rank - 1] = math.fsum(kept) / len(kept)
        self._changed.clear()
