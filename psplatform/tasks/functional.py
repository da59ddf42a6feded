"""The workspace of a task that is written as functions of plain tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import torch
from torch import Tensor

from psplatform.core.protocol.messages import Flaw
from psplatform.errors import ConfigurationError, InvariantViolation
from psplatform.tasks.cancellation import Cancellation, heeding
from psplatform.tasks.flaws import flawed_names, of_batch
from psplatform.tasks.metrics import as_number
from psplatform.tasks.randomness import seeded
from psplatform.tasks.seam import BatchRef, Computed, Evaluation, Task, Update
from psplatform.tensors.layout import TRAINABLE, Layout, TensorSpec
from psplatform.tensors.vectors import named_views, spec_of

_PIECE: Final = 1 << 20
"""Elements of an update that are copied between two looks whether anybody wants it still."""


class FunctionalWorkspace:
    """A user's `Task` in one process (see `psplatform.tasks.seam.Workspace`).

    The platform cannot see into the task's computation: a batch is never split, and a cancellation is noticed only
    before and after loading and computing, and while the update is copied.
    """

    def __init__(self, task: Task, seed: int, device: torch.device) -> None:
        self._task, self._seed, self._device = task, seed, device
        self._parameters: dict[str, Tensor] | None = None
        self._updates: dict[str, Tensor] = {}
        self.samples = _sample_count(task)
        self.evaluates = type(task).evaluate is not Task.evaluate
        self.specs = [_spec(name, tensor) for name, tensor in self.initial().items()]

    def initial(self) -> dict[str, Tensor]:
        """Return the parameters to start from, by name."""
        with seeded(self._seed, self._device):
            initial = {name: tensor.detach().cpu().clone() for name, tensor in self._task.initial().items()}
        if not initial:
            raise _unusable("has no parameters; return at least one from initial()")
        return initial

    def bind(
        self,
        layout: Layout,
        values: Mapping[str, Tensor],
        updates: Mapping[str, Tensor] | None,
        ready: Callable[[str], None] | None = None,
    ) -> None:
        """Hand views of `values` to the task from now on, and copy what it returns elsewhere into `updates`."""
        self._layout = layout
        self._parameters = named_views(layout, values)
        if updates is not None:
            self._updates = named_views(layout, updates)
            self._task.write_to(dict(self._updates))

    def compute_from(self, values: Mapping[str, Tensor], *, alone: bool = False) -> None:
        """Hand views of other `values` to the task."""
        self._parameters = named_views(self._layout, values)

    def compute(self, batch: BatchRef, cancel: Cancellation, micro_batches: int = 1) -> Computed:
        """Write the task's update into the bound updates; `micro_batches` is ignored.

        Raises
        ------
        Cancelled
            If `cancel` is raised: noticed around loading and computing, where the task looks for it, and while the
            update is copied.
        ConfigurationError
            If the update does not fit the parameters.
        """
        parameters = self._bound()
        with seeded(batch.seed, self._device, cancel):
            cancel.check()
            samples = self._task.load(batch.indices)
            cancel.check()
            with heeding(cancel):
                update = self._task.compute(parameters, samples, np.random.default_rng(batch.seed))
            cancel.check()
            self._write(update, cancel)
        return Computed(loss=float(update.loss), samples=len(batch.indices))

    def examine(self, batch: BatchRef) -> Flaw | None:
        """Return what is not finite, an update's tensor or the loss; only the task could say in which sample."""
        return of_batch(batch, flawed_names("the update", self._updates))

    def evaluate(self, cancel: Cancellation) -> Evaluation | None:
        """Return what the task says about the bound values."""
        parameters = self._bound()
        cancel.check()
        with seeded(self._seed, self._device, cancel):
            found = self._task.evaluate(parameters)
        if found is None or not found.metrics:
            return found
        return replace(found, metrics={str(name): as_number(name, value) for name, value in found.metrics.items()})

    def try_evaluating(self, most: int) -> None:
        """Do nothing: how much the task measures is its own business."""

    def module(self) -> None:
        """Return None: a functional task has no module."""
        return

    def _bound(self) -> dict[str, Tensor]:
        if self._parameters is None:
            raise InvariantViolation("a workspace computes only after bind()")
        return self._parameters

    def _write(self, update: Update, cancel: Cancellation) -> None:
        unknown = sorted(update.tensors.keys() - self._updates.keys())
        if unknown:
            raise _unusable(f"returned an update for {unknown[0]!r}; update only names that initial() returned")
        for name, target in self._updates.items():
            change = update.tensors.get(name)
            if change is None:
                target.zero_()
                continue
            if change.shape != target.shape:
                shapes = f"{tuple(change.shape)}, but the parameter has {tuple(target.shape)}"
                raise _unusable(f"returned an update for {name!r} of shape {shapes}; return equal shapes")
            if change.data_ptr() == target.data_ptr() and change.stride() == target.stride():
                continue
            for new, old in zip(change.detach().reshape(-1).split(_PIECE), target.view(-1).split(_PIECE), strict=True):
                cancel.check()
                old.copy_(new)


def _spec(name: str, tensor: Tensor) -> TensorSpec:
    spec = spec_of(name, tensor)
    if spec.dtype not in TRAINABLE:
        remedy = f"use {' or '.join(TRAINABLE)}, for counts too"
        raise _unusable(f"has the parameter {name!r} of dtype {spec.dtype}; {remedy}")
    return spec


def _sample_count(task: Task) -> int:
    samples = getattr(task, "samples", 0)
    if samples < 1:
        raise _unusable("counts no samples; set `samples` to at least 1")
    return int(samples)


def _unusable(reason: str) -> ConfigurationError:
    return ConfigurationError(f"The task {reason}.", field="task")
