"""MNIST, or any relative in its format (Fashion-MNIST, KMNIST), from a local folder of IDX files."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from psplatform.errors import ConfigurationError
from psplatform.tasks.supervised import SupervisedTask
from psplatform.workloads.idx import read_idx
from psplatform.workloads.networks import convolutional


def make(*, folder: str) -> SupervisedTask:
    """Describe the task; the files are read where the data are used."""
    return SupervisedTask(
        model=partial(convolutional, channels=1, side=28, maximum=255, filters=(16, 32), hidden=128),
        loss=cross_entropy,
        data=partial(read_mnist, folder, "train"),
        test=partial(read_mnist, folder, "t10k"),
    )


def read_mnist(folder: str, part: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read images ``uint8[N, 1, 28, 28]`` and labels ``uint8[N]`` of the part ``train`` or ``t10k``.

    Raises
    ------
    ConfigurationError
        With field ``folder``, if a file is missing or damaged.
    """
    images = read_idx(_find(Path(folder), f"{part}-images-idx3-ubyte"), dimensions=3)
    labels = read_idx(_find(Path(folder), f"{part}-labels-idx1-ubyte"), dimensions=1)
    return images[:, None], labels


def _find(folder: Path, name: str) -> Path:
    for candidate in (folder / name, folder / f"{name}.gz"):
        if candidate.is_file():
            return candidate
    raise ConfigurationError(
        f"There is no {name} (or {name}.gz) in the folder {folder}; download the four files of MNIST into it.",
        field="folder",
    )
