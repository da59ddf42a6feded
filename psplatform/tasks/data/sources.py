"""Samples by index, whatever holds them.

Accepted are

* a map-style data set, torch's or any object with ``__len__`` and ``__getitem__``, a list for example; its samples may
  have any structure (`psplatform.tasks.data.structures`);
* arrays of NumPy, torch, Zarr, dask or pandas with one entry per sample: one array, or a tuple, dict, named tuple or
  dataclass of arrays, nested at will.  A list holds samples, unless it holds just two arrays, inputs and targets; so
  does a tuple in which no item is an array or a dict;
* a torch `DataLoader`, taken by what it wraps (`psplatform.tasks.data.loaders`);
* a callable that returns one of these in the process that reads it.

A batch has the structure of a sample, with one more dimension in front.  Arrays are recognised by what they can do, so
none of their libraries is imported.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from psplatform.errors import ConfigurationError
from psplatform.tasks.data.chunks import KeptChunks, lies_on_a_cluster
from psplatform.tasks.data.loaders import Collate, Data, Loaded, unwrapped, without_index
from psplatform.tasks.data.structures import collated, leaves_of, mapped

Indices = NDArray[np.int64]
Fetch = Callable[[Indices], torch.Tensor]

_REMEDY: Final = (
    "hand in a map-style data set, a pair (inputs, targets) of arrays, a dict of arrays, or a callable that returns "
    "one of these"
)

_PAIR: Final = ("inputs", "targets")
"""What two arrays are called."""


class Source(Protocol):
    """Samples that are fetched by index.

    Attributes
    ----------
    exact
        Whether batches are made by a function of the user's, which chose the types of their numbers.
    """

    exact: bool

    def __len__(self) -> int:
        """Count the samples."""

    def fetch(self, indices: Indices) -> Any:
        """Return the batch of the samples, in the order of `indices`, which may repeat; numbers keep their types."""


def as_source(data: Data, collate: Collate | None = None) -> Source:
    """Make `data` readable by index.

    Parameters
    ----------
    collate
        Makes a batch of a list of samples; without it, what a `DataLoader` has of its own does, or torch's
        `default_collate`.

    Raises
    ------
    ConfigurationError
        If `data` is none of the accepted kinds, is empty, or holds arrays of different lengths.
    """
    data = unwrapped(data)
    if isinstance(data, Loaded):
        return as_source(data.dataset, collate or data.collate)
    if _are_columns(data):
        return _ColumnSource(data, collate)
    if isinstance(data, str | bytes):
        raise _unusable(f"The data is a {type(data).__name__}; read it first and {_REMEDY}")
    if type(data) is tuple and data and (any(map(_is_array, data)) or all(isinstance(one, list) for one in data)):
        kinds = " and ".join(type(one).__name__ for one in data)
        raise _unusable(f"The data is a tuple of {kinds}; let every part be an array with one entry per sample")
    if _is_indexed(data):
        return _DatasetSource(data, collate)
    if callable(data):
        return as_source(data(), collate)
    if isinstance(data, Mapping):
        raise _unusable(
            f"The data is a {type(data).__name__} that does not hold arrays only; let every value be an array with one "
            "entry per sample, or hand in a list of samples"
        )
    if hasattr(data, "__getitem__"):
        raise _unusable(f"The data set {type(data).__name__} has no __len__; let that return the number of its samples")
    if hasattr(data, "__iter__"):
        raise ConfigurationError(without_index(data), field="data")
    raise _unusable(f"The data is a {type(data).__name__}; {_REMEDY}")


class _ColumnSource:
    """Arrays of one length, in any structure."""

    def __init__(self, columns: Data, collate: Collate | None) -> None:
        pair = isinstance(columns, tuple | list) and len(columns) == len(_PAIR)
        arrays = leaves_of(columns, _is_array)
        names = _PAIR if pair and len(arrays) == len(_PAIR) else ["arrays of the data"] * len(arrays)
        arrays = [_numbers(array, name) for array, name in zip(arrays, names, strict=True)]
        lengths = [_length(array) for array in arrays]
        if len(set(lengths)) > 1:
            raise _unusable(_unequal(columns, lengths))
        self._length = _positive(lengths[0])
        numbers = itertools.count()
        self._places = mapped(columns, lambda _: next(numbers), _is_array)  # the structure, which array lies where
        self._collate = collate
        self.exact = collate is not None
        self._fetches = [_fetch_from(array) for array in arrays]

    def __len__(self) -> int:
        return self._length

    def fetch(self, indices: Indices) -> Any:
        tensors = [fetch(indices) for fetch in self._fetches]
        batch = mapped(self._places, tensors.__getitem__)
        if self._collate is None:
            return batch
        return self._collate([mapped(batch, itemgetter(number)) for number in range(len(indices))])


class _DatasetSource:
    """A map-style data set."""

    def __init__(self, dataset: Data, collate: Collate | None) -> None:
        self._dataset, self._collate = dataset, collate
        self.exact = collate is not None
        self._length = _positive(len(dataset))

    def __len__(self) -> int:
        return self._length

    def fetch(self, indices: Indices) -> Any:
        samples = [self._dataset[index] for index in indices.tolist()]
        return _default_batch(samples) if self._collate is None else self._collate(samples)


def _default_batch(samples: list[Any]) -> Any:
    try:
        return collated(samples)
    except (TypeError, RuntimeError, LookupError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        remedy = "give collate=..., a function that makes a batch of a list of samples"
        raise _unusable(f"The samples do not make a batch ({reason}); {remedy}") from error


def _are_columns(data: Data) -> bool:
    if _is_array(data):  # by itself; tables of other libraries have a shape too, but are data sets
        return any(hasattr(data, name) for name in ("dtype", "oindex", "iloc"))
    if isinstance(data, list):
        return len(data) == 2 and all(map(_is_array, data))
    if type(data) is tuple and not any(_is_array(part) or isinstance(part, Mapping) for part in data):
        return False
    if dataclasses.is_dataclass(data) and _is_indexed(data):
        return False  # a data set that is written as a dataclass
    leaves = leaves_of(data, _is_array)
    return bool(leaves) and all(map(_is_array, leaves))


def _is_array(value: Data) -> bool:
    return hasattr(value, "shape")


def _is_indexed(data: Data) -> bool:
    # A class has the methods of its instances; it is a callable that makes one.
    indexed = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    return indexed and not isinstance(data, type | Mapping)


def _numbers(array: Data, name: str) -> Data:
    """Return an array, that of a frame for example, having seen that torch can hold what is in it."""
    if hasattr(array, "to_numpy") and not hasattr(array, "compute"):  # a frame is indexed by its labels otherwise
        array = array.to_numpy()
    if hasattr(array, "toarray"):
        raise _unusable(f"The {name} are a sparse {type(array).__name__}; hand in {name}.toarray()")
    if hasattr(array, "__dask_graph__") and lies_on_a_cluster(array):
        remedy = "hand in the array as it was before persist(), or write it with to_zarr() and hand that in"
        raise _unusable(
            f"The {name} are a dask array that was computed on a cluster, which workers cannot read; {remedy}"
        )
    dtype = getattr(array, "dtype", None)
    if isinstance(dtype, np.dtype):
        try:
            torch.from_numpy(np.empty(0, dtype))
        except (TypeError, ValueError):
            remedy = "such as numpy.unique(y, return_inverse=True)[1] for texts, or array.astype('float32')"
            raise _unusable(
                f"The {name} are an array of dtype {dtype}, which torch cannot hold; make numbers of them, {remedy}"
            ) from None
    return array


def _fetch_from(array: Data) -> Fetch:
    if isinstance(array, torch.Tensor):
        return lambda indices: array[torch.tensor(indices)]  # a copy: indices may be read-only
    if isinstance(array, np.ndarray):
        return lambda indices: torch.from_numpy(array[indices])
    if hasattr(array, "oindex"):
        return _sorted_once(lambda indices: array.oindex[indices])
    if hasattr(array, "blocks") and hasattr(array, "__dask_graph__"):
        return _sorted_once(KeptChunks(array).read)
    if hasattr(array, "compute"):
        return _sorted_once(lambda indices: array[indices].compute())
    return _sorted_once(lambda indices: array[indices])


def _sorted_once(read: Callable[[Indices], Any]) -> Fetch:
    """Read each sample once and in storage order, so that a chunk is opened once, then restore the asked order."""

    def fetch(indices: Indices) -> torch.Tensor:
        unique, position = np.unique(indices, return_inverse=True)
        return torch.from_numpy(np.asarray(read(unique))[position])

    return fetch


def _unequal(columns: Data, lengths: list[int]) -> str:
    if len(lengths) == 2 and isinstance(columns, tuple | list):
        return f"There are {lengths[0]} inputs but {lengths[1]} targets; hand in one target per input"
    counted = ", ".join(map(str, lengths))
    return f"The arrays of the data have {counted} entries; hand in arrays with one entry per sample"


def _length(array: Data) -> int:
    if len(array.shape) == 0:
        raise _unusable("An array of the data has no dimension; its first dimension must count the samples")
    if not isinstance(array.shape[0], int | np.integer):  # dask does not know the length of every array
        remedy = "call compute_chunk_sizes() on it first, or to_dask_array(lengths=True) on a frame"
        raise _unusable(f"The length of a dask array is unknown; {remedy}")
    return int(array.shape[0])


def _positive(length: int) -> int:
    if length == 0:
        raise _unusable("The data holds no samples; hand in at least one")
    return length


def _unusable(reason: str) -> ConfigurationError:
    return ConfigurationError(f"{reason}.", field="data")
