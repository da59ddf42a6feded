"""torch.distributed with gloo: every rank adds up all gradients and takes the same step."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed

from psplatform.bench.rivals.loops import LEARNING_RATE, finish, in_processes, repeats_for, timed
from psplatform.client.clusters.ports import free_port


def measure(workers: int, parameters: int, seconds: float, device: str = "cpu") -> tuple[float, float]:
    """Return milliseconds of all_reduce and step, and those of all cores."""
    told = in_processes(_rank, workers, workers, parameters, seconds, free_port(), device)
    return max(ms for ms, _ in told), sum(cpu_ms for _, cpu_ms in told)


def _rank(
    rank: int, tell: Callable[[Any], None], workers: int, parameters: int, seconds: float, port: int, device: str
) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", rank=rank, world_size=workers)
    weights, gradient, summed = (fill(parameters, device=device) for fill in (torch.zeros, torch.ones, torch.empty))

    def iterate() -> None:
        summed.copy_(gradient)  # which is there for the next time, as ours is
        distributed.all_reduce(summed)
        weights.add_(summed, alpha=-LEARNING_RATE / workers)
        finish(device)

    repeats = torch.tensor([repeats_for(iterate, seconds)])
    distributed.broadcast(repeats, 0)
    tell(timed(iterate, int(repeats)))
    distributed.destroy_process_group()
