"""Order statistics of independent, identical normals: the baseline without a model of who is slow."""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Final

import numpy as np

from psplatform.policies.run_times.censoring import draw_beyond
from psplatform.policies.run_times.predictor import (
    Choice,
    Observation,
    Predictor,
    Slots,
    Stream,
    Times,
    best_cutoff,
    random_stream,
)

ELFVING: Final = math.pi / 8
BLOM: Final = 3 / 8


def expected_order(mean: float, deviation: float, count: int, *, offset: float = ELFVING) -> Times:
    """Return the expected sorted run times of `count` workers, ``float64[count]``.

    E[x_(r)] ~ mu + sigma Phi^-1((r - a) / (n - 2 a + 1)) with a = pi / 8.

    Source: J. P. Royston, "Algorithm AS 177: expected normal order statistics", Applied Statistics 1982, after
    G. Elfving, "The asymptotical distribution of range in samples from a normal population", Biometrika 1947.

    Differences from Teng & Wood, who quote it as their equation 3: numerator and denominator are in their places, and
    the result is an expectation, not a density.

    Parameters
    ----------
    offset
        a: `ELFVING`, or `BLOM` for 3/8.
    """
    from scipy.special import ndtri  # noqa: PLC0415  only this predictor's runs pay for loading it

    ranks = np.arange(1, count + 1)
    return np.asarray(mean + deviation * ndtri((ranks - offset) / (count - 2 * offset + 1)), dtype=np.float64)


class Normal(Predictor):
    """Take every run time of the last rounds for a draw from one normal distribution.

    Times of workers that were cut off are drawn from that normal beyond the cutoff.

    Source: M. Teng, F. Wood, "Bayesian distributed stochastic gradient descent", NeurIPS 2018, the baseline "order".

    Differences from the paper: expected times are raised to the smallest ever observed.  The left tail of the normal
    comes close to 0, and for the paper's own mean and deviation 1 / E[x_(1)] is larger than any other rate.

    Parameters
    ----------
    seed
        Of the draws.
    window
        Rounds that mean and deviation are taken over.
    offset
        Of `expected_order`.
    floored
        Whether expected times are raised; without it only cutoffs of at least half the workers are considered.
    """

    full_rounds = 1

    def __init__(self, seed: int, *, window: int = 20, offset: float = ELFVING, floored: bool = True) -> None:
        self._seed = seed
        self._offset = offset
        self._floored = floored
        self._rounds: deque[Times] = deque(maxlen=window)
        self._smallest = math.inf
        self._round = 0

    def choose(self, slots: Slots) -> Choice:
        """Return the best cutoff for expected order statistics."""
        reason = "as order statistics of one normal say"
        if not self._rounds:
            return Choice(len(slots), "all: nothing was observed yet")
        expected = expected_order(*self._moments(), len(slots), offset=self._offset)
        if self._floored:
            return Choice(best_cutoff(expected, floor=self._smallest), reason)
        return Choice(best_cutoff(expected, least=(len(slots) + 1) // 2), reason)

    def observe(self, seen: Observation) -> None:
        """Add the round, completed, to the window."""
        times = self._complete(seen)
        if len(times):
            self._rounds.append(times)
            self._smallest = min(self._smallest, float(np.min(times)))
        self._round += 1

    def _complete(self, seen: Observation) -> Times:
        missing = int(np.count_nonzero(seen.censored))
        if not missing or not self._rounds:
            return seen.times[~seen.censored]
        mean, deviation = self._moments()
        shape, bounds = (1, missing), np.full(missing, seen.cutoff_time)
        random = random_stream(self._seed, Stream.IMPUTATION, self._round)
        # A deviation of 0 has no quantiles; a billionth of the mean is as good as none.
        least = max(deviation, 1e-9 * mean)
        drawn = draw_beyond(np.full(shape, mean), np.full(shape, least), bounds, random)
        return np.concatenate([seen.times[~seen.censored], drawn])

    def _moments(self) -> tuple[float, float]:
        times = np.concatenate(self._rounds)
        return float(np.mean(times)), float(np.std(times))

    def state(self) -> dict[str, Any]:
        """Return the window."""
        rounds = [times.tolist() for times in self._rounds]
        return {"round": self._round, "rounds": rounds, "smallest": self._smallest}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue with that window."""
        self._round, self._smallest = state["round"], state["smallest"]
        self._rounds = deque((np.array(times) for times in state["rounds"]), maxlen=self._rounds.maxlen)
