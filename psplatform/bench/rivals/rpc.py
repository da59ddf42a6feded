"""A parameter server on torch.distributed.rpc: each worker sends its gradient and gets the parameters back.

By itself torch's RPC reads the memory of other processes of the host; ``rpc-tcp`` sends over its sockets alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Any

import torch
from torch.distributed import rpc

from psplatform.bench.rivals.loops import LEARNING_RATE, WARM_UPS, in_processes, repeats_for, timed
from psplatform.client.clusters.ports import free_port


class _Server:
    weights: torch.Tensor


def measure(
    workers: int, parameters: int, seconds: float, *, options: Mapping[str, Any] | None = None
) -> tuple[float, float]:
    """Return milliseconds of push, step and pull of each worker, while all do it, and of all cores for one of each."""
    told = in_processes(_process, workers + 1, workers, parameters, seconds, free_port(), options or {})
    server_cpu_s, exchanges = told[0], sum(repeats for _, _, repeats in told[1:])
    cpu_ms = sum(cpu_ms * repeats for _, cpu_ms, repeats in told[1:]) / exchanges
    server_cpu_ms = server_cpu_s / (exchanges + workers * WARM_UPS) * 1e3
    return fmean(ms for ms, _, _ in told[1:]), workers * (cpu_ms + server_cpu_ms)


def _process(
    number: int,
    tell: Callable[[Any], None],
    workers: int,
    parameters: int,
    seconds: float,
    port: int,
    options: Mapping[str, Any],
) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    _Server.weights = torch.zeros(parameters if number == 0 else 0)
    rpc.init_rpc(
        "server" if number == 0 else f"worker{number}",
        rank=number,
        world_size=workers + 1,
        rpc_backend_options=rpc.TensorPipeRpcBackendOptions(**options),
    )
    if number == 0:
        computed = time.process_time()
        rpc.shutdown()  # once all workers are done
        tell(time.process_time() - computed)
        return
    gradient, pulled = torch.ones(parameters), torch.empty(parameters)

    def iterate() -> None:
        pulled.copy_(rpc.rpc_sync("server", _push_and_pull, (gradient,)))

    repeats = repeats_for(iterate, seconds)
    tell((*timed(iterate, repeats), repeats))
    rpc.shutdown()


def _push_and_pull(gradient: torch.Tensor) -> torch.Tensor:
    return _Server.weights.add_(gradient, alpha=-LEARNING_RATE)
