"""A task as wide as wanted, whose gradient is always there: what remains is the exchange."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from psplatform.tasks.seam import Batch, Task, Update

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor


class Constant(Task):
    """A linear loss: its gradient is ones, at any parameters.

    Parameters
    ----------
    parameters
        Number of float32 parameters.
    """

    samples = 1024

    def __init__(self, parameters: int) -> None:
        self.parameters = parameters
        self._gradient: Tensor | None = None

    def initial(self) -> Mapping[str, Tensor]:
        """Return zeros."""
        import torch  # noqa: PLC0415  torch is not needed to describe the job

        return {"weights": torch.zeros(self.parameters)}

    def compute(self, parameters: Mapping[str, Tensor], batch: Batch, rng: np.random.Generator) -> Update:
        """Return ones."""
        if self._gradient is None:
            import torch  # noqa: PLC0415  see above

            self._gradient = torch.ones(self.parameters)
        return Update({"weights": self._gradient}, loss=float(parameters["weights"][0]))
