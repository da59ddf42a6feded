"""Handwritten digits that come with scikit-learn: 1797 images of 8x8 pixels; needs no download."""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.nn.functional import cross_entropy

from psplatform.tasks.supervised import SupervisedTask
from psplatform.workloads.networks import convolutional, of_pixels

_TEST_SHARE = 0.2
_SPLIT_SEED = 0  # the same images are held out in every run, whatever its seed


_NETWORKS = {
    "convolutional": partial(convolutional, channels=1, side=8, maximum=16, filters=(32, 64), hidden=128),
    "perceptron": partial(of_pixels, side=8, maximum=16, hidden=32),
}


def make(*, network: str) -> SupervisedTask:
    """Describe the task; `network` is ``convolutional``, or ``perceptron`` with 32 hidden units."""
    return SupervisedTask(model=_NETWORKS[network], loss=cross_entropy, data=training_part, test=held_out_part)


def training_part() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return four fifths of the images, ``uint8[1437, 1, 8, 8]`` from 0 to 16, and their digits."""
    return _split()[0]


def held_out_part() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the other fifth, ``uint8[360, 1, 8, 8]``, with every digit in the same proportion."""
    return _split()[1]


@lru_cache(maxsize=1)
def _split() -> tuple[tuple[NDArray[np.uint8], NDArray[np.int64]], tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    digits = load_digits()
    images = digits.images[:, None].astype(np.uint8)
    train_x, test_x, train_y, test_y = train_test_split(
        images, digits.target, test_size=_TEST_SHARE, stratify=digits.target, random_state=_SPLIT_SEED
    )
    return (train_x, train_y), (test_x, test_y)
