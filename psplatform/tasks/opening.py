"""Opening a task in a process, whichever of the two kinds it is."""

from __future__ import annotations

import torch

from psplatform.errors import ConfigurationError
from psplatform.tasks.functional import FunctionalWorkspace
from psplatform.tasks.seam import Task, Workspace
from psplatform.tasks.supervised import SupervisedTask, SupervisedWorkspace


def open_workspace(task: Task | SupervisedTask, seed: int, device: torch.device) -> Workspace:
    """Build the heavy form of `task` in this process.

    Raises
    ------
    ConfigurationError
        If `task` is no task, or if its model, loss or data cannot be trained with.
    """
    if isinstance(task, SupervisedTask):
        return SupervisedWorkspace(task, seed, device)
    if isinstance(task, Task):
        return FunctionalWorkspace(task, seed, device)
    if isinstance(task, type):
        text = f"The task is the class {task.__name__}; hand in one of its objects: {task.__name__}()."
        raise ConfigurationError(text, field="task")
    raise ConfigurationError(
        f"The task is a {type(task).__name__}; hand in a model with loss (or step) and data, or a subclass of Task.",
        field="task",
    )
