"""CIFAR-10 from a local folder of its binary version.

A file is a row of records: one byte for the class, then 3 x 32 x 32 bytes of the image, red, green and blue in turn.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from psplatform.errors import ConfigurationError
from psplatform.tasks.supervised import SupervisedTask
from psplatform.workloads.networks import convolutional

_IMAGE = (3, 32, 32)
_RECORD_BYTES = 1 + 3 * 32 * 32
_CLASSES = 10
_UNPACKED = "cifar-10-batches-bin"  # the folder that the archive unpacks to
_PARTS = {"train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)), "test": ("test_batch.bin",)}

Part = tuple[NDArray[np.uint8], NDArray[np.uint8]]


def make(*, folder: str) -> SupervisedTask:
    """Describe the task; the files are read where the data are used."""
    return SupervisedTask(
        model=partial(convolutional, channels=3, side=32, maximum=255, filters=(32, 64), hidden=256),
        loss=cross_entropy,
        data=partial(read_cifar10, folder, "train"),
        test=partial(read_cifar10, folder, "test"),
    )


def read_cifar10(folder: str, part: str) -> Part:
    """Read images ``uint8[N, 3, 32, 32]`` and classes ``uint8[N]`` of the part ``train`` or ``test``.

    Raises
    ------
    ConfigurationError
        With field ``folder``, if a file is missing or damaged.
    """
    root = Path(folder, _UNPACKED) if Path(folder, _UNPACKED).is_dir() else Path(folder)
    batches = [_read_batch(root / name) for name in _PARTS[part]]
    images, labels = zip(*batches, strict=True)
    return np.concatenate(images), np.concatenate(labels)


def _read_batch(path: Path) -> Part:
    try:
        content = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise _unusable(path, "cannot be read", "unpack cifar-10-binary.tar.gz into the folder") from error
    if content.size == 0 or content.size % _RECORD_BYTES:
        reason = f"is truncated: {content.size} bytes are no multiple of {_RECORD_BYTES}"
        raise _unusable(path, reason, "unpack it again")
    records = content.reshape(-1, _RECORD_BYTES)
    labels = records[:, 0]
    if labels.max() >= _CLASSES:
        raise _unusable(path, f"holds the class {labels.max()}, and CIFAR-10 has {_CLASSES}", "use its binary version")
    return records[:, 1:].reshape(-1, *_IMAGE), labels


def _unusable(path: Path, reason: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(f"The file {path} {reason}; {remedy}.", field="folder")
