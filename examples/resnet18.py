"""A ResNet-18 with batch norm, as it is built for small pictures, which learns to read handwritten digits.

The layers are those of He et al., Deep residual learning for image recognition, 2016, table 1; as usual for small
pictures the first convolution is three wide and no pooling follows it.  ``torchvision.models.resnet18`` is trained in
the same way.  Of the running statistics of batch norm, each update keeps the mean over the workers.

``python examples/resnet18.py [SCHEDULER]``; without a scheduler's address, a cluster on this machine is made.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from distributed import Client
from sklearn.datasets import load_digits
from torch import Tensor, nn

import psplatform as ps

WIDTH = 8  # channels of the first stage; the original has 64


def convolution(inputs: int, outputs: int, size: int, stride: int) -> nn.Sequential:
    """Return a convolution with the batch norm that follows it."""
    filters = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    return nn.Sequential(filters, nn.BatchNorm2d(outputs))


class Block(nn.Module):
    """Two convolutions, and a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = convolution(inputs, outputs, 3, stride)
        self.second = convolution(outputs, outputs, 3, 1)
        same = stride == 1 and inputs == outputs
        self.around = nn.Identity() if same else convolution(inputs, outputs, 1, stride)

    def forward(self, maps: Tensor) -> Tensor:
        """Return maps ``float32[B, outputs, height / stride, width / stride]``."""
        return torch.relu(self.second(torch.relu(self.first(maps))) + self.around(maps))


def network() -> nn.Module:
    """Build the model; every process calls this by itself and starts from the same numbers."""
    stages, inputs = [], WIDTH
    for number in range(4):
        outputs = WIDTH * 2**number
        stages += [Block(inputs, outputs, 1 if number == 0 else 2), Block(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(
        convolution(1, WIDTH, 3, 1), nn.ReLU(), *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10)
    )


def pictures() -> tuple[Tensor, Tensor]:
    """Return digits ``float32[1797, 1, 8, 8]`` and what they show, in any order; the data come with scikit-learn."""
    digits, shown = map(torch.from_numpy, load_digits(return_X_y=True))
    order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(1))
    return digits[order].float().reshape(-1, 1, 8, 8) / 16, shown[order]


def job(**changes: Any) -> ps.Job:
    """Describe the training; `changes` are fields that shall be otherwise."""
    x, y = pictures()
    fields: dict[str, Any] = {
        "model": network,
        "loss": nn.functional.cross_entropy,
        "data": (x[:1500], y[:1500]),
        "test": (x[1500:], y[1500:]),
        "optimizer": ps.SGD(lr=0.02, momentum=0.9, weight_decay=5e-4),
        "policy": "bsp",
        "workers": 2,
        "shards": 2,
        "batch_size": 32,
        "evaluate_every": 25,
        "stop": ps.Stop(target_accuracy=0.95, updates=300),
    }
    return ps.Job(**{**fields, **changes})


def main() -> None:
    """Train, then use the model that came out."""
    client = Client(sys.argv[1]) if sys.argv[1:] else None
    with ps.train(job(), client) as run:
        summary = run.wait()
        model = run.model().eval()
    x, y = pictures()
    print(f"accuracy {summary['accuracy']:.3f} after {summary['updates']} updates, {summary['outcome']}")
    print(f"the last picture shows a {int(y[-1])}, and is read as a {int(model(x[-1:]).argmax())}")


if __name__ == "__main__":  # the processes of an embedded cluster import this file
    main()
