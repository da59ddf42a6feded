"""Quality of a module on held-out data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from psplatform.jobs.metrics import Metric
from psplatform.tasks.cancellation import Cancellation
from psplatform.tasks.data.reading import Reader
from psplatform.tasks.metrics import as_number, begin_measures, require_predictions, right_predictions
from psplatform.tasks.objectives import Objective
from psplatform.tasks.randomness import seeded
from psplatform.tasks.seam import Evaluation

# Samples evaluated between two looks at the cancellation, and at most held in memory at once.
_CHUNK = 256


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Measures a module on all samples of held-out data, or the first `most`, one chunk after the other.

    The generator is given back after each chunk, so that training in the same process goes on in between; each chunk
    has its own seed, so that the result does not depend on that.
    """

    module: nn.Module
    objective: Objective
    data: Reader
    seed: int
    device: torch.device
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    most: int | None = None

    def evaluate(self, cancel: Cancellation) -> Evaluation:
        """Return the mean loss, the accuracy where the outputs are scores of classes, and the metrics.

        The module is in evaluation mode meanwhile.

        Raises
        ------
        Cancelled
            If `cancel` is raised: noticed before each chunk.
        ConfigurationError
            If a metric cannot be made of what the objective tells, or is not a number.
        """
        measures = begin_measures(self.metrics, self.device)
        samples = len(self.data) if self.most is None else min(len(self.data), self.most)
        loss = torch.zeros((), dtype=torch.float64, device=self.device)
        correct: Tensor | None = torch.zeros((), dtype=torch.int64, device=self.device)
        with _evaluating(self.module):
            for start in range(0, samples, _CHUNK):
                indices = np.arange(start, min(start + _CHUNK, samples), dtype=np.int64)
                with seeded(self.seed + start, self.device, cancel):
                    cancel.check()
                    mean, found = self.objective.measure(self.module, self.data.fetch(indices))
                    loss += mean * len(indices)
                require_predictions(self.metrics, found)
                if found is not None:
                    for measure in measures.values():
                        measure.take(found)
                hits = None if found is None else right_predictions(found)
                correct = None if correct is None or hits is None else correct + hits
            mean_loss = float(loss) / samples
            metrics = {name: as_number(name, one.value(mean_loss)) for name, one in measures.items()}
        return Evaluation(mean_loss, None if correct is None else int(correct) / samples, metrics)


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
