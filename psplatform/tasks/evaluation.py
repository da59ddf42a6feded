"""Quality of a module on held-out data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from psplatform.tasks.cancellation import Cancellation
from psplatform.tasks.loss import Loss
from psplatform.tasks.randomness import seeded
from psplatform.tasks.seam import Evaluation
from psplatform.tasks.sources import Source

# Samples evaluated between two looks at the cancellation, and at most held in memory at once.
_CHUNK = 256


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Measures a module on all samples of a source, one chunk after the other.

    The generator is given back after each chunk, so that training in the same process goes on in between; each chunk
    has its own seed, so that the result does not depend on that.
    """

    module: nn.Module
    loss: Loss
    source: Source
    seed: int
    device: torch.device

    def evaluate(self, cancel: Cancellation) -> Evaluation:
        """Return the mean loss, and the accuracy if the targets are class ids.

        The module is in evaluation mode meanwhile.

        Raises
        ------
        Cancelled
            If `cancel` is raised: noticed before each chunk.
        """
        samples = len(self.source)
        loss = torch.zeros((), dtype=torch.float64, device=self.device)
        correct: Tensor | None = torch.zeros((), dtype=torch.int64, device=self.device)
        with _evaluating(self.module):
            for start in range(0, samples, _CHUNK):
                indices = np.arange(start, min(start + _CHUNK, samples), dtype=np.int64)
                with seeded(self.seed + start, self.device, cancel):
                    cancel.check()
                    inputs, targets = (tensor.to(self.device) for tensor in self.source.fetch(indices))
                    outputs = self.module(inputs)
                    loss += self.loss(outputs, targets) * len(indices)
                hits = _hits(outputs, targets)
                correct = None if correct is None or hits is None else correct + hits
        accuracy = None if correct is None else int(correct) / samples
        return Evaluation(loss=float(loss) / samples, accuracy=accuracy)


def _hits(outputs: object, targets: Tensor) -> Tensor | None:
    """Count right predictions where outputs are ``[B, classes]`` and targets class ids ``int64[B]``."""
    if not isinstance(outputs, Tensor) or targets.dtype != torch.int64:
        return None
    batch, *classes = outputs.shape or (0,)
    if len(classes) != 1 or classes[0] == 1 or targets.shape != (batch,):
        return None
    return (outputs.argmax(dim=1) == targets).sum()


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
