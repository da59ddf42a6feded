"""CIFAR-10 is read whole or refused by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from psplatform.errors import ConfigurationError
from psplatform.tasks.data.sources import as_source
from psplatform.workloads.registry import find_workload

FILES = [f"data_batch_{number}.bin" for number in range(1, 6)] + ["test_batch.bin"]


def write(folder: Path) -> dict[str, NDArray[np.uint8]]:
    """Write files of two records each and return the records."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    records = {name: rng.integers(0, 256, (2, 3073), dtype=np.uint8) for name in FILES}
    for name, rows in records.items():
        rows[:, 0] %= 10
        (folder / name).write_bytes(rows.tobytes())
    return records


@pytest.mark.parametrize("subfolder", ["", "cifar-10-batches-bin"])
def test_files_are_read_in_order(tmp_path: Path, subfolder: str) -> None:
    """The five training files follow one another, and the folder may be the one around the archive's own."""
    records = write(tmp_path / subfolder)
    task = find_workload("cifar10").make({"folder": str(tmp_path)})
    training, test = as_source(task.data), as_source(task.test)
    assert (len(training), len(test)) == (10, 2)
    inputs, targets = training.fetch(np.array([9, 0]))
    np.testing.assert_array_equal(inputs[0].numpy(), records["data_batch_5.bin"][1, 1:].reshape(3, 32, 32))
    assert targets.tolist() == [records["data_batch_5.bin"][1, 0], records["data_batch_1.bin"][0, 0]]
    assert task.model()(inputs).shape == (2, 10)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\0" * 3072, "is truncated: 3072 bytes are no multiple of 3073"),
        (b"", "is truncated: 0 bytes"),
        (b"\x0b" + b"\0" * 3072, "holds the class 11"),
        (None, "cannot be read; unpack cifar-10-binary.tar.gz"),
    ],
)
def test_a_damaged_or_missing_file_is_refused_by_name(tmp_path: Path, content: bytes | None, message: str) -> None:
    """The error says which file, what is wrong with it, and what to do."""
    write(tmp_path)
    path = tmp_path / "data_batch_3.bin"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=message) as caught:
        as_source(find_workload("cifar10").make({"folder": str(tmp_path)}).data)
    assert caught.value.field == "folder"
    assert str(path) in str(caught.value)


def test_a_missing_folder_is_refused_by_name(tmp_path: Path) -> None:
    """Nothing is downloaded in silence."""
    with pytest.raises(ConfigurationError, match="unpack cifar-10-binary"):
        as_source(find_workload("cifar10").make({"folder": str(tmp_path / "absent")}).test)
