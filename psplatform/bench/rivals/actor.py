"""A parameter server as a plain Dask actor: gradients and parameters are arguments and results of its methods."""

from __future__ import annotations

import time
from statistics import fmean
from typing import Any

import numpy as np
from distributed import Client, LocalCluster
from numpy.typing import NDArray

from psplatform.bench.rivals.loops import LEARNING_RATE, WARM_UPS, repeats_for, timed


class _Server:
    def __init__(self, parameters: int) -> None:
        self.weights = np.zeros(parameters, np.float32)

    def push_and_pull(self, gradient: NDArray[np.float32]) -> NDArray[np.float32]:
        self.weights -= np.float32(LEARNING_RATE) * gradient
        return self.weights

    def computed(self) -> float:
        return time.process_time()


def measure(workers: int, parameters: int, seconds: float) -> tuple[float, float]:
    """Return milliseconds of push, step and pull of each worker, while all do it, and of all cores for one of each.

    What Dask's scheduler and nannies compute is not counted.
    """
    cluster = LocalCluster(n_workers=workers + 1, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster) as client:
        first, *others = list(client.scheduler_info(n_workers=-1)["workers"])
        server = client.submit(_Server, parameters, actor=True, workers=[first], pure=False).result()
        before = server.computed().result()
        exchanging = [
            client.submit(_exchange, server, parameters, seconds, workers=[one], pure=False) for one in others
        ]
        told = client.gather(exchanging)
        server_cpu_s = server.computed().result() - before
    exchanges = sum(repeats for _, _, repeats in told)
    cpu_ms = sum(cpu_ms * repeats for _, cpu_ms, repeats in told) / exchanges
    server_cpu_ms = server_cpu_s / (exchanges + workers * WARM_UPS) * 1e3
    return fmean(ms for ms, _, _ in told), workers * (cpu_ms + server_cpu_ms)


def _exchange(server: Any, parameters: int, seconds: float) -> tuple[float, float, int]:
    gradient = np.ones(parameters, np.float32)

    def iterate() -> None:
        server.push_and_pull(gradient).result()

    repeats = repeats_for(iterate, seconds)
    return (*timed(iterate, repeats), repeats)
