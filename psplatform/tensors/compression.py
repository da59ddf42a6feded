"""Gradients in fewer bytes.

A worker *compresses* a gradient where it has computed it: elements are rounded, or those that matter least are set to
zero and kept for the next gradient.  From then on that is its gradient for everybody, whether it is read in shared
memory or sent, so that no result depends on which processes share a host.  Where it is sent, it is *packed*: what is
unpacked elsewhere has the same bits.

Only parameters are compressed; buffers, such as the statistics of batch norm, stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from psplatform.jobs.compression import Compression
from psplatform.tensors.norms import squared_norm
from psplatform.tensors.shares import Share, shares, together
from psplatform.tensors.vectors import tile, torch_dtype

Vectors = Mapping[str, Tensor]
Sizes = Mapping[str, tuple[str, int]]
Arrays = list[NDArray[Any]]

_PARAMETER: Final = "parameter"
_HALVES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16}

_SAMPLE: Final = 1 << 20
"""Elements among which the least that is sent is looked for, where there are more."""

_LENGTHS: Final = 2 * 3 * 5 * 7
"""What has no factor in common with it passes through all places of rows and kernels of the usual lengths."""

_LARGEST_INDEX: Final = 1 << 32


class Packing(Protocol):
    """The form in which vectors are sent."""

    def pack(self, vectors: Vectors) -> Arrays:
        """Return vectors as arrays to be sent; what is not packed is the vector itself."""

    def unpack(self, arrays: Sequence[NDArray[Any]], wanted: Sizes) -> dict[str, Tensor]:
        """Return the vectors that were packed, with the same bits.

        Parameters
        ----------
        wanted
            Dtype and elements of each, in their order (`psplatform.tensors.vectors.sizes`).

        Raises
        ------
        ValueError
            If they are not as many, as long and of the dtypes that are wanted.
        """

    def size_bytes(self, wanted: Sizes) -> int:
        """Return about how many bytes vectors of these dtypes and elements are sent in."""


class Unpacked:
    """`Packing` that leaves everything as it is."""

    def pack(self, vectors: Vectors) -> Arrays:
        """Return the vectors themselves."""
        return [vector.numpy() for vector in vectors.values()]

    def unpack(self, arrays: Sequence[NDArray[Any]], wanted: Sizes) -> dict[str, Tensor]:
        """Return the arrays."""
        found = {key: torch.from_numpy(array) for key, array in zip(wanted, arrays, strict=True)}
        return _checked(found, wanted)

    def size_bytes(self, wanted: Sizes) -> int:
        """Return their bytes."""
        return sum(size * torch_dtype(dtype).itemsize for dtype, size in wanted.values())


UNPACKED: Final = Unpacked()


class _Halved:
    """`Packing` of vectors whose elements have been rounded to half precision: the bits of that."""

    def __init__(self, half: torch.dtype) -> None:
        self._half = half

    def pack(self, vectors: Vectors) -> Arrays:
        """Return the bits of parameters, and the rest as it is."""
        return [
            (vector.to(self._half).view(torch.int16) if key.startswith(_PARAMETER) else vector).numpy()
            for key, vector in vectors.items()
        ]

    def unpack(self, arrays: Sequence[NDArray[Any]], wanted: Sizes) -> dict[str, Tensor]:
        """Return the vectors."""
        found = {}
        for (key, (name, _)), array in zip(wanted.items(), arrays, strict=True):
            vector = torch.from_numpy(array)
            if key.startswith(_PARAMETER):
                if vector.dtype != torch.int16:
                    raise ValueError(f"{key} was sent as {vector.dtype} where halves were expected")
                vector = vector.view(self._half).to(torch_dtype(name))
            found[key] = vector
        return _checked(found, wanted)

    def size_bytes(self, wanted: Sizes) -> int:
        """Return two bytes for each element of a parameter, and what the rest takes."""
        rest = {key: one for key, one in wanted.items() if not key.startswith(_PARAMETER)}
        halved = sum(size for key, (_, size) in wanted.items() if key not in rest)
        return UNPACKED.size_bytes(rest) + halved * self._half.itemsize


class _Sparse:
    """`Packing` of vectors most of whose elements are zero: the places of the others, and these.

    Where that would take more bytes, the vector is sent whole, with an empty array of places.
    """

    def __init__(self, fraction: float) -> None:
        self._fraction = fraction

    def pack(self, vectors: Vectors) -> Arrays:
        """Return two arrays for each parameter, and the rest as it is."""
        arrays: Arrays = []
        for key, vector in vectors.items():
            array = vector.numpy()
            if key.startswith(_PARAMETER):
                places = np.flatnonzero(array != 0)
                is_shorter = len(places) * (4 + array.itemsize) < array.nbytes and len(array) < _LARGEST_INDEX
                arrays += [places.astype(np.uint32), array[places]] if is_shorter else [places[:0], array]
            else:
                arrays.append(array)
        return arrays

    def unpack(self, arrays: Sequence[NDArray[Any]], wanted: Sizes) -> dict[str, Tensor]:
        """Return the vectors, whole."""
        expected = sum(1 + key.startswith(_PARAMETER) for key in wanted)
        if len(arrays) != expected:
            raise ValueError(f"{len(arrays)} arrays were sent where {expected} were expected")
        found, given = {}, iter(arrays)
        for key, (name, size) in wanted.items():
            first = next(given)
            if not key.startswith(_PARAMETER):
                found[key] = torch.from_numpy(first)
                continue
            values = torch.from_numpy(next(given))
            if len(values) < size:
                whole = torch.zeros(size, dtype=torch_dtype(name))
                whole.numpy()[first] = values.numpy()
                values = whole
            found[key] = values
        return _checked(found, wanted)

    def size_bytes(self, wanted: Sizes) -> int:
        """Return what places and elements of the fraction that is sent take, and the rest."""
        total = 0.0
        for key, (name, size) in wanted.items():
            each = torch_dtype(name).itemsize
            is_sparse = key.startswith(_PARAMETER)
            total += size * (min(each, self._fraction * (4 + each)) if is_sparse else each)
        return round(total)


def _checked(found: dict[str, Tensor], wanted: Sizes) -> dict[str, Tensor]:
    for key, (name, size) in wanted.items():
        if (found[key].dtype, found[key].numel()) != (torch_dtype(name), size):
            raise ValueError(f"{key} was sent as {found[key].numel()} of {found[key].dtype}, not {size} of {name}")
    return found


def packing_of(compression: Compression) -> Packing:
    """Return the form in which gradients are sent that a worker compresses like that."""
    if compression.kind in _HALVES:
        return _Halved(_HALVES[compression.kind])
    return UNPACKED if compression.fraction is None else _Sparse(compression.fraction)


class Compressor:
    """Compresses the gradients of one worker, one after the other.

    With ``topk`` it keeps back what is not sent, in as much memory as the worker's parameters take (error feedback,
    S. U. Stich, J.-B. Cordonnier and M. Jaggi, "Sparsified SGD with Memory", NeurIPS 2018, algorithm 1).

    Differences from the paper
    --------------------------
    What is kept back (the paper's m) is of gradients, not of steps: it is scaled by the rate of the update that it
    comes to be in, after the servers have averaged, clipped and put it through their optimiser.  The k largest are told
    by a threshold: of many elements it is that of a fixed sample of s, so that k is off by about 1/sqrt(fraction · s)
    of itself; elements that are as large as the least that is sent all are.  A gradient that is lost, or dropped by the
    policy, is lost with what it had of m, and a worker that is replaced with all of it.
    """

    def __init__(self, compression: Compression) -> None:
        self._half = _HALVES.get(compression.kind)
        self._fraction = compression.fraction
        self._kept: dict[str, Tensor] = {}

    def compress(self, vectors: Vectors, squared: float) -> float:
        """Compress a gradient in place; return the sum of its squares.

        Parameters
        ----------
        squared
            The sum before.  A gradient of which it is not finite stays as it is: it is not going to be applied.
        """
        if (self._half is None and self._fraction is None) or not math.isfinite(squared):
            return squared
        chosen = {key: vector for key, vector in vectors.items() if key.startswith(_PARAMETER)}
        if self._half is not None:
            _round(list(chosen.values()), self._half)
        elif self._fraction is not None:
            self._keep_back(chosen, self._fraction)
        return squared_norm(chosen.values())

    def take_back(self, vectors: Vectors) -> None:
        """Keep all of the gradient that was compressed last: nobody is going to get it."""
        for key, kept in self._kept.items():
            kept.add_(vectors[key])

    def _keep_back(self, vectors: Vectors, fraction: float) -> None:
        for key, vector in vectors.items():
            if key in self._kept:
                vector.add_(self._kept[key])
            else:
                self._kept[key] = torch.zeros_like(vector)
        least = _least_sent(list(vectors.values()), fraction)

        def split(part: Tensor, kept: Tensor) -> None:
            stays = part.abs() < least
            kept.copy_(part).masked_fill_(~stays, 0.0)
            part.masked_fill_(stays, 0.0).add_(0.0)  # of the two zeros only one is told from its being absent

        _each(list(vectors.values()), split, [self._kept[key] for key in vectors])


def _round(vectors: Sequence[Tensor], half: torch.dtype) -> None:
    """Round elements in place; what is larger than the largest becomes that."""
    limit = torch.finfo(half).max
    _each(vectors, lambda part: part.copy_(part.clamp(-limit, limit).to(half)))


def _least_sent(vectors: Sequence[Tensor], fraction: float) -> float:
    """Return the least magnitude among the largest elements, of a fixed sample where there are many."""
    total = sum(vector.numel() for vector in vectors)
    if not total:
        return 0.0
    step = -(-total // _SAMPLE)
    while step > 1 and math.gcd(step, _LENGTHS) > 1:
        step += 1
    sample = torch.cat([vector[::step].abs().double() for vector in vectors])
    sent = max(1, round(fraction * sample.numel()))
    return float(torch.topk(sample, sent, sorted=False).values.min())


def _each(vectors: Sequence[Tensor], work: Callable[..., object], beside: Sequence[Tensor] | None = None) -> None:
    """Call `work` with each piece of the vectors, and of those beside, that fits a core's cache."""

    def on(share: Share) -> None:
        for number, piece in share:
            for start in range(piece.start, piece.stop, tile()):
                part = slice(start, min(start + tile(), piece.stop))
                others = () if beside is None else (beside[number][part],)
                work(vectors[number][part], *others)

    together(on, shares([vector.numel() for vector in vectors]))
