"""Updates that are no gradients: the centres of clusters, kept as sums and counts that workers add to.

``python examples/additive_task.py [SCHEDULER]``; without a scheduler's address, a cluster on this machine is made.

The rule is MacQueen's (Some methods for classification and analysis of multivariate observations, 1967): every point
moves the mean of the cluster it is nearest to.  Additions commute, so nobody waits for anybody.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import numpy as np
import torch
from distributed import Client
from torch import Tensor

import psplatform as ps

CENTRES = torch.tensor([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0], [6.0, 6.0]])


class Clusters(ps.Task):
    """Find the four centres that the points were drawn around."""

    samples = 8000

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(3)
        around = torch.arange(self.samples) % len(CENTRES)
        self.points = CENTRES[around] + torch.randn(self.samples, 2, generator=generator)

    def initial(self) -> Mapping[str, Tensor]:
        """Start from one point of each cluster, counted once."""
        return {"sums": self.points[: len(CENTRES)].clone(), "counts": torch.ones(len(CENTRES))}

    def compute(self, parameters: Mapping[str, Tensor], batch: np.ndarray, rng: np.random.Generator) -> ps.Update:
        """Say what the points of the batch add to the sums and counts of the clusters they belong to."""
        points = self.points[torch.from_numpy(batch.copy())]
        distance, nearest = torch.cdist(points, means(parameters)).min(dim=1)
        sums = torch.zeros_like(parameters["sums"]).index_add_(0, nearest, points)
        counts = torch.bincount(nearest, minlength=len(CENTRES)).float()
        return ps.Update({"sums": sums, "counts": counts}, loss=float(distance.square().mean()))

    def evaluate(self, parameters: Mapping[str, Tensor]) -> ps.Evaluation:
        """Measure how far the true centres are from those found."""
        return ps.Evaluation(loss=float(torch.cdist(CENTRES, means(parameters)).min(dim=1).values.max()))


def means(parameters: Mapping[str, Tensor]) -> Tensor:
    """Return the centres that sums and counts stand for."""
    return parameters["sums"] / parameters["counts"][:, None]


def main() -> None:
    """Count everything twice, with three workers that do not wait for each other."""
    client = Client(sys.argv[1]) if sys.argv[1:] else None
    job = ps.Job(
        task=Clusters(),
        optimizer=ps.Additive(),  # w <- w + update; several updates in one commit are summed, not averaged
        policy="asp",
        workers=3,
        batch_size=80,
        stop=ps.Stop(epochs=2),
    )
    with ps.train(job, client) as run:
        summary = run.wait()
        arrays, version = run.parameters()
    found = {name: torch.from_numpy(array) for name, array in arrays.items()}
    counted, applied = int(found["counts"].sum()) - len(CENTRES), summary["applied"] * job.batch_size
    print(f"version {version}: {counted} points counted, {applied} in the updates applied")
    for centre in means(found).tolist():
        print(f"centre ({centre[0]:5.2f}, {centre[1]:5.2f})")


if __name__ == "__main__":  # the processes of an embedded cluster import this file
    main()
