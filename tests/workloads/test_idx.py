"""IDX files are read whole or refused by name."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psplatform.errors import ConfigurationError
from psplatform.tasks.data.sources import as_source
from psplatform.workloads.idx import read_idx
from psplatform.workloads.registry import find_workload

IMAGES = np.arange(3 * 28 * 28, dtype=np.uint32).reshape(3, 28, 28).astype(np.uint8)
LABELS = np.array([3, 1, 2], dtype=np.uint8)


def idx(array: np.ndarray[Any, Any], code: int = 0x08) -> bytes:
    header = struct.pack(f">HBB{array.ndim}I", 0, code, array.ndim, *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


@pytest.mark.parametrize(
    ("code", "dtype"),
    [(0x08, "u1"), (0x09, "i1"), (0x0B, "i2"), (0x0C, "i4"), (0x0D, "f4"), (0x0E, "f8")],
)
def test_every_element_type_is_read_in_native_order(tmp_path: Path, code: int, dtype: str) -> None:
    """Files are big-endian; arrays are not, and they may be written."""
    array = np.array([[1, -2, 100]]).astype(dtype)
    (tmp_path / "f").write_bytes(idx(array, code))
    read = read_idx(tmp_path / "f", dimensions=2)
    np.testing.assert_array_equal(read, array)
    assert read.dtype == np.dtype(dtype)
    assert read.dtype.isnative
    assert read.flags.writeable


GOOD = idx(IMAGES)
DAMAGED: dict[str, bytes] = {
    "does not start like an IDX file .magic missing": b"",
    "does not start like an IDX file .magic 504b0304": b"PK\x03\x04zip",
    "does not start like an IDX file .magic 01000803": b"\1" + GOOD[1:],
    "does not start like an IDX file .magic 00000703": b"\0\0\x07" + GOOD[3:],
    "has 1 dimensions where 3 are due": idx(LABELS),
    "truncated or damaged: 10 bytes": GOOD[:10],
    "truncated or damaged: 2367 bytes where 2368 are due": GOOD[:-1],
    "truncated or damaged: 2369 bytes where 2368 are due": GOOD + b"\0",
    "cannot be read .Compressed file ended": gzip.compress(GOOD)[:-20],
    "cannot be read .CRC check failed": gzip.compress(GOOD)[:-8] + b"\0" * 8,
}


@pytest.mark.parametrize("message", DAMAGED)
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, message: str) -> None:
    """The error says which file, what is wrong with it, and what to do."""
    path = tmp_path / "damaged"
    path.write_bytes(DAMAGED[message])
    with pytest.raises(ConfigurationError, match=message) as caught:
        read_idx(path, dimensions=3)
    assert caught.value.field == "folder"
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_mnist_is_read_from_plain_and_compressed_files(tmp_path: Path, suffix: str) -> None:
    """Images come as bytes with one channel, labels as class ids."""
    for part in ("train", "t10k"):
        for kind, array in (("images-idx3", IMAGES), ("labels-idx1", LABELS)):
            content = idx(array)
            (tmp_path / f"{part}-{kind}-ubyte{suffix}").write_bytes(gzip.compress(content) if suffix else content)
    task = find_workload("mnist").make({"folder": str(tmp_path)})
    for data in (task.data, task.test):
        inputs, targets = as_source(data).fetch(np.array([2, 0]))
        np.testing.assert_array_equal(inputs.numpy(), IMAGES[[2, 0], None])
        assert targets.tolist() == [2, 3]
        assert task.model()(inputs).shape == (2, 10)


def test_a_missing_folder_is_refused_by_name(tmp_path: Path) -> None:
    """The error says what belongs there."""
    folder = tmp_path / "absent"
    task = find_workload("mnist").make({"folder": str(folder)})
    with pytest.raises(ConfigurationError, match="no train-images-idx3-ubyte") as caught:
        as_source(task.data)
    assert caught.value.field == "folder"
    assert str(folder) in str(caught.value)


def test_a_folder_of_half_a_data_set_is_refused_by_name(tmp_path: Path) -> None:
    """Images without their labels are of no use."""
    (tmp_path / "train-images-idx3-ubyte").write_bytes(GOOD)
    with pytest.raises(ConfigurationError, match="no train-labels-idx1-ubyte"):
        as_source(find_workload("mnist").make({"folder": str(tmp_path)}).data)
