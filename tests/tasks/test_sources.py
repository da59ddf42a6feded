"""Data of every kind yield the same tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import dask.array
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
import zarr
from torch import nn
from torch.utils.data import TensorDataset

from psplatform.errors import ConfigurationError
from psplatform.tasks.data.sampling import epoch_batch
from psplatform.tasks.data.sources import as_source
from psplatform.tasks.data.structures import leaves_of

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
    """Order and repetitions are kept, and so are the types of the numbers."""
    source = as_source(KINDS[kind](tmp_path))
    indices = np.array([7, 0, 19, 7, 3])
    inputs, targets = source.fetch(indices)
    assert len(source) == 20
    assert inputs.dtype == torch.float64
    assert targets.dtype == (torch.int64 if kind == "list of samples" else torch.int32)
    np.testing.assert_array_equal(inputs.numpy(), X[indices])
    np.testing.assert_array_equal(targets.numpy(), Y[indices])


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_takes_the_read_only_batches_of_an_epoch(kind: str, tmp_path: Path) -> None:
    """Batches of the cached permutation are fetched without a warning, and the tensors may be written."""
    indices = epoch_batch(seed=0, epoch=0, number=0, samples=20, batch=8)
    inputs, _ = as_source(KINDS[kind](tmp_path)).fetch(indices)
    np.testing.assert_array_equal(inputs.add_(1).numpy(), X[indices] + 1)
    assert X[0, 0] == 0, "the data themselves are never written"


@dataclass(frozen=True)
class Record:
    """Arrays, or a sample, or a batch."""

    x: Any
    y: Any


class Named(NamedTuple):
    """The same as a tuple."""

    x: Any
    y: Any


STRUCTURES: dict[str, Any] = {
    "one array": X,
    "a triple": (X, Y, X[:, 0]),
    "a dict": {"x": X, "y": Y},
    "a dict and targets": ({"x": X, "z": X[:, 1]}, Y),
    "dicts": ({"x": X}, {"y": Y}),
    "nested": ((X, {"z": X[:, :2]}), Y),
    "a named tuple": Named(X, Y),
    "a dataclass": Record({"x": X}, Y),
    "pandas": (pd.DataFrame(X, index=range(40, 20, -1)), pd.Series(Y, index=range(40, 20, -1))),
}


@pytest.mark.parametrize("structure", STRUCTURES)
def test_arrays_in_any_structure_are_columns(structure: str) -> None:
    """A batch has the structure of what was handed in, and the types of its numbers."""
    columns = STRUCTURES[structure]
    source, indices = as_source(columns), np.array([7, 0, 7])
    batch = source.fetch(indices)
    assert len(source) == 20
    assert type(batch) is type(columns) or structure == "one array"
    for leaf, column in zip(leaves_of(batch), leaves_of(columns), strict=True):
        np.testing.assert_array_equal(leaf.numpy(), np.asarray(column)[indices], strict=True)


@pytest.mark.parametrize(
    "sample",
    [
        lambda i: {"x": X[i], "y": int(Y[i])},
        lambda i: ({"x": X[i], "z": X[i, 1]}, int(Y[i])),
        lambda i: (X[i], X[i, 0], int(Y[i])),
        lambda i: Named(X[i], Y[i]),
        lambda i: Record(X[i], {"y": Y[i]}),
        lambda i: {"record": Record(X[i], Y[i]), "z": X[i]},
    ],
    ids=["a dict", "a dict and a target", "a triple", "a named tuple", "a dataclass", "a dataclass in a dict"],
)
def test_samples_may_have_any_structure(sample: Callable[[int], Any]) -> None:
    """A batch has the structure of a sample, with one more dimension in front."""
    batch = as_source([sample(number) for number in range(20)]).fetch(np.array([4, 1]))
    for leaf, fourth, first in zip(*map(leaves_of, (batch, sample(4), sample(1))), strict=True):
        np.testing.assert_array_equal(leaf.numpy(), np.stack([fourth, first]))


def test_a_data_set_written_as_a_dataclass_is_a_data_set() -> None:
    """Its fields are its own affair."""

    @dataclass
    class Squares:
        numbers: Any

        def __len__(self) -> int:
            return len(self.numbers)

        def __getitem__(self, index: int) -> Any:
            return self.numbers[index], self.numbers[index] ** 2

    _, squares = as_source(Squares(X[:, 0])).fetch(np.array([1, 2]))
    assert squares.tolist() == [9.0, 36.0]


def test_a_class_is_a_callable_that_makes_a_data_set() -> None:
    """It has the methods of its instances, but no samples."""

    class Three:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> Any:
            return {"x": float(index)}

    assert as_source(Three).fetch(np.array([2, 0]))["x"].tolist() == [2.0, 0.0]


RAGGED = [{"ids": torch.arange(1, 2 + number)} for number in range(4)]


def padded(samples: list[Any]) -> Any:
    return {"ids": nn.utils.rnn.pad_sequence([sample["ids"] for sample in samples], batch_first=True)}


def test_ragged_sequences_are_put_together_by_collate() -> None:
    """It is called with the list of samples, in the order asked for, repetitions included."""
    source = as_source(RAGGED, padded)
    assert source.fetch(np.array([2, 0, 2]))["ids"].tolist() == [[1, 2, 3], [1, 0, 0], [1, 2, 3]]
    with pytest.raises(ConfigurationError, match=r"do not make a batch \(stack .*give collate=") as caught:
        as_source(RAGGED).fetch(np.array([2, 0]))
    assert caught.value.field == "data"


def test_collate_gets_samples_of_columns_too() -> None:
    """A sample has the structure of the columns."""
    source = as_source({"x": X, "y": Y}, lambda samples: [(int(one["y"]), one["x"].tolist()) for one in samples])
    assert source.fetch(np.array([3, 0])) == [(3, [9.0, 10.0, 11.0]), (0, [0.0, 1.0, 2.0])]


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


class Table:
    """A data set with a shape and rows that are dicts."""

    shape = (20, 2)

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": X[index], "y": Y[index]}


def test_a_table_with_a_shape_is_a_data_set() -> None:
    batch = as_source(Table()).fetch(np.array([3, 1]))
    assert batch["y"].tolist() == [3, 1]


class Rows:
    """An array of a library that knows no more than shape and index."""

    shape = X.shape

    def __getitem__(self, indices: Any) -> Any:
        return X[indices]


def test_an_array_needs_only_a_shape_beside_another() -> None:
    inputs, _ = as_source((Rows(), Y)).fetch(np.array([3, 1, 3]))
    np.testing.assert_array_equal(inputs.numpy(), X[[3, 1, 3]])


class Endless:
    """Samples without number."""

    def __getitem__(self, index: int) -> int:
        return index


UNUSABLE = {
    "data set Endless has no __len__": Endless(),
    "20 inputs but 19 targets": (X, Y[:-1]),
    "no samples": (X[:0], Y[:0]),
    "no dimension": (X, np.array(3)),
    "is a int; hand in": 42,
    "20, 20, 19 entries": {"x": X, "z": (X, Y[:-1])},
    "is a dict that does not hold arrays only": {"x": X, "y": Y.tolist()},
    "is a generator, whose samples have no index": (row for row in X),
    r"do not make a batch \(default_collate": [object()],
    "is a str; read it first and hand in": "digits.csv",
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
