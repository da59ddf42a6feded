"""Run times of workers that were cut off: drawn from what was predicted, given that they are above the cutoff.

After a cutoff at x_(c) nothing is known of the others but that they took longer.  The run time of each is drawn once,
from the marginal that was predicted *for that worker in that round*, truncated to (x_(c), inf), and kept as if it had
been observed.  Leaving the others out, or taking x_(c) for their time, makes every round look faster than it was, and
the cutoff collapses.

Source: M. Teng, F. Wood, "Bayesian distributed stochastic gradient descent", NeurIPS 2018, section 3.3.

Differences from the paper: the far tail, where probabilities underflow, uses the normal's exponential tail.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from psplatform.policies.run_times.predictor import Times

# Below this chance of surviving the bound, quantiles of the normal lose all their digits.
_FAR_TAIL: Final = 1e-12


def draw_beyond(means: NDArray[Any], deviations: NDArray[Any], bounds: Times, random: Generator) -> Times:
    """Draw from each column's mixture of normals, truncated to (bound, inf).

    Parameters
    ----------
    means, deviations
        ``float[K, m]``: the K equally likely components of each of m marginals.
    bounds
        ``float64[m]``; minus infinity truncates nothing.

    Returns
    -------
    float64[m]
        Finite and never below the bounds.
    """
    from scipy.special import ndtr  # noqa: PLC0415  most runs need no quantiles, and scipy takes a while to load

    count = int(means.shape[1])
    picks = _pick(ndtr((means - bounds) / deviations), random.random(count))
    columns = np.arange(count)
    mean = np.asarray(means[picks, columns], dtype=np.float64)
    deviation = np.asarray(deviations[picks, columns], dtype=np.float64)
    return _truncated_normal(mean, deviation, bounds, random)


def _pick(weights: NDArray[Any], uniform: Times) -> NDArray[np.intp]:
    """Return a row for each column of ``weights[K, m]`` with chances in proportion to the weights."""
    cumulated = np.cumsum(weights, axis=0, dtype=np.float64)
    # A column that the bound has emptied takes any row: its draw comes from the tail anyway.
    totals = np.maximum(cumulated[-1], np.finfo(np.float64).tiny)
    rows: NDArray[np.intp] = np.sum(cumulated < uniform * totals, axis=0)
    return np.minimum(rows, len(weights) - 1)


def _truncated_normal(mean: Times, deviation: Times, bounds: Times, random: Generator) -> Times:
    """Draw x = mu + sd * Phi^-1(1 - u (1 - Phi((b - mu) / sd))), or b + sd^2 / max(b - mu, sd) * Exp(1) far out."""
    from scipy.special import ndtr, ndtri  # noqa: PLC0415  as above

    uniform, exponential = random.random(len(mean)), random.exponential(size=len(mean))
    survival = ndtr((mean - bounds) / deviation)
    # 1 - u lies in (0, 1], so that no quantile is infinite; -Phi^-1(p) is Phi^-1(1 - p) without its loss of digits.
    near = mean - deviation * ndtri((1.0 - uniform) * np.maximum(survival, _FAR_TAIL))
    far = bounds + deviation**2 / np.maximum(bounds - mean, deviation) * exponential
    return np.maximum(np.where(survival < _FAR_TAIL, far, near), bounds)
