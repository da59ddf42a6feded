"""Handwritten digits that come with scikit-learn: 1797 images of 8x8 pixels; needs no download."""

from __future__ import annotations

import gzip
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from psplatform.tasks.supervised import SupervisedTask
from psplatform.workloads.networks import convolutional, of_pixels

_TRAINING: Final = 1437
"""Images to train on, four fifths; the others are held out."""

_FILE: Final = "datasets/data/digits.csv.gz"
"""Of scikit-learn: one line for each image, of 64 pixels and the digit.  Importing ``sklearn.datasets`` to read it
takes a process as long as all the rest of what a run imports."""

_ORDER: Final = Path(__file__).with_name("digits_order.npy")
"""``uint16[1797]``: which image is in which place, those to train on first, whatever the seed of a run.  Both parts
have every digit in the same proportion: scikit-learn's ``train_test_split(..., test_size=0.2, stratify=digits,
random_state=0)`` has drawn it, as a test checks."""

_NETWORKS = {
    "convolutional": partial(convolutional, channels=1, side=8, maximum=16, filters=(32, 64), hidden=128),
    "perceptron": partial(of_pixels, side=8, maximum=16, hidden=32),
}


def make(*, network: str) -> SupervisedTask:
    """Describe the task; `network` is ``convolutional``, or ``perceptron`` with 32 hidden units."""
    return SupervisedTask(model=_NETWORKS[network], loss=cross_entropy, data=training_part, test=held_out_part)


def training_part() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return four fifths of the images, ``uint8[1437, 1, 8, 8]`` from 0 to 16, and their digits."""
    images, digits = _ordered()
    return images[:_TRAINING], digits[:_TRAINING]


def held_out_part() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the other fifth, ``uint8[360, 1, 8, 8]``, with every digit in the same proportion."""
    images, digits = _ordered()
    return images[_TRAINING:], digits[_TRAINING:]


@lru_cache(maxsize=1)
def _ordered() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    lines = _lines()[np.load(_ORDER)]
    return lines[:, :64].astype(np.uint8).reshape(-1, 1, 8, 8), lines[:, 64].astype(np.int64)


def _lines() -> NDArray[np.int64]:
    found = find_spec("sklearn")
    path = Path(str(found.origin)).parent / _FILE if found is not None else None
    if path is None or not path.is_file():  # kept elsewhere by another version
        from sklearn.datasets import load_digits  # noqa: PLC0415

        digits = load_digits()
        return np.column_stack([digits.data, digits.target]).astype(np.int64)
    with gzip.open(path, "rt", encoding="ascii") as file:
        return np.loadtxt(file, delimiter=",", dtype=np.int64)
