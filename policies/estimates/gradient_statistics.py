"""What the norms of the gradients of past rounds tell of the true gradient: the V and N of DBW."""

from __future__ import annotations

from collections import deque
from statistics import fmean
from typing import Any


def variance_of(count: int, sum_of_squares: float, mean_squared: float) -> float:
    """Return V+, the unbiased estimate of the variance of one worker's gradient, summed over coordinates.

    It is 1 / (k - 1) sum |g_i - g|^2 = (sum |g_i|^2 - k |g|^2) / (k - 1) for k = `count` >= 2 gradients g_i with mean
    g: two numbers per round instead of k vectors.  Where rounding makes the difference negative it is 0.
    """
    return max((sum_of_squares - count * mean_squared) / (count - 1), 0.0)


def squared_norm_of(count: int, mean_squared: float, variance: float) -> float:
    """Return |g|^2 - V / k, the unbiased estimate of the squared norm of the true gradient; it can be negative."""
    return mean_squared - variance / count


def gain_of(count: int, squared_norm: float, variance: float, curvature: float = 1.0) -> float:
    """Return the expected decrease of the loss by a step along the mean of `count` gradients, divided by eta.

    It is (1 - L eta / 2) N - (L eta / 2) V / k, eq. (8), a lower bound for a loss whose gradient is L-Lipschitz.  With
    L eta = `curvature` = 1 it is 1/2 (N - V / k), eq. (12).
    """
    noise = curvature / 2.0
    return (1.0 - noise) * squared_norm - noise * variance / count


class GradientStatistics:
    """Moving averages of the variance V of a worker's gradient and of the squared norm N of the true gradient.

    Parameters
    ----------
    window
        The D of the paper: rounds that are averaged over.

    Attributes
    ----------
    rounds_since_variance
        Rounds of a single gradient since the last one that told anything of the variance.

    Notes
    -----
    C. Xu, G. Neglia, N. Sebastianelli, "Dynamic backup workers for parallel machine learning", 2020, eq. (10), (11).

    *Differences from the paper*: inside the sum of (11) the index is that of the past round, not of the present one as
    printed.  A round of one gradient tells nothing of the variance: it adds no V, and its N takes the average V, so
    that V covers the last D rounds of at least two.

    Each round's N is clipped at 0, as in the paper, which biases the average upwards where the gradient vanishes.
    """

    def __init__(self, window: int) -> None:
        self._variances: deque[float] = deque(maxlen=window)
        self._squared_norms: deque[float] = deque(maxlen=window)
        self.rounds_since_variance = 0

    def add(self, count: int, sum_of_squares: float, mean_squared: float) -> None:
        """Add a round of `count` gradients, the sum of their squared norms, and the squared norm of their mean."""
        if count >= 2:
            variance = variance_of(count, sum_of_squares, mean_squared)
            self._variances.append(variance)
            self.rounds_since_variance = 0
        elif self._variances:
            variance = self.variance
            self.rounds_since_variance += 1
        else:
            return
        self._squared_norms.append(max(squared_norm_of(count, mean_squared, variance), 0.0))

    @property
    def known(self) -> bool:
        """Whether any round of at least two gradients was seen."""
        return bool(self._variances)

    @property
    def variance(self) -> float:
        """V, eq. (10)."""
        return fmean(self._variances)

    @property
    def squared_norm(self) -> float:
        """N, eq. (11)."""
        return fmean(self._squared_norms)

    def state(self) -> dict[str, Any]:
        """Return what was learned as plain values."""
        return {
            "variances": list(self._variances),
            "squared_norms": list(self._squared_norms),
            "rounds_since_variance": self.rounds_since_variance,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        self._variances.extend(state["variances"])
        self._squared_norms.extend(state["squared_norms"])
        self.rounds_since_variance = state["rounds_since_variance"]
