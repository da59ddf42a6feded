"""The flat vectors of a layout: allocated, carved out of a buffer, viewed by tensor name or by shard.

A *set of vectors* is a dict from region key to a one-dimensional tensor.  With `shard=None` a function speaks of
whole regions, otherwise of that shard's pieces.  Every vector starts at a multiple of `ALIGNMENT` bytes, so that no
two of them share a cache line.
"""

from __future__ import annotations

import contextlib
import math
import mmap
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

import torch
from torch import Tensor

from psplatform.errors import InvariantViolation, ProtocolError
from psplatform.tensors.layout import Kind, Layout, TensorSpec

ALIGNMENT = 64
"""Bytes of a cache line, and of the widest vector register."""

_LARGE_BYTES: Final = 1 << 20
"""Of vectors that it pays not to touch before they are used."""

_CORE_TILE: Final = 1 << 17
"""Elements per core: few enough to stay in its cache from one operation to the next, enough to hide a call's cost."""


def tile() -> int:
    """Return how many elements chains of operations handle at a time."""
    return _CORE_TILE * torch.get_num_threads()


def part_of(vector: Tensor, piece: slice) -> Tensor:
    """Return the elements of a piece: the vector itself where they are all of it, since making a view takes a while."""
    return vector if piece.stop - piece.start == vector.numel() else vector[piece]


def split(vector: Tensor, length: int) -> Sequence[Tensor]:
    """Return a vector in parts of that many elements, the last perhaps shorter: itself where one part is enough."""
    return vector.split(length) if vector.numel() > length else (vector,)


@cache
def torch_dtype(name: str) -> torch.dtype:
    """Return the torch dtype of that name."""
    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype):
        raise InvariantViolation(f"{name!r} is no dtype")
    return dtype


def spec_of(name: str, tensor: Tensor, kind: Kind = "parameter", group: int = 0) -> TensorSpec:
    """Return the spec that describes a tensor."""
    return TensorSpec(name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), kind, group)


def sizes(layout: Layout, shard: int | None = None) -> dict[str, tuple[str, int]]:
    """Return dtype and number of elements of each vector."""
    if shard is None:
        return {region.key: (region.dtype, region.size) for region in layout.regions}
    pieces = {region.key: layout.piece(shard, region.key) for region in layout.regions}
    return {region.key: (region.dtype, pieces[region.key].stop - pieces[region.key].start) for region in layout.regions}


def _offsets(wanted: Mapping[str, tuple[str, int]]) -> tuple[dict[str, int], int]:
    offsets, end = {}, 0
    for key, (dtype, size) in wanted.items():
        offsets[key] = end
        end += math.ceil(size * torch_dtype(dtype).itemsize / ALIGNMENT) * ALIGNMENT
    return offsets, end


def size_bytes(layout: Layout, shard: int | None = None) -> int:
    """Return how many bytes a buffer needs to hold one set of vectors."""
    return _offsets(sizes(layout, shard))[1]


def size_bytes_of(wanted: Mapping[str, tuple[str, int]]) -> int:
    """Return how many bytes a buffer needs to hold vectors of those dtypes and elements."""
    return _offsets(wanted)[1]


def bytes_in(vectors: Mapping[str, Tensor]) -> int:
    """Return how many bytes the elements of vectors take, without what lies between vectors in a buffer."""
    return sum(vector.numel() * vector.element_size() for vector in vectors.values())


def carve(buffer: Tensor, wanted: Mapping[str, tuple[str, int]]) -> dict[str, Tensor]:
    """Return vectors that lie in a buffer one after the other.

    Parameters
    ----------
    buffer
        `uint8[n]` whose first byte is aligned to `ALIGNMENT`, for instance `torch.frombuffer` of shared memory.
    wanted
        What `sizes` returns.
    """
    offsets, end = _offsets(wanted)
    if buffer.dtype != torch.uint8 or buffer.numel() < end or buffer.data_ptr() % ALIGNMENT:
        found = f"{buffer.numel()} {buffer.dtype} at {buffer.data_ptr():#x}"
        raise InvariantViolation(f"the vectors need {end} bytes aligned to {ALIGNMENT}, not {found}")
    vectors = {}
    for key, (name, size) in wanted.items():
        dtype = torch_dtype(name)
        vectors[key] = buffer[offsets[key] : offsets[key] + size * dtype.itemsize].view(dtype)
    return vectors


def allocate(layout: Layout, shard: int | None = None, *, device: str | torch.device = "cpu") -> dict[str, Tensor]:
    """Return a set of vectors in new memory, all zero."""
    size = size_bytes(layout, shard)
    if torch.device(device).type == "cpu" and size >= _LARGE_BYTES:
        buffer = own_pages(size)
    else:
        buffer = torch.zeros(size, dtype=torch.uint8, device=device)
    return carve(buffer, sizes(layout, shard))


def own_pages(size: int) -> Tensor:
    """Return ``uint8[size]`` zeros in whole pages of their own, which the system gives as they are written to."""
    memory = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # of a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8)[:size]


def shard_vectors(layout: Layout, shard: int, vectors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return views of the pieces that a shard owns of whole regions."""
    return {region.key: vectors[region.key][layout.piece(shard, region.key)] for region in layout.regions}


def named_views(layout: Layout, vectors: Mapping[str, Tensor], kind: Kind | None = None) -> dict[str, Tensor]:
    """Return views of whole regions by tensor name, each in its tensor's shape.

    Parameters
    ----------
    kind
        Restricts the views to parameters or to buffers.
    """
    return {
        entry.name: vectors[region.key][entry.start : entry.start + entry.size].view(entry.shape)
        for region in layout.regions
        if kind in (None, region.kind)
        for entry in region.entries
    }


def fill(layout: Layout, vectors: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Copy named tensors into their places in whole regions; every tensor of the layout must be given."""
    for name, view in named_views(layout, vectors).items():
        view.copy_(tensors[name].detach())


def checked_vectors(
    vectors: Mapping[str, Tensor], wanted: Mapping[str, tuple[str, int]], what: str
) -> dict[str, Tensor]:
    """Return the vectors that are wanted, of what is `what` in words.

    Raises
    ------
    ProtocolError
        If one is missing, or of another dtype or number of elements than is wanted.
    """
    for key, (dtype, size) in wanted.items():
        vector = vectors.get(key)
        if vector is None or vector.shape != (size,) or vector.dtype != torch_dtype(dtype):
            found = "nothing" if vector is None else f"{vector.dtype}{list(vector.shape)}"
            raise ProtocolError(
                f"{what} must have {dtype}[{size}] in {key}, not {found}; send pieces of the run's layout."
            )
    return {key: vectors[key] for key in wanted}
