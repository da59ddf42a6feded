"""A mixture of Gaussians, drawn where it is needed: cheap to compute, and of any size."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from psplatform.tasks.supervised import SupervisedTask
from psplatform.workloads.networks import perceptron

_HIDDEN = 32
_HELD_OUT_EVERY = 5  # one sample in five is held out
_DRAW_SEED = 64  # the mixture is part of the workload: runs with other seeds train on the same data

Part = tuple[NDArray[np.float32], NDArray[np.int64]]


def make(*, samples: int, dimension: int, classes: int, spread: float) -> SupervisedTask:
    """Describe the task; the options are those of `mixture`."""
    draw = partial(_part, samples=samples, dimension=dimension, classes=classes, spread=spread)
    return SupervisedTask(
        model=partial(perceptron, dimension=dimension, hidden=_HIDDEN, classes=classes),
        loss=cross_entropy,
        data=partial(draw, held_out=False),
        test=partial(draw, held_out=True),
    )


def mixture(*, samples: int, dimension: int, classes: int, spread: float) -> Part:
    """Draw ``float32[samples, dimension]`` and their classes, which are equally frequent.

    Class centres are standard normal; samples lie around theirs with standard deviation `spread` in each dimension.
    """
    rng = np.random.default_rng(_DRAW_SEED)
    centres = rng.standard_normal((classes, dimension), dtype=np.float32)
    labels = rng.permutation(np.arange(samples, dtype=np.int64) % classes)
    noise = rng.standard_normal((samples, dimension), dtype=np.float32)
    return centres[labels] + np.float32(spread) * noise, labels


def _part(*, held_out: bool, samples: int, dimension: int, classes: int, spread: float) -> Part:
    inputs, labels = mixture(samples=samples, dimension=dimension, classes=classes, spread=spread)
    chosen = (np.arange(samples) % _HELD_OUT_EVERY == 0) == held_out
    return inputs[chosen], labels[chosen]
