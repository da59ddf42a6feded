"""Quality of a module on held-out data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from psplatform.tasks.cancellation import Cancellation
from psplatform.tasks.objectives import Objective
from psplatform.tasks.randomness import seeded
from psplatform.tasks.reading import Reader
from psplatform.tasks.seam import Evaluation

# Samples evaluated between two looks at the cancellation, and at most held in memory at once.
_CHUNK = 256


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Measures a module on all samples of held-out data, one chunk after the other.

    The generator is given back after each chunk, so that training in the same process goes on in between; each chunk
    has its own seed, so that the result does not depend on that.
    """

    module: nn.Module
    objective: Objective
    data: Reader
    seed: int
    device: torch.device

    def evaluate(self, cancel: Cancellation) -> Evaluation:
        """Return the mean loss, and the accuracy where the objective counts right predictions.

        The module is in evaluation mode meanwhile.

        Raises
        ------
        Cancelled
            If `cancel` is raised: noticed before each chunk.
        """
        samples = len(self.data)
        loss = torch.zeros((), dtype=torch.float64, device=self.device)
        correct: Tensor | None = torch.zeros((), dtype=torch.int64, device=self.device)
        with _evaluating(self.module):
            for start in range(0, samples, _CHUNK):
                indices = np.arange(start, min(start + _CHUNK, samples), dtype=np.int64)
                with seeded(self.seed + start, self.device, cancel):
                    cancel.check()
                    mean, hits = self.objective.measure(self.module, self.data.fetch(indices))
                    loss += mean * len(indices)
                correct = None if correct is None or hits is None else correct + hits
        accuracy = None if correct is None else int(correct) / samples
        return Evaluation(loss=float(loss) / samples, accuracy=accuracy)


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part in training:
            part.training = True
