"""The networks the workloads train."""

from __future__ import annotations

import torch
from torch import nn

_IMAGE_CLASSES = 10  # of all three image workloads
_DROPOUT = 0.25


class Centred(nn.Module):
    """Pixels of any dtype from 0 to `maximum` become float32 from -1 to 1, so that data stay bytes until used."""

    def __init__(self, maximum: int) -> None:
        super().__init__()
        self._half = maximum / 2

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return ``float32`` of the same shape."""
        return pixels.float() / self._half - 1


def convolutional(*, channels: int, side: int, maximum: int, filters: tuple[int, int], hidden: int) -> nn.Module:
    """Build a classifier of images ``[B, channels, side, side]``: two 5x5 convolutions, each pooled, two dense layers.

    It is the shape of LeNet-5 (LeCun, Bottou, Bengio and Haffner, Gradient-based learning applied to document
    recognition, 1998) with rectifiers, maximum pooling, padding that keeps the side before each pooling, a little
    dropout before the dense layers, and weights as He, Zhang, Ren and Sun (Delving deep into rectifiers, 2015, eq. 10)
    draw them: it learns from the first update on, also under stale gradients.
    """
    first, second = filters
    network = nn.Sequential(
        Centred(maximum),
        nn.Conv2d(channels, first, kernel_size=5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(first, second, kernel_size=5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(_DROPOUT),
        nn.Linear(second * (side // 4) ** 2, hidden),
        nn.ReLU(),
        nn.Dropout(_DROPOUT),
        nn.Linear(hidden, _IMAGE_CLASSES),
    )
    for layer in network:
        if isinstance(layer, nn.Conv2d | nn.Linear) and layer.bias is not None:
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
    return network


def perceptron(*, dimension: int, hidden: int, classes: int) -> nn.Module:
    """Build a classifier of vectors ``[B, dimension]`` with one hidden layer."""
    return nn.Sequential(nn.Linear(dimension, hidden), nn.ReLU(), nn.Linear(hidden, classes))


class Scaled(nn.Module):
    """Pixels of any dtype from 0 to `maximum` become float32 from 0 to 1."""

    def __init__(self, maximum: int) -> None:
        super().__init__()
        self._maximum = maximum

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return ``float32`` of the same shape."""
        return pixels.float() / self._maximum


def of_pixels(*, side: int, maximum: int, hidden: int) -> nn.Module:
    """Build a classifier of images ``[B, 1, side, side]`` with one hidden layer."""
    layers = perceptron(dimension=side * side, hidden=hidden, classes=_IMAGE_CLASSES)
    return nn.Sequential(Scaled(maximum), nn.Flatten(), layers)
