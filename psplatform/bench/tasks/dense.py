"""A task whose gradients take as long as wanted: by computing, or by waiting."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal

from psplatform.tasks.seam import Batch, Task, Update

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

Effort = Literal["compute", "sleep"]

_FIRST: Final = 32
_ROUNDS: Final = 5
_TIMED: Final = 3


class Dense(Task):
    """One dense layer with a squared error: the gradient is two products of matrices.

    Parameters
    ----------
    parameters
        Number of float32 parameters, about: the layer is square.
    rows
        Rows of a batch, which cost time.
    sleep_s
        How long a gradient waits besides, and leaves its core to others.
    """

    samples = 1024

    def __init__(self, parameters: int, rows: int = _FIRST, sleep_s: float = 0.0) -> None:
        self.width = max(1, math.isqrt(parameters))
        self.rows = rows
        self._sleep_s = sleep_s
        self._gradient: Tensor | None = None

    def initial(self) -> Mapping[str, Tensor]:
        """Return small random weights."""
        import torch  # noqa: PLC0415  torch is not needed to describe the job

        return {"weights": torch.randn(self.width, self.width) / math.sqrt(self.width)}

    def compute(self, parameters: Mapping[str, Tensor], batch: Batch, rng: np.random.Generator) -> Update:
        """Return the gradient of the mean squared error of the outputs against noise."""
        import torch  # noqa: PLC0415  see above

        weights = parameters["weights"]
        if self._gradient is None:
            self._gradient = torch.zeros_like(weights)
        inputs, wanted = torch.randn(2, self.rows, self.width)
        error = inputs @ weights - wanted
        gradient = torch.mm(inputs.T, error, out=self._gradient).div_(self.rows)
        time.sleep(self._sleep_s)
        return Update({"weights": gradient}, loss=float(error.square().sum()) / (2 * self.rows))


def task_of(parameters: int, gradient_s: float, effort: Effort) -> Dense:
    """Return a task whose gradients take about `gradient_s` on one core that nobody else uses.

    Some of a gradient's time does not depend on its rows, so that their number is approached in rounds.
    """
    if effort == "sleep":
        return Dense(parameters, 1, gradient_s)
    task = Dense(parameters)
    for _ in range(_ROUNDS):
        task = Dense(parameters, max(1, math.ceil(task.rows * gradient_s / seconds_of(task))))
    return task


def seconds_of(task: Dense) -> float:
    """Return how long a gradient keeps a core busy, whatever else the machine does."""
    import numpy as np  # noqa: PLC0415  only where it is timed
    import torch  # noqa: PLC0415  likewise

    weights = task.initial()
    taken = []
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in range(_TIMED):
            began = time.thread_time()
            task.compute(weights, None, np.random.default_rng(0))
            taken.append(time.thread_time() - began)
    finally:
        torch.set_num_threads(before)
    return min(taken)
