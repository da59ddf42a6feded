"""Data of every kind yield the same tensors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
import zarr
from torch.utils.data import TensorDataset

from psplatform.errors import ConfigurationError
from psplatform.tasks.sampling import epoch_batch
from psplatform.tasks.sources import as_source

X = np.arange(60, dtype=np.float64).reshape(20, 3)
Y = (np.arange(20) % 4).astype(np.int32)


def _zarr(array: np.ndarray[Any, Any], folder: Path, name: str) -> Any:
    stored = zarr.create_array(folder / name, shape=array.shape, chunks=(4, *array.shape[1:]), dtype=array.dtype)
    stored[:] = array
    return stored


def _dask(array: np.ndarray[Any, Any]) -> Any:
    return dask.array.from_array(array, chunks=7)  # type: ignore[no-untyped-call]  # dask has no types


KINDS: dict[str, Callable[[Path], Any]] = {
    "numpy": lambda _: (X, Y),
    "a list instead of a tuple": lambda _: [X, Y],
    "torch": lambda _: (torch.from_numpy(X), torch.from_numpy(Y)),
    "torch data set": lambda _: TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)),
    "list of samples": lambda _: list(zip(X, Y.tolist(), strict=True)),
    "zarr": lambda folder: (_zarr(X, folder, "x"), _zarr(Y, folder, "y")),
    "dask": lambda _: (_dask(X), _dask(Y)),
    "pandas": lambda _: (pd.DataFrame(X, index=range(50, 70)), pd.Series(Y, index=range(50, 70))),
    "mixed": lambda folder: (_zarr(X, folder, "x"), Y),
    "callable": lambda _: lambda: (X, Y),
    "callable that returns a data set": lambda _: lambda: TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_yields_the_samples_asked_for(kind: str, tmp_path: Path) -> None:
    """Order and repetitions are kept; float64 inputs become float32, integer targets int64."""
    source = as_source(KINDS[kind](tmp_path))
    indices = np.array([7, 0, 19, 7, 3])
    inputs, targets = source.fetch(indices)
    assert len(source) == 20
    assert (inputs.dtype, targets.dtype) == (torch.float32, torch.int64)
    np.testing.assert_array_equal(inputs.numpy(), X[indices])
    np.testing.assert_array_equal(targets.numpy(), Y[indices])


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_takes_the_read_only_batches_of_an_epoch(kind: str, tmp_path: Path) -> None:
    """Batches of the cached permutation are fetched without a warning, and the tensors may be written."""
    indices = epoch_batch(seed=0, epoch=0, number=0, samples=20, batch=8)
    inputs, _ = as_source(KINDS[kind](tmp_path)).fetch(indices)
    np.testing.assert_array_equal(inputs.add_(1).numpy(), X[indices] + 1)
    assert X[0, 0] == 0, "the data themselves are never written"


def test_regression_targets_become_float32() -> None:
    """Float64 targets would make every loss float64."""
    _, targets = as_source((X, X[:, 0])).fetch(np.array([1, 2]))
    assert targets.dtype == torch.float32
    assert targets.tolist() == [3.0, 6.0]


def test_bytes_stay_bytes_as_inputs() -> None:
    """Images may stay uint8 until the model converts them."""
    inputs, targets = as_source((X.astype(np.uint8), Y.astype(bool))).fetch(np.array([1]))
    assert (inputs.dtype, targets.dtype) == (torch.uint8, torch.bool)


def test_chunked_arrays_are_read_once_and_in_order() -> None:
    """Each sample is asked for once per batch, ascending, however the batch orders or repeats it."""
    asked: list[list[int]] = []

    class Orthogonal:
        def __getitem__(self, indices: Any) -> Any:
            asked.append(indices.tolist())
            return X[indices]

    class Chunked:
        shape = X.shape
        oindex = Orthogonal()

    inputs, _ = as_source((Chunked(), Y)).fetch(np.array([9, 2, 9, 5]))
    assert asked == [[2, 5, 9]]
    np.testing.assert_array_equal(inputs.numpy(), X[[9, 2, 9, 5]])


UNUSABLE = {
    "20 inputs but 19 targets": (X, Y[:-1]),
    "no samples": (X[:0], Y[:0]),
    "no dimension": (X, np.array(3)),
    "is a int; hand in": 42,
    "no pairs": [(1.0, 2, 3)],
    "is a str; read it first and hand in": "digits.csv",
    "is a dict; read it first and hand in": {"x": X, "y": Y},
    "inputs are an array of dtype <U1, which torch cannot hold; make numbers of them": (np.full((20, 3), "a"), Y),
    "targets are an array of dtype <U3, which torch cannot hold; .*unique": (X, np.full(20, "dog")),
    "targets are an array of dtype object, which torch cannot hold; .*astype": (X, np.array([1, None] * 10)),
    "inputs are an array of dtype datetime64": (np.zeros((20, 3), "datetime64[s]"), Y),
    "inputs are an array of dtype >f8": (X.astype(">f8"), Y),
    "targets are an array of dtype |S3": (lambda: (_dask(X), _dask(np.full(20, b"dog")))),
    "inputs are a sparse csr_array; hand in inputs.toarray": (scipy.sparse.csr_array(X), Y),
}


@pytest.mark.parametrize("message", UNUSABLE)
def test_unusable_data_are_refused_with_the_remedy(message: str) -> None:
    """The error names the field and what is wrong, at the latest when a sample is read."""
    with pytest.raises(ConfigurationError, match=message) as caught:
        as_source(UNUSABLE[message]).fetch(np.array([0]))
    assert caught.value.field == "data"


def test_a_dask_array_of_unknown_length_is_refused_with_the_remedy() -> None:
    """A filtered dask array does not know how many rows it has."""
    rows = _dask(X)
    with pytest.raises(ConfigurationError, match="compute_chunk_sizes"):
        as_source((rows[rows[:, 0] > 9], Y))


def test_errors_of_the_users_data_pass_unchanged() -> None:
    """What a user's callable raises is the user's."""

    def broken() -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        as_source(broken)
