"""Models of some sizes with random samples, for whoever trains them: a name, and a batch size, say which.

=========== ============ =====================================================
``digits``      86 000   the convolutional network of the workload of that name
``mlp``      1 333 000   three dense layers
``resnet``  11 170 000   residual blocks as in ResNet-18, for images of 32 x 32
=========== ============ =====================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from psplatform.workloads.networks import convolutional

CLASSES: Final = 10
_SAMPLES: Final = 512
_WIDTHS: Final = (64, 128, 256, 512)


@dataclass(frozen=True, slots=True)
class Model:
    """A model and the shape of what it takes."""

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]

    def samples(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return random samples, ``float32[512, *shape]``, and their classes: the same each time."""
        random = np.random.default_rng(0)
        inputs = random.standard_normal((_SAMPLES, *self.shape), dtype=np.float32)
        return inputs, random.integers(CLASSES, size=_SAMPLES)


class _Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut (He, Zhang, Ren, Sun, "Deep residual learning", 2016, figure 2)."""

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, filters, 3, stride, 1, bias=False),
            nn.BatchNorm2d(filters),
            nn.ReLU(),
            nn.Conv2d(filters, filters, 3, 1, 1, bias=False),
            nn.BatchNorm2d(filters),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != filters:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, filters, 1, stride, bias=False), nn.BatchNorm2d(filters))

    def forward(self, images: Tensor) -> Tensor:
        """Return ``float32[B, filters, side / stride, side / stride]``."""
        return torch.relu(self.layers(images) + self.shortcut(images))


def _residual() -> nn.Module:
    first = _WIDTHS[0]
    layers: list[nn.Module] = [nn.Conv2d(3, first, 3, 1, 1, bias=False), nn.BatchNorm2d(first), nn.ReLU()]
    channels = first
    for filters in _WIDTHS:
        layers += [_Block(channels, filters, 1 if filters == first else 2), _Block(filters, filters, 1)]
        channels = filters
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


def _dense() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, CLASSES))


MODELS: Final = {
    "digits": Model(partial(convolutional, channels=1, side=8, maximum=16, filters=(32, 64), hidden=128), (1, 8, 8)),
    "mlp": Model(_dense, (784,)),
    "resnet": Model(_residual, (3, 32, 32)),
}
