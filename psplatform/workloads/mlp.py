"""A mixture of Gaussians, drawn where it is needed: cheap to compute, and of any size."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from psplatform.tasks.supervised import SupervisedTask
from psplatform.workloads.networks import perceptron

_HIDDEN = 32
_HELD_OUT_EVERY = 5  # one sample in five is held out
_DRAW_SEED = 64  # the mixture is part of the workload: runs with other seeds train on the same data

Part = tuple[NDArray[np.float32], NDArray[np.int64]]


def make(*, samples: int, dimension: int, classes: int, spread: float, offset: float) -> SupervisedTask:
    """Describe the task; the options are those of `mixture`."""
    draw = partial(_part, samples=samples, dimension=dimension, classes=classes, spread=spread, offset=offset)
    return SupervisedTask(
        model=partial(perceptron, dimension=dimension, hidden=_HIDDEN, classes=classes),
        loss=cross_entropy,
        data=partial(draw, held_out=False),
        test=partial(draw, held_out=True),
    )


def mixture(*, samples: int, dimension: int, classes: int, spread: float, offset: float) -> Part:
    """Draw ``float32[samples, dimension]`` and their classes, which are equally frequent.

    Class centres are normal around `offset` with standard deviation 1 in each dimension; samples lie around theirs with
    standard deviation `spread`.  An `offset` makes the loss far steeper in one direction than in those that tell the
    classes apart, as with pixels, which are not centred either.
    """
    rng = np.random.default_rng(_DRAW_SEED)
    centres = np.float32(offset) + rng.standard_normal((classes, dimension), dtype=np.float32)
    labels = rng.permutation(np.arange(samples, dtype=np.int64) % classes)
    noise = rng.standard_normal((samples, dimension), dtype=np.float32)
    return centres[labels] + np.float32(spread) * noise, labels


def _part(*, held_out: bool, **options: Any) -> Part:
    return _parts(**options)[held_out]


@lru_cache(maxsize=1)  # all workers of a process train on the same arrays
def _parts(*, samples: int, dimension: int, classes: int, spread: float, offset: float) -> tuple[Part, Part]:
    inputs, labels = mixture(samples=samples, dimension=dimension, classes=classes, spread=spread, offset=offset)
    held_out = np.arange(samples) % _HELD_OUT_EVERY == 0
    return (inputs[~held_out], labels[~held_out]), (inputs[held_out], labels[held_out])
