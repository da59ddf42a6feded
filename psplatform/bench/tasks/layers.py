"""A job with a model of many equal layers, handed in as a module, whose gradients cost little beside their size."""

from __future__ import annotations

import math
from typing import Any, Final

from psplatform.jobs.job import Job
from psplatform.jobs.optimizers import SGD

_LAYERS: Final = 16
_SAMPLES: Final = 64
_BATCH: Final = 2


def parameters_of(wanted: int) -> int:
    """Return how many parameters the model has that is to have so many: layers are square."""
    return _LAYERS * _width(wanted) ** 2


def _width(wanted: int) -> int:
    return max(1, math.isqrt(wanted // _LAYERS))


def job_of_layers(parameters: int, **fields: Any) -> Job:
    """Return a job that trains a module of about so many parameters by SGD with momentum."""
    import numpy as np  # noqa: PLC0415  brings torch where a job is made only
    from torch import nn  # noqa: PLC0415  likewise

    width = _width(parameters)
    random = np.random.default_rng(0)
    samples = random.standard_normal((_SAMPLES, width), dtype=np.float32)
    return Job(
        model=nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(_LAYERS))),
        device="cpu",
        loss=nn.functional.mse_loss,
        data=(samples, samples),
        batch_size=_BATCH,
        optimizer=SGD(lr=1e-4, momentum=0.9),
        **fields,
    )
