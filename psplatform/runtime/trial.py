"""One gradient before anything is started, in a process of the cluster: most mistakes in a task show here."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np
import torch

from psplatform.errors import ConfigurationError
from psplatform.jobs.optimizers import Optimizer
from psplatform.replication.checkpoints.arrays import Contents
from psplatform.replication.checkpoints.matching import require_match
from psplatform.replication.checkpoints.retention import load_checkpoint
from psplatform.runtime.comms.processes import Locatable
from psplatform.runtime.initial import initial_tensors
from psplatform.runtime.program import choose_device, open_task, slot_names
from psplatform.tasks.cancellation import Cancellation
from psplatform.tasks.data.sampling import gradient_seed
from psplatform.tasks.foreign import user_code
from psplatform.tasks.layouts import require_trainable
from psplatform.tasks.seam import BatchRef
from psplatform.tensors.layout import Layout
from psplatform.tensors.optimizers import make_rule
from psplatform.tensors.own_optimizers import CustomOptimizer
from psplatform.tensors.vectors import allocate, fill, shard_vectors


@dataclass(frozen=True, slots=True)
class Trial:
    """What one gradient told about a task.

    Attributes
    ----------
    gradient_bytes
        Of the gradient's part for each shard.
    """

    samples: int
    parameters: int
    evaluates: bool
    gradient_bytes: tuple[int, ...]


class TrialHost(Locatable):
    """A Dask actor that tries a task and is let go of."""

    async def run(self, task: bytes, initial: bytes, optimizer: bytes, settings: Mapping[str, Any]) -> Trial:
        """Do `try_task` here; the optimiser is pickled by cloudpickle as well."""
        with user_code("opening the optimizer"):
            opened = cloudpickle.loads(optimizer)
        return await asyncio.to_thread(try_task, task, initial, opened, settings)


def try_task(task: bytes, initial: bytes, optimizer: Optimizer, settings: Mapping[str, Any]) -> Trial:
    """Open a task where this runs and compute one gradient with it.

    Parameters
    ----------
    task
        Pickled by cloudpickle.
    initial
        What its module starts from, as `psplatform.runtime.initial.Initial` has it.
    settings
        ``seed``, ``device``, ``batch_size``, ``micro_batches``, ``shards`` and ``block_elements`` of the job; where it
        goes on from a checkpoint, ``store`` and ``checkpoint``.

    Raises
    ------
    ConfigurationError
        If the task cannot be trained: no trainable parameters, more shards than parameters, a batch larger than the
        data, a loss that is no scalar;
        or if it is not that of the checkpoint, or the checkpoint is damaged.
    UserCodeError
        If the user's code raises.
    """
    device = choose_device(settings["device"])
    workspace, layout = open_task(task, optimizer, settings, device)
    require_trainable(layout, workspace.samples, settings["batch_size"])
    _require_portable(layout)
    if "checkpoint" in settings:
        _require_checkpoint(layout, optimizer, settings["store"], settings["checkpoint"])
    values, updates = allocate(layout, device=device), allocate(layout, device=device)
    with user_code("computing a first gradient"):
        fill(layout, values, initial_tensors(workspace, initial))
        workspace.bind(layout, values, updates)
        batch = BatchRef(np.arange(settings["batch_size"], dtype=np.int64), gradient_seed(settings["seed"], 0, 0))
        workspace.compute(batch, Cancellation(), settings["micro_batches"])
    with user_code("measuring the first held-out samples"):
        workspace.try_evaluating(settings["batch_size"])
    if isinstance(optimizer, CustomOptimizer):
        _try_step(optimizer, values, updates)
    parts = [shard_vectors(layout, shard, updates) for shard in range(layout.shards)]
    gradient_bytes = tuple(sum(vector.nbytes for vector in part.values()) for part in parts)
    return Trial(workspace.samples, layout.parameters, workspace.evaluates, gradient_bytes)


def _try_step(optimizer: CustomOptimizer, values: dict[str, torch.Tensor], updates: dict[str, torch.Tensor]) -> None:
    # On a server, what it raises could not be told from a failure of the server's.
    with user_code("computing a first step of the optimizer"):
        rule = make_rule(optimizer)
        for key, gradient in updates.items():
            if not key.startswith("parameter"):
                continue
            vector, update = values[key].cpu(), gradient.cpu()
            for group in range(rule.groups):
                out, state = torch.empty_like(vector), rule.slots(vector)
                rule.step(vector, update, state, out, rate=1.0, step=1, group=group)


def _require_checkpoint(layout: Layout, optimizer: Optimizer, store: str, number: int) -> None:
    checkpoint = load_checkpoint(store, number)
    require_match(checkpoint.contents, Contents(layout, slot_names(layout, optimizer)))
    checkpoint.verify()


def _require_portable(layout: Layout) -> None:
    # Comms and stores carry NumPy arrays.
    for region in layout.regions:
        if region.dtype == "bfloat16":
            name = region.entries[0].name
            text = f"the buffer {name!r} is bfloat16, which can be neither sent nor saved; keep it in float32"
            raise ConfigurationError(text, field="model")
