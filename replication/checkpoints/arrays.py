"""The arrays of a checkpoint as Zarr stores them: which there are, how they are cut into chunks, and their metadata.

Every tensor is one array of the model's shape in format 3 of Zarr, with the codec `bytes` alone.  So a chunk's object
is the chunk's elements and nothing else: row-major, little-endian, filled up with zeros where the array ends inside the
chunk.  The bytes are made here rather than by the Zarr library because a checksum needs each object exactly as it was
written, because the parts of a chunk come from several processes, and because a process that only writes its part
loads no more than NumPy.

A chunk covers a run of consecutive elements: it is cut along one axis, spans all axes behind it, and is of length one
in those before.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from psplatform.tensors.layout import ITEM_BYTES, Entry, Layout, Region

CHUNK_BYTES: Final = 4 << 20
"""Large enough that an object store's time per request hardly shows, small enough that a copy of one costs nothing."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The elements of an array, counted in row-major order, that lie in one object; `capacity` of them have room."""

    key: str
    start: int
    stop: int
    capacity: int


@dataclass(frozen=True, slots=True)
class Grid:
    """The regular cut of an array into chunks."""

    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]

    @classmethod
    def of(cls, shape: tuple[int, ...], limit: int) -> Grid:
        """Cut an array into chunks of about equal size and of at most `limit` elements."""
        axis, run = len(shape), 1
        while axis and run * shape[axis - 1] <= max(1, limit):
            axis -= 1
            run *= shape[axis]
        whole = tuple(max(1, length) for length in shape[axis:])
        if not axis:
            return cls(shape, whole)
        length = shape[axis - 1]
        rows = math.ceil(length / math.ceil(length * run / max(1, limit)))
        return cls(shape, (1,) * (axis - 1) + (max(1, min(rows, limit // run)), *whole))

    @property
    def count(self) -> int:
        """Number of chunks; 0 where there are no elements."""
        return math.prod(-(-length // part) for length, part in zip(self.shape, self.chunk_shape, strict=True))

    def chunks(self, start: int, stop: int) -> Iterator[Chunk]:
        """Yield the chunks that hold any of the elements from `start` to `stop`, in order."""
        while start < stop:
            chunk = self._holding(start)
            yield chunk
            start = chunk.stop

    def _holding(self, element: int) -> Chunk:
        place = [int(index) for index in np.unravel_index(element, self.shape)] if self.shape else []
        corner = [index // length * length for index, length in zip(place, self.chunk_shape, strict=True)]
        ends = [min(c + n, end) for c, n, end in zip(corner, self.chunk_shape, self.shape, strict=True)]
        first = self._flat(corner)
        numbers = [index // length for index, length in zip(corner, self.chunk_shape, strict=True)]
        size = math.prod(end - index for index, end in zip(corner, ends, strict=True))
        return Chunk("/".join(["c", *map(str, numbers)]), first, first + size, math.prod(self.chunk_shape))

    def _flat(self, place: Sequence[int]) -> int:
        return int(np.ravel_multi_index(tuple(place), self.shape)) if self.shape else 0


@dataclass(frozen=True, slots=True)
class Array:
    """One array of a checkpoint: a tensor of the model, or one slot of the optimiser for a parameter.

    Attributes
    ----------
    path
        Its place below the checkpoint's folder.
    slot
        The optimiser's slot, or ``None`` of the model itself.
    region, entry
        Where in the vectors of a shard's state its elements lie.
    """

    path: str
    slot: str | None
    region: Region
    entry: Entry
    grid: Grid

    @classmethod
    def of(cls, slot: str | None, region: Region, entry: Entry, chunk_bytes: int) -> Array:
        """Return the array of a tensor, or of an optimiser's slot for it."""
        folder = "model" if slot is None else f"optimizer/{encoded(slot)}"
        grid = Grid.of(entry.shape, chunk_bytes // ITEM_BYTES[region.dtype])
        return cls(f"{folder}/{encoded(entry.name)}", slot, region, entry, grid)

    @property
    def state_key(self) -> str:
        """The name, in a shard's state, of the vector that the array's elements lie in."""
        return self.region.key if self.slot is None else f"{self.slot}.{self.region.key}"

    @property
    def dtype(self) -> np.dtype[Any]:
        """The elements' type as they are stored."""
        return numpy_dtype(self.region.dtype).newbyteorder("<")

    def owned(self, layout: Layout, shard: int) -> tuple[int, int]:
        """Return which of the array's elements a shard owns, first and last but one; equal numbers if none."""
        piece = layout.piece(shard, self.region.key)
        start = min(max(piece.start - self.entry.start, 0), self.entry.size)
        return start, max(start, min(piece.stop - self.entry.start, self.entry.size))

    def packed(self, values: NDArray[Any], capacity: int) -> bytes | memoryview:
        """Return elements as an object with room for `capacity` of them: in their own memory, where they fill it."""
        padding = (capacity - len(values)) * self.dtype.itemsize
        stored = values.astype(self.dtype, copy=False)
        if not padding and stored.flags.c_contiguous:
            return stored.view(np.uint8).data
        return stored.tobytes() + bytes(padding)

    def metadata(self) -> bytes:
        """Return the array's Zarr metadata."""
        known = {"name": self.entry.name} | ({"bits_of": "bfloat16"} if self.region.dtype == "bfloat16" else {})
        fill = False if self.dtype.kind == "b" else 0.0 if self.dtype.kind == "f" else 0
        return _document(
            node_type="array",
            shape=self.entry.shape,
            data_type=self.dtype.name,
            chunk_grid={"name": "regular", "configuration": {"chunk_shape": self.grid.chunk_shape}},
            chunk_key_encoding={"name": "default", "configuration": {"separator": "/"}},
            fill_value=fill,
            codecs=[{"name": "bytes", "configuration": {"endian": "little"}}],
            attributes={"psplatform": known},
        )


@dataclass(frozen=True, slots=True)
class Contents:
    """What a checkpoint holds: the tensors of a layout, and for each parameter the slots of the optimiser.

    All who write one checkpoint must be given the same.
    """

    layout: Layout
    slots: tuple[str, ...] = ()
    chunk_bytes: int = CHUNK_BYTES

    def arrays(self) -> list[Array]:
        """Return every array: the model's tensors, then slot by slot those of the parameters."""
        return [
            Array.of(slot, region, entry, self.chunk_bytes)
            for slot in (None, *self.slots)
            for region in self.layout.regions
            if slot is None or region.kind == "parameter"
            for entry in region.entries
        ]

    def vectors(self, shard: int) -> dict[str, tuple[str, int]]:
        """Return dtype and number of elements of each vector of a shard's state."""
        model = {r.key: (r.dtype, _length(self.layout.piece(shard, r.key))) for r in self.layout.regions}
        trained = [region.key for region in self.layout.regions if region.kind == "parameter"]
        return model | {f"{slot}.{key}": model[key] for slot in self.slots for key in trained}

    def groups(self) -> list[str]:
        """Return the paths of the Zarr groups that hold the arrays."""
        slots = [f"optimizer/{encoded(slot)}" for slot in self.slots]
        return ["model", *(["optimizer"] if slots else []), *slots]

    def to_plain(self) -> dict[str, Any]:
        """Return the contents as a dict of numbers, strings and lists."""
        return {"layout": self.layout.to_plain(), "slots": list(self.slots), "chunk_bytes": self.chunk_bytes}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Contents:
        """Return the contents that `to_plain` described."""
        return cls(Layout.from_plain(plain["layout"]), tuple(plain["slots"]), plain["chunk_bytes"])


def _length(piece: slice) -> int:
    length: int = piece.stop - piece.start
    return length


def group_metadata(attributes: dict[str, Any]) -> bytes:
    """Return the Zarr metadata of a group."""
    return _document(node_type="group", attributes=attributes)


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return NumPy's type of that name; of bfloat16, which it does not have, the bits."""
    return np.dtype("uint16" if name == "bfloat16" else name)


def encoded(name: str) -> str:
    """Return a tensor's name as the name of a folder; it stays as it is unless a path cannot hold it."""
    # A slash would nest arrays; Zarr keeps zarr.json and names that begin with two underscores for itself.
    path = quote(name, safe="")
    if path in {"", ".", "..", "zarr.json"} or path.startswith("__"):
        return f"%{ord(name[0]):02X}{path[1:]}" if name else "%"
    return path


def _document(**fields: Any) -> bytes:
    return json.dumps({"zarr_format": 3, **fields}, indent=2).encode()
