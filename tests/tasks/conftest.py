"""Opened tasks as the runtime binds them: to flat vectors that the test can read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from psplatform.tasks.cancellation import Cancellation
from psplatform.tasks.opening import open_workspace
from psplatform.tasks.seam import BatchRef, Computed, Evaluation, Task, Workspace
from psplatform.tasks.supervised import SupervisedTask
from psplatform.tensors.layout import Layout
from psplatform.tensors.vectors import allocate, fill, named_views

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Bound:
    """A workspace bound to vectors of its own."""

    workspace: Workspace
    layout: Layout
    values: dict[str, Tensor]
    updates: dict[str, Tensor]

    def compute(self, indices: Any, seed: int = 7, *, parts: int = 1, cancel: Cancellation | None = None) -> Computed:
        batch = BatchRef(np.asarray(indices, dtype=np.int64), seed)
        return self.workspace.compute(batch, cancel or Cancellation(), parts)

    def evaluate(self) -> Evaluation | None:
        return self.workspace.evaluate(Cancellation())

    def update(self, name: str) -> Tensor:
        return named_views(self.layout, self.updates)[name]

    def value(self, name: str) -> Tensor:
        return named_views(self.layout, self.values)[name]

    def gradient(self) -> Tensor:
        """Return a copy of the whole gradient."""
        return self.updates["parameter.float32"].clone()


@pytest.fixture
def bind() -> Callable[..., Bound]:
    """Open a task on two shards and load its initial values."""

    def bind_task(task: Task | SupervisedTask, seed: int = 0) -> Bound:
        workspace = open_workspace(task, seed, CPU)
        layout = Layout.of(list(workspace.specs), shards=2)
        bound = Bound(workspace, layout, allocate(layout), allocate(layout))
        workspace.bind(layout, bound.values, bound.updates)
        fill(layout, bound.values, workspace.initial())
        return bound

    return bind_task
