"""Fits the deep state-space model to run times: the evidence lower bound, Adam, clipped gradients, sliding windows.

::

    ELBO = sum_t E_q [log p(x_t | z_t)] - KL(q(z_t | z_{t-1}, x) || p(z_t | z_{t-1}))

with one draw of each z_t.  This is the one module of the policies that knows torch; it is loaded when something is
fitted and not before.

Source: M. Teng, F. Wood, "Bayesian distributed stochastic gradient descent", NeurIPS 2018, section 3.2.

Differences from the paper, which names neither: every window is stretched by a common factor drawn anew, so that a run
whose first window is not like that of the fitting is nothing new; the step falls to a tenth of the first along a
cosine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from psplatform.errors import ConfigurationError
from psplatform.policies.run_times.fitted_model import FittedModel
from psplatform.policies.run_times.predictor import Stream, Times, random_stream
from psplatform.policies.run_times.state_space import (
    Functions,
    Shape,
    emission,
    first_weights,
    guide,
    sides,
    transition,
)

Report = Callable[[int, float], None]

TORCH: Final = Functions(torch.tanh, torch.nn.functional.softplus, torch.zeros_like)
_WINDOWS_PER_STEP: Final = 16
_STEP_SIZE: Final = 5e-3
_LARGEST_GRADIENT_NORM: Final = 5.0
# Logarithmic standard deviation of the factor that windows are stretched by.
_STRETCH: Final = 0.1


def scale_of(window: Times) -> float:
    """Return what run times are divided by: twice the mean of the first window."""
    return 2.0 * float(np.mean(window)) or 1.0


def fit(
    times: Times,
    *,
    steps: int = 300,
    seed: int = 0,
    report: Report | None = None,
    state: int = 16,
    hidden: int = 32,
    window: int = 20,
    sees_now: bool = True,
    identity: bool = True,
) -> FittedModel:
    """Return a model fitted to the run times of fully observed rounds.

    The same arguments give the same model, on one machine and with one thread.

    Parameters
    ----------
    times
        ``float64[rounds, n]``, seconds; column w is slot w.
    steps
        Steps of Adam, each over 16 windows.
    report
        Called after each step with its number, from 1, and the loss per run time.
    state, hidden, window, sees_now, identity
        See `Shape`.

    Raises
    ------
    ConfigurationError
        If there are no two windows of rounds, or a time is not positive and finite.
    """
    _check(times, window)
    shape = Shape(times.shape[1], state, hidden, window, sees_now, identity)
    scaled = times / scale_of(times[:window])
    fitting = Fitting(shape, scaled, seed=seed, steps=steps)
    for number in range(1, steps + 1):
        loss = fitting.step(scaled)
        if report is not None:
            report(number, loss)
    return fitting.model()


def _check(times: Times, window: int) -> None:
    if times.ndim != 2 or times.shape[0] < 2 * window:
        raise ConfigurationError(
            f"run times must be a table of at least {2 * window} rounds (two windows) by workers, not of shape "
            f"{times.shape}; record more rounds"
        )
    if not (np.all(np.isfinite(times)) and np.all(times > 0)):
        raise ConfigurationError("run times must be positive and finite; fit on rounds in which no worker was cut off")


class Fitting:
    """A model under training, step by step.

    Parameters
    ----------
    begin
        Scaled run times, ``float[rounds, n]``, whose means the emission begins at; a model goes on from its own.
    steps
        After which the step size has fallen to its tenth and stays there; 0 keeps it at that from the beginning.
    """

    def __init__(self, shape: Shape, begin: Times | FittedModel, *, seed: int, steps: int) -> None:
        self._shape = shape
        given = begin.weights if isinstance(begin, FittedModel) else None
        begun = given or first_weights(shape, np.asarray(begin), random_stream(seed, Stream.WEIGHTS))
        self._weights = {name: torch.from_numpy(array.copy()).requires_grad_() for name, array in begun.items()}
        self._adam = torch.optim.Adam(list(self._weights.values()), lr=_STEP_SIZE)
        self._random = random_stream(seed, Stream.TRAINING)
        self._noise = torch.Generator().manual_seed(int(self._random.integers(2**63)))
        self._steps = steps
        self._done = 0

    def step(self, scaled: NDArray[np.float64], *, windows: int = _WINDOWS_PER_STEP) -> float:
        """Take one step over windows drawn from the scaled run times; return the loss per run time.

        A gradient that is not finite is not followed: the model must stay one that predicts.
        """
        loss = self._loss(self._draw(scaled, windows))
        self._adam.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self._weights.values(), _LARGEST_GRADIENT_NORM)
        for group in self._adam.param_groups:
            group["lr"] = _STEP_SIZE * self._annealing()
        if math.isfinite(norm):
            self._adam.step()
        self._done += 1
        return float(loss.detach())

    def _annealing(self) -> float:
        share = min(1.0, self._done / self._steps) if self._steps else 1.0
        return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * share))

    def model(self) -> FittedModel:
        """Return what was learned so far."""
        return FittedModel(self._shape, {name: one.detach().numpy().copy() for name, one in self._weights.items()})

    def _draw(self, scaled: NDArray[np.float64], windows: int) -> Tensor:
        starts = self._random.integers(0, len(scaled) - self._shape.window + 1, windows)
        rows = scaled[starts[:, None] + np.arange(self._shape.window)]
        stretch = np.exp(_STRETCH * self._random.standard_normal((windows, 1, 1)))
        return torch.from_numpy((rows * stretch).astype(np.float32))

    def _loss(self, x: Tensor) -> Tensor:
        """Return minus the ELBO per run time for windows ``x[b, l, n]``."""
        weights = self._weights
        z = weights["first"].expand(x.shape[0], -1)
        states, divergence = [], torch.zeros(())
        for side in sides(weights, x, self._shape, TORCH):
            prior = transition(weights, z, TORCH)
            posterior = guide(weights, z, side, TORCH)
            z = posterior[0] + posterior[1] * torch.randn(posterior[0].shape, generator=self._noise)
            divergence = divergence + _divergence(posterior, prior)
            states.append(z)
        mean, deviation = emission(weights, torch.stack(states, dim=1), TORCH)
        surprise = deviation.log() + 0.5 * ((x - mean) / deviation) ** 2
        loss: Tensor = (surprise.sum() + divergence) / x.numel()
        return loss


def _divergence(q: tuple[Tensor, Tensor], p: tuple[Tensor, Tensor]) -> Tensor:
    """Return KL(q || p) of diagonal normals, summed over all."""
    ratio = (q[1] / p[1]) ** 2
    return 0.5 * (ratio + ((q[0] - p[0]) / p[1]) ** 2 - 1 - ratio.log()).sum()
