"""A parameter server on Ray: its actor takes a gradient of every worker, steps, and returns the parameters."""

from __future__ import annotations

import os
from typing import Any, Final

import numpy as np
import ray
from numpy.typing import NDArray

from psplatform.bench.measuring.host import tree_cpu_seconds
from psplatform.bench.rivals.loops import LEARNING_RATE, repeats_for, timed

_STORE_BYTES: Final = 4_000_000_000


class _Server:
    def __init__(self, parameters: int) -> None:
        self.weights = np.zeros(parameters, np.float32)

    def step(self, *gradients: NDArray[np.float32]) -> NDArray[np.float32]:
        for gradient in gradients:
            self.weights -= np.float32(LEARNING_RATE / len(gradients)) * gradient
        return self.weights


class _Worker:
    def __init__(self, parameters: int) -> None:
        self.gradient = np.ones(parameters, np.float32)

    def compute(self, _weights: NDArray[np.float32] | None) -> NDArray[np.float32]:
        return self.gradient


def measure(workers: int, parameters: int, seconds: float) -> tuple[float, float]:
    """Return milliseconds of a synchronous iteration, and those of all cores."""
    ray.init(num_cpus=workers + 1, include_dashboard=False, logging_level="ERROR", object_store_memory=_STORE_BYTES)
    server = ray.remote(_Server).remote(parameters)
    pool = [ray.remote(_Worker).remote(parameters) for _ in range(workers)]
    weights: Any = None

    def iterate() -> None:
        nonlocal weights
        weights = server.step.remote(*[worker.compute.remote(weights) for worker in pool])
        ray.wait([weights], fetch_local=False)

    repeats = repeats_for(iterate, seconds)
    before = tree_cpu_seconds(os.getpid())
    ms, _ = timed(iterate, repeats)
    cpu_ms = (tree_cpu_seconds(os.getpid()) - before) / repeats * 1e3
    ray.shutdown()
    return ms, cpu_ms
