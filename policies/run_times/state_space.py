"""The equations of the deep state-space model of run times, for arrays of numpy and of torch alike.

::

    transition   g = sigmoid(MLP(z)), h = MLP(z), G = (1 - g) Lin(z) + g h, H = softplus(Lin(relu(G)))
                 z_t ~ N(G(z_{t-1}), H(z_{t-1}))
    emission     I = Lin(Lin(z)), J = softplus(Lin(relu(Lin(I))))
                 x_t ~ N(I(z_t), J(z_t))
    guide        h = (tanh(Lin(z_{t-1})) + left_t + right_t) / 3
                 q(z_t | z_{t-1}, x) = N(Lin(h), softplus(Lin(Lin(h))))

left and right are recurrent networks of ReLU over the window, forwards up to t and backwards from its end to t.  x_t
holds the run times of all n workers in round t, divided by twice the mean of the first window.

Source: M. Teng, F. Wood, "Bayesian distributed stochastic gradient descent", NeurIPS 2018, section 3.2; the gated
transition is that of R. G. Krishnan, U. Shalit, D. Sontag, "Structured inference networks for nonlinear state space
models", AAAI 2017.

Differences from the paper, which leaves or misprints them: H and J are standard deviations; the emission takes z_t,
not z_{t-1}; `left` includes x_t (`Shape.sees_now`), else the guide never sees the round it speaks of; the transition's
Lin begins as the identity (`Shape.identity`); the emission begins at each worker's mean; deviations have a floor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Array = Any
"""An array of numpy in prediction, of torch in training."""
Weights = Mapping[str, Array]

# In units of twice a mean run time: no likelihood may grow without bound on times that hardly vary.
_LEAST_DEVIATION: Final = 1e-3
# Where the deviations of states and of run times begin, before anything is learned.
_FIRST_DEVIATION: Final = 0.1


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a model, and what the paper leaves open.

    Attributes
    ----------
    workers
        n, the columns of the run times.
    state, hidden
        Dimensions of z and of every hidden layer; the paper names neither.
    window
        l, the rounds that are looked back on.
    sees_now
        Whether `left` at t includes x_t.
    identity
        Whether the transition's Lin begins as the identity.
    """

    workers: int
    state: int = 16
    hidden: int = 32
    window: int = 20
    sees_now: bool = True
    identity: bool = True

    def arrays(self) -> dict[str, tuple[int, ...]]:
        """Return name and shape of every array of weights: matrices are ``[inputs, outputs]``."""
        n, d, h = self.workers, self.state, self.hidden
        layers = {
            "gate.in": (d, h),
            "gate.out": (h, d),
            "proposal.in": (d, h),
            "proposal.out": (h, d),
            "carry": (d, d),
            "transition.deviation": (d, d),
            "emission.in": (d, h),
            "emission.out": (h, n),
            "noise.in": (n, h),
            "noise.out": (h, n),
            "left.in": (n, h),
            "left.back": (h, h),
            "right.in": (n, h),
            "right.back": (h, h),
            "guide.state": (d, h),
            "guide.mean": (h, d),
            "guide.deviation": (d, d),
        }
        matrices = {f"{name}.matrix": shape for name, shape in layers.items()}
        return {"first": (d,), **matrices, **{f"{name}.bias": shape[1:] for name, shape in layers.items()}}

    def plain(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Functions:
    """The functions that numpy and torch call by different names."""

    tanh: Callable[[Array], Array]
    softplus: Callable[[Array], Array]
    zeros_like: Callable[[Array], Array]


def _softplus(x: NDArray[Any]) -> NDArray[Any]:
    found: NDArray[Any] = np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
    return found


NUMPY: Final = Functions(np.tanh, _softplus, np.zeros_like)


def first_weights(shape: Shape, times: NDArray[Any], random: Generator) -> dict[str, NDArray[np.float32]]:
    """Return weights to begin training with, for scaled `times`, ``float[rounds, n]``."""
    weights: dict[str, NDArray[Any]] = {}
    for name, size in shape.arrays().items():
        spread = 1.0 / np.sqrt(size[0]) if name.endswith(".matrix") else 0.0
        weights[name] = spread * random.uniform(-1.0, 1.0, size)
    if shape.identity:
        weights["carry.matrix"] = np.eye(shape.state)
    before_softplus = np.log(np.expm1(_FIRST_DEVIATION))
    for name in ("transition.deviation", "noise.out", "guide.deviation"):
        weights[f"{name}.bias"] += before_softplus
    weights["emission.out.bias"] += np.mean(times, axis=0)
    return {name: array.astype(np.float32) for name, array in weights.items()}


def linear(weights: Weights, name: str, x: Array) -> Array:
    """Return Lin(x) of that name."""
    return x @ weights[f"{name}.matrix"] + weights[f"{name}.bias"]


def relu(x: Array) -> Array:
    """Return max(x, 0)."""
    return x.clip(0)


def transition(weights: Weights, z: Array, f: Functions) -> tuple[Array, Array]:
    """Return mean and deviation of the next state, ``[..., d]`` each."""
    logits = linear(weights, "gate.out", relu(linear(weights, "gate.in", z)))
    gate = 0.5 * (1 + f.tanh(0.5 * logits))  # the sigmoid
    proposal = linear(weights, "proposal.out", relu(linear(weights, "proposal.in", z)))
    mean = (1 - gate) * linear(weights, "carry", z) + gate * proposal
    return mean, f.softplus(linear(weights, "transition.deviation", relu(mean))) + _LEAST_DEVIATION


def emission(weights: Weights, z: Array, f: Functions) -> tuple[Array, Array]:
    """Return mean and deviation of the run times of all workers, ``[..., n]`` each."""
    mean = linear(weights, "emission.out", linear(weights, "emission.in", z))
    noise = linear(weights, "noise.out", relu(linear(weights, "noise.in", mean)))
    return mean, f.softplus(noise) + _LEAST_DEVIATION


def sides(weights: Weights, x: Array, shape: Shape, f: Functions) -> list[Array]:
    """Return left_t + right_t for every t of the window, ``[..., h]`` each, for ``x[..., l, n]``."""
    into_left, into_right = linear(weights, "left.in", x), linear(weights, "right.in", x)
    length = x.shape[-2]
    left, right = [f.zeros_like(into_left[..., 0, :])], [f.zeros_like(into_right[..., 0, :])]
    for t in range(length):
        left.append(relu(into_left[..., t, :] + linear(weights, "left.back", left[-1])))
    for t in range(length - 1, -1, -1):
        right.append(relu(into_right[..., t, :] + linear(weights, "right.back", right[-1])))
    # left[t + 1] and right[length - t] include x_t, those before them do not.
    shift = 1 if shape.sees_now else 0
    return [left[t + shift] + right[length - 1 - t] for t in range(length)]


def guide(weights: Weights, z: Array, side: Array, f: Functions) -> tuple[Array, Array]:
    """Return mean and deviation of q(z_t | z_{t-1}, window), ``[..., d]`` each."""
    h = (f.tanh(linear(weights, "guide.state", z)) + side) / 3
    mean = linear(weights, "guide.mean", h)
    return mean, f.softplus(linear(weights, "guide.deviation", mean)) + _LEAST_DEVIATION


def predict(
    weights: Weights, shape: Shape, window: NDArray[Any], samples: int, random: Generator
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the predictive components of the round after `window`: means and deviations, ``float32[K, n]`` each.

    Each of the K components follows one path: states drawn from the guide along the window, one step of the
    transition, and the emission from there.

    Parameters
    ----------
    window
        ``float32[l, n]``, scaled run times of the last rounds, censored ones filled in.
    """

    def draw(mean: NDArray[Any], deviation: NDArray[Any]) -> NDArray[Any]:
        return mean + deviation * random.standard_normal(mean.shape, dtype=np.float32)

    z = np.broadcast_to(weights["first"], (samples, shape.state))
    for side in sides(weights, window, shape, NUMPY):
        z = draw(*guide(weights, z, side, NUMPY))
    return emission(weights, draw(*transition(weights, z, NUMPY)), NUMPY)
