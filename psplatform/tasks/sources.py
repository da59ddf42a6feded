"""Samples by index, whatever holds them.

Accepted are a map-style torch data set, a pair (inputs, targets) of NumPy, torch, Zarr or dask arrays or of pandas
frames, and a callable that returns one of these in the process that reads it.  They are recognised by what they can do,
so none of these libraries is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import default_collate

from psplatform.errors import ConfigurationError
from psplatform.tasks.chunks import KeptChunks, lies_on_a_cluster

Indices = NDArray[np.int64]
Fetch = Callable[[Indices], torch.Tensor]
Data = Any  # objects of libraries that need not be installed; told apart at run time

_REMEDY: Final = (
    "hand in a map-style data set, a pair (inputs, targets) of arrays, or a callable that returns one of these"
)


class Source(Protocol):
    """Samples that are fetched by index."""

    def __len__(self) -> int:
        """Count the samples."""

    def fetch(self, indices: Indices) -> tuple[torch.Tensor, torch.Tensor]:
        """Return inputs and targets of the samples, in the order of `indices`, which may repeat."""


def as_source(data: Data) -> Source:
    """Make `data` readable by index.

    Raises
    ------
    ConfigurationError
        If `data` is none of the accepted kinds, is empty, or pairs arrays of different lengths.
    """
    match data:
        case [inputs, targets] if hasattr(inputs, "shape") and hasattr(targets, "shape"):
            return _ArraySource(inputs, targets)
    if isinstance(data, str | bytes | Mapping):
        raise _unusable(f"The data is a {type(data).__name__}; read it first and {_REMEDY}")
    if isinstance(data, list | tuple) and 2 <= len(data) <= 4 and not all(map(_is_pair, data)):
        kinds = " and ".join(type(one).__name__ for one in data)
        raise _unusable(f"The data is a {type(data).__name__} of {kinds}; {_REMEDY}")
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, type):
        return _DatasetSource(data)
    if callable(data):
        return as_source(data())
    raise _unusable(f"The data is a {type(data).__name__}; {_REMEDY}")


def _is_pair(sample: Any) -> bool:
    return isinstance(sample, list | tuple) and len(sample) == 2


class _ArraySource:
    """Inputs and targets in two arrays of one length."""

    def __init__(self, inputs: Data, targets: Data) -> None:
        inputs, targets = _numbers(inputs, "inputs"), _numbers(targets, "targets")
        lengths = _length(inputs), _length(targets)
        if lengths[0] != lengths[1]:
            raise _unusable(f"There are {lengths[0]} inputs but {lengths[1]} targets; hand in one target per input")
        self._length = _positive(lengths[0])
        self._inputs, self._targets = _fetch_from(inputs), _fetch_from(targets)

    def __len__(self) -> int:
        return self._length

    def fetch(self, indices: Indices) -> tuple[torch.Tensor, torch.Tensor]:
        return _as_inputs(self._inputs(indices)), _as_targets(self._targets(indices))


class _DatasetSource:
    """A map-style data set whose samples are pairs (input, target)."""

    def __init__(self, dataset: Data) -> None:
        self._dataset = dataset
        self._length = _positive(len(dataset))

    def __len__(self) -> int:
        return self._length

    def fetch(self, indices: Indices) -> tuple[torch.Tensor, torch.Tensor]:
        match default_collate([self._dataset[index] for index in indices.tolist()]):
            case [torch.Tensor() as inputs, torch.Tensor() as targets]:
                return _as_inputs(inputs), _as_targets(targets)
        raise _unusable("The data set's samples are no pairs (input, target) of numbers; let it return such pairs")


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


def _as_inputs(inputs: torch.Tensor) -> torch.Tensor:
    return inputs.float() if inputs.dtype == torch.float64 else inputs


def _as_targets(targets: torch.Tensor) -> torch.Tensor:
    if targets.dtype == torch.float64:
        return targets.float()
    is_integer = not (targets.is_floating_point() or targets.is_complex() or targets.dtype == torch.bool)
    return targets.long() if is_integer else targets


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
