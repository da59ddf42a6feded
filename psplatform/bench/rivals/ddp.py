"""torch's DistributedDataParallel with gloo: every rank computes a gradient of its own batch, and all take its mean."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
from torch import distributed
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from psplatform.bench.rivals.loops import finish, in_processes, repeats_for, timed
from psplatform.bench.tasks.models import MODELS
from psplatform.client.clusters.ports import free_port

_LEARNING_RATE: Final = 1e-3


def measure(workers: int, task: str, seconds: float, device: str = "cpu") -> tuple[float, float]:
    """Return milliseconds of a step, and those of all cores; a task is ``MODEL:BATCH``."""
    told = in_processes(_rank, workers, workers, task, seconds, free_port(), device)
    return max(ms for ms, _ in told), sum(cpu_ms for _, cpu_ms in told)


def _rank(
    rank: int, tell: Callable[[Any], None], workers: int, task: str, seconds: float, port: int, device: str
) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", rank=rank, world_size=workers)
    name, _, batch = task.partition(":")
    model = MODELS[name]
    module = DistributedDataParallel(model.build().to(device))
    inputs, classes = (torch.from_numpy(one) for one in model.samples())
    optimizer = torch.optim.SGD(module.parameters(), lr=_LEARNING_RATE, momentum=0.9)
    random = np.random.default_rng(rank)

    def iterate() -> None:
        indices = torch.from_numpy(random.integers(len(inputs), size=int(batch)))
        optimizer.zero_grad()
        cross_entropy(module(inputs[indices].to(device)), classes[indices].to(device)).backward()
        optimizer.step()
        finish(device)

    repeats = torch.tensor([repeats_for(iterate, seconds)])
    distributed.broadcast(repeats, 0)
    tell(timed(iterate, int(repeats)))
    distributed.destroy_process_group()
