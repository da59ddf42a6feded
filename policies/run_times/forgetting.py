"""A mean and a variance per worker, with exponential forgetting, and one factor that all workers share."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from psplatform.policies.run_times.censoring import draw_beyond
from psplatform.policies.run_times.predictor import (
    RATIO_OF_MEANS,
    Choice,
    Observation,
    Predictor,
    Slots,
    Stream,
    Times,
    cutoff_of_samples,
    random_stream,
)

# Share of a worker's estimates that a new run time replaces: ten rounds are remembered.
_FORGOTTEN: Final = 0.1
# The shared factor moves faster: it is the mean of many times, and a disturbance of all is over sooner.
_FACTOR_FORGOTTEN: Final = 0.3
# Relative to the mean: a deviation of exactly 0 has no quantiles.
_LEAST_DEVIATION: Final = 1e-9


class Forgetting(Predictor):
    """Predict worker w's run time as f (m_w + s_w e): f shared, m_w and s_w its own, e a standard normal.

    m_w and s_w are running moments of the times divided by f; f follows the mean ratio of times to m_w.  Times of
    workers that were cut off are drawn from their own prediction beyond the cutoff and learned from like others.  A
    worker nothing is known of is taken for the average one.

    It needs no fitting, costs O(K n log n) per round and follows any roster.  It does not see that workers of one node
    slow down together, nor what a change of many at once means.

    Parameters
    ----------
    seed, samples, score
        Of the draws; K, how many rounds are drawn to find the expected order statistics; see `cutoff_of_samples`.
    """

    full_rounds = 3

    def __init__(self, seed: int, *, samples: int = 64, score: str = RATIO_OF_MEANS) -> None:
        self._seed, self._samples, self._score = seed, samples, score
        self._means: Times = np.zeros(0)
        self._variances: Times = np.zeros(0)
        self._counts: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._factor = 1.0
        self._smallest = math.inf
        self._round = 0

    def choose(self, slots: Slots) -> Choice:
        """Return the best cutoff over samples of the coming round."""
        if not self.ready:
            return Choice(len(slots), "all: nothing was observed yet")
        means, deviations = self.marginals(slots)
        random = random_stream(self._seed, Stream.SAMPLES, self._round)
        samples = means + deviations * random.standard_normal((self._samples, len(slots)))
        cutoff = cutoff_of_samples(samples, floor=self._smallest, score=self._score)
        return Choice(cutoff, "as each worker's last run times say")

    @property
    def ready(self) -> bool:
        """Whether anything is known of any worker."""
        return bool(np.any(self._counts))

    def marginals(self, slots: Slots) -> tuple[Times, Times]:
        """Return mean and deviation of the coming run time of each of `slots`, ``float64[n]`` each."""
        self._grow(slots)
        known = self._counts > 0
        mean, variance = float(np.mean(self._means[known])), float(np.mean(self._variances[known]))
        counts = self._counts[slots]
        # The average variance weighs as much as one time: a variance of two or three times is none to rely on.
        variances = (counts * self._variances[slots] + variance) / (counts + 1)
        # Of the average worker, only the spread between workers is known as well.
        variances = np.where(counts > 0, variances, variance + float(np.var(self._means[known])))
        means = np.where(counts > 0, self._means[slots], mean)
        return self._factor * means, np.maximum(self._factor * np.sqrt(variances), _LEAST_DEVIATION * mean)

    def observe(self, seen: Observation) -> None:
        """Move the estimates of those who took part."""
        self._grow(seen.slots)
        slots, times = self._complete(seen)
        if len(slots):
            self._smallest = min(self._smallest, float(np.min(times)))
            self._follow_factor(slots, times)
            self._follow_workers(slots, times / self._factor)
        self._round += 1

    def _complete(self, seen: Observation) -> tuple[Slots, Times]:
        if not self.ready:
            return seen.slots[~seen.censored], seen.times[~seen.censored]
        times, missing = seen.times.copy(), seen.censored
        means, deviations = self.marginals(seen.slots[missing])
        bounds = np.full(len(means), seen.cutoff_time)
        random = random_stream(self._seed, Stream.IMPUTATION, self._round)
        times[missing] = draw_beyond(means[None], deviations[None], bounds, random)
        return seen.slots, times

    def _follow_factor(self, slots: Slots, times: Times) -> None:
        known = self._counts[slots] > 0
        # Of one worker alone, what all share cannot be told from what is its own.
        if np.count_nonzero(known) > 1:
            expected = float(np.sum(self._means[slots[known]]))
            ratio = float(np.sum(times[known])) / expected if expected > 0 else 1.0
            self._factor += _FACTOR_FORGOTTEN * (ratio - self._factor)

    def _follow_workers(self, slots: Slots, times: Times) -> None:
        self._counts[slots] += 1
        # A plain average at first, until it remembers as long as the forgetting does.
        share = np.maximum(1.0 / self._counts[slots], _FORGOTTEN)
        surprise = times - self._means[slots]
        surprise_seen = np.where(self._counts[slots] > 1, surprise, 0.0)
        self._variances[slots] = (1 - share) * (self._variances[slots] + share * surprise_seen**2)
        self._means[slots] += share * surprise

    def _grow(self, slots: Slots) -> None:
        missing = int(np.max(slots, initial=-1)) + 1 - len(self._counts)
        if missing > 0:
            self._means = np.pad(self._means, (0, missing))
            self._variances = np.pad(self._variances, (0, missing))
            self._counts = np.pad(self._counts, (0, missing))

    def welcome(self, slot: int) -> None:
        """Take the newcomer for the average worker until it has shown itself."""
        if slot < len(self._counts) and np.count_nonzero(self._counts) > 1:
            self._means[slot] = self._variances[slot] = self._counts[slot] = 0

    def state(self) -> dict[str, Any]:
        """Return the estimates."""
        return {
            "round": self._round,
            "factor": self._factor,
            "smallest": self._smallest,
            "means": self._means.tolist(),
            "variances": self._variances.tolist(),
            "counts": self._counts.tolist(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue with those estimates."""
        self._round, self._factor, self._smallest = state["round"], state["factor"], state["smallest"]
        self._means, self._variances = np.array(state["means"]), np.array(state["variances"])
        self._counts = np.array(state["counts"], dtype=np.int64)
