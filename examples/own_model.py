"""A module and a data set of your own, which learns on which of two spirals a point lies.

``python examples/own_model.py [SCHEDULER]``; without a scheduler's address, a cluster on this machine is made.
"""

from __future__ import annotations

import math
import sys

import torch
from distributed import Client
from torch import Tensor, nn
from torch.utils.data import Dataset

import psplatform as ps


class Spirals(Dataset[tuple[Tensor, int]]):
    """Points on two spirals that wind around each other, with a little noise."""

    def __init__(self, points: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.spiral = torch.arange(points) % 2
        radius = torch.rand(points, generator=generator)
        angle = 2.5 * math.pi * radius + math.pi * self.spiral
        noise = 0.02 * torch.randn(points, 2, generator=generator)
        self.points = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1) + noise

    def __len__(self) -> int:
        """Count the points."""
        return len(self.points)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        """Return a point ``float32[2]`` and the spiral it lies on."""
        return self.points[index], int(self.spiral[index])


def network() -> nn.Module:
    """Build the model; every process calls this by itself and starts from the same numbers."""
    return nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))


def main() -> None:
    """Train, then use the model that came out."""
    client = Client(sys.argv[1]) if sys.argv[1:] else None
    job = ps.Job(
        model=network,
        loss=nn.functional.cross_entropy,
        data=Spirals(2000, seed=1),
        test=Spirals(500, seed=2),
        optimizer=ps.Adam(lr=0.01),
        policy="ssp",
        policy_options={"bound": 2},
        workers=2,
        shards=2,
        batch_size=64,
        stop=ps.Stop(target_accuracy=0.98, updates=1500),
    )
    with ps.train(job, client) as run:
        summary = run.wait()
        model = run.model().eval()
    point = torch.tensor([[0.0, 0.6]])
    print(f"accuracy {summary['accuracy']:.3f} after {summary['updates']} updates, {summary['outcome']}")
    print(f"the point (0, 0.6) lies on spiral {int(model(point).argmax())}; the model is in {run.store}")


if __name__ == "__main__":  # the processes of an embedded cluster import this file
    main()
