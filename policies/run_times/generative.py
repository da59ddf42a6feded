"""The learned predictor: a deep state-space model of all workers' run times, seen through a sliding window."""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from psplatform.policies.run_times.censoring import draw_beyond
from psplatform.policies.run_times.fitted_model import FittedModel
from psplatform.policies.run_times.forgetting import Forgetting
from psplatform.policies.run_times.learning import Learning
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
from psplatform.policies.run_times.state_space import Shape, predict

# With fewer of its workers than this share, the model would mostly listen to what it has itself filled in.
_FEWEST: Final = 0.5

# In units of twice the mean: longer run times look the same to the model, whose networks no fit has tried beyond.
_LONGEST: Final = 10.0

Components = tuple[NDArray[Any], NDArray[Any]]


class Generative(Predictor):
    """Draw the coming round K times from the model, given the last rounds; take the best cutoff for the mean order.

    ::

        for m = 1..K: z_T ~ q(. | window), z_{T+1} ~ transition, x^(m) ~ emission
        c = argmax_j j / mean_m x^(m)_(j)

    A run time that is not known is drawn once, from this round's predictive marginal for that worker, and stays in the
    window as if observed: beyond x_(c) where the worker was cut off, anywhere where it was missing.

    Columns of the model are slots.  While a live worker's slot has no column, fewer than half of the columns are
    alive, or the first window is not full, `Forgetting`, which observes every round as well, chooses instead; the
    first choice of it says why.

    Source: M. Teng, F. Wood, "Bayesian distributed stochastic gradient descent", NeurIPS 2018, sections 3.2 and 3.3.

    Differences from the paper: predicted times are raised to the smallest ever observed; run times are divided by
    twice the mean of *this run's* first window, so that a model serves runs whose gradients cost more or less than
    those it was fitted on; longer ones than twenty means look like those; without a fitted model one is learned during
    the run (`Learning`).  The paper does not name K.

    Parameters
    ----------
    columns
        Workers of the job.
    seed, samples, score
        Of the draws; K; see `cutoff_of_samples`.
    model
        What was fitted, for as many workers, or ``None`` to learn during the run.
    """

    def __init__(
        self,
        columns: int,
        seed: int,
        *,
        model: FittedModel | None = None,
        samples: int = 64,
        score: str = RATIO_OF_MEANS,
    ) -> None:
        self._shape = model.shape if model is not None else Shape(columns)
        self._learning = Learning(self._shape, seed) if model is None else None
        self._model = model
        self._seed, self._samples, self._score = seed, samples, score
        self._fallback = Forgetting(seed, samples=samples, score=score)
        self._window: deque[NDArray[np.float32]] = deque(maxlen=self._shape.window)
        self._scale: float | None = None
        self._smallest = math.inf
        self._round = 0
        self._components: Components | None = None
        self._said: str | None = None
        self.full_rounds = self._shape.window * (2 if model is None else 1)

    def choose(self, slots: Slots) -> Choice:
        """Return the best cutoff over samples of the coming round."""
        obstacle = self._obstacle(slots)
        if obstacle is not None:
            return self._choose_without_model(slots, obstacle)
        self._said = None
        means, deviations = (one[:, slots] for one in self._predictive())
        random = random_stream(self._seed, Stream.SAMPLES, self._round)
        samples = means + deviations * random.standard_normal(means.shape, dtype=np.float32)
        cutoff = cutoff_of_samples(samples, floor=self._smallest / (self._scale or 1.0), score=self._score)
        return Choice(cutoff, "as the generative model predicts")

    def _obstacle(self, slots: Slots) -> str | None:
        n = self._shape.workers
        if slots[-1] >= n:
            return f"worker {slots[-1]} has no column in the model of {n} workers; fit one for more"
        if len(slots) < _FEWEST * n:
            return f"only {len(slots)} of the model's {n} workers are alive"
        if self._model is None:
            return "no model is learned yet"
        return None if self._ready else "the model has not seen its first window"

    @property
    def _ready(self) -> bool:
        return self._model is not None and self._scale is not None

    def _choose_without_model(self, slots: Slots, obstacle: str) -> Choice:
        choice = self._fallback.choose(slots)
        news = "" if obstacle == self._said else f" ({obstacle})"
        self._said = obstacle
        return Choice(choice.cutoff, choice.reason + news)

    def _predictive(self) -> Components:
        """Return the K components of the coming round for all columns, in scaled time; computed once a round."""
        if self._components is None:
            if self._model is None or self._scale is None:
                raise RuntimeError("there is no prediction before the first window is full")
            window = np.minimum(np.array(self._window) / np.float32(self._scale), np.float32(_LONGEST))
            random = random_stream(self._seed, Stream.STATES, self._round)
            self._components = predict(self._model.weights, self._shape, window, self._samples, random)
        return self._components

    def observe(self, seen: Observation) -> None:
        """Add the round, completed, to the window."""
        row = self._complete(seen)
        self._fallback.observe(seen)
        if row is not None:
            self._window.append(row.astype(np.float32))
            self._smallest = min(self._smallest, float(np.min(row)))
            self._begin_or_learn()
        self._components = None
        self._round += 1

    def _begin_or_learn(self) -> None:
        if len(self._window) < self._shape.window:
            return
        if self._scale is None:
            self._scale = 2.0 * float(np.mean(self._window)) or 1.0
        if self._learning is not None:
            rounds = self._window if self._learning.is_empty else [self._window[-1]]
            self._learning.observe([np.minimum(row / np.float32(self._scale), _LONGEST) for row in rounds])
            self._model = self._learning.model

    def _complete(self, seen: Observation) -> Times | None:
        """Return the run times of all columns, what is not known drawn from this round's prediction."""
        n = self._shape.workers
        row, bounds = np.full(n, np.nan), np.full(n, -np.inf)
        mine = seen.slots < n
        slots, times, censored = seen.slots[mine], seen.times[mine], seen.censored[mine]
        row[slots[~censored]] = times[~censored]
        bounds[slots[censored]] = seen.cutoff_time
        missing = np.flatnonzero(np.isnan(row))
        if len(missing) == n:
            return None
        if len(missing):
            row[missing] = self._fill(missing, bounds[missing], row)
        return row

    def _fill(self, missing: Slots, bounds: Times, row: Times) -> Times:
        random = random_stream(self._seed, Stream.IMPUTATION, self._round)
        if self._ready:
            means, deviations = (self._scale * one[:, missing] for one in self._predictive())
        elif self._fallback.ready:
            means, deviations = (one[None] for one in self._fallback.marginals(missing))
        else:
            mean = float(np.nanmean(row))
            means, deviations = np.full((1, len(missing)), mean), np.full((1, len(missing)), 1e-3 * mean)
        return np.maximum(draw_beyond(means, deviations, bounds, random), min(self._smallest, float(np.nanmin(row))))

    def welcome(self, slot: int) -> None:
        """Let the fallback forget the slot's earlier process; the window will."""
        self._fallback.welcome(slot)

    def state(self) -> dict[str, Any]:
        """Return the window, what the fallback knows, and the model where it was learned here."""
        learned = self._model.to_bytes() if self._learning is not None and self._model is not None else None
        return {
            "round": self._round,
            "scale": self._scale,
            "smallest": self._smallest,
            "window": [row.tobytes() for row in self._window],
            "fallback": self._fallback.state(),
            "learned": learned,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue with that window; learning goes on from the learned model, with this window for all its data."""
        self._round, self._scale, self._smallest = state["round"], state["scale"], state["smallest"]
        rows = [np.frombuffer(row, dtype=np.float32) for row in state["window"]]
        self._window = deque(rows, maxlen=self._shape.window)
        self._fallback.restore(state["fallback"])
        if self._learning is not None and state["learned"] is not None:
            self._model = FittedModel.from_bytes(state["learned"], name="the model learned so far")
            self._learning = Learning(self._model.shape, self._seed, self._model)
        self._components = None
