"""A small job to simulate, in a few words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from torch import nn

from psplatform.core.plan import Stop
from psplatform.jobs.job import Job
from psplatform.jobs.optimizers import SGD

SEED = 11


def make_model() -> nn.Module:
    """Make a perceptron of 67 parameters that draws random numbers."""
    return nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.2), nn.Tanh(), nn.Linear(6, 3), nn.LayerNorm(3))


def samples(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    inputs = rng.standard_normal((count, 6), dtype=np.float32)
    return inputs, (inputs[:, 0] > 0).astype(np.int64) + (inputs[:, 1] > 0)


@pytest.fixture
def small_job() -> Callable[..., Job]:
    """Make a job of a small perceptron: ``small_job(policy="ssp", workers=3)``."""

    def make(**given: Any) -> Job:
        fields: dict[str, Any] = {
            "model": make_model,
            "loss": nn.functional.cross_entropy,
            "data": samples(60, 1),
            "test": samples(20, 2),
            "optimizer": SGD(lr=0.1),
            "workers": 3,
            "batch_size": 8,
            "seed": SEED,
            "stop": Stop(updates=6),
        }
        return Job(**{**fields, **given})

    return make
