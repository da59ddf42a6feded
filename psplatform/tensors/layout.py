"""Where each tensor of a model lies in the flat vectors, and which shard owns which elements.

Rules
-----
* Each (kind, dtype) is one *region*: one flat vector.  Parameters lie in it by (group, given order), so that a
  parameter group is one run of elements; buffers lie in the order given.
* A region is cut into *blocks* of equal size (the last may be shorter).  Their size depends on the region alone, never
  on the number of shards: it is `block_elements`, halved until the region has `BLOCKS_AT_LEAST` blocks or blocks of one
  element.  So up to that many shards each get a share of a region, as far as its elements reach.
* A shard owns consecutive whole blocks.  Two layouts of the same specs differ in these cuts, not in the element order.

Nothing here needs torch: the coordinator and stores read layouts too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from psplatform.errors import ConfigurationError, InvariantViolation

Kind = Literal["parameter", "buffer"]

ITEM_BYTES = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8,
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8,
}  # fmt: skip
TRAINABLE = ("float32", "float64")
"""Dtypes of parameters.  In half precision torch rounds the end of a vector differently from its middle, so the result
would depend on the cut; besides, steps smaller than half precision resolves would be lost."""

BLOCKS_AT_LEAST = 256
"""Large enough that shards differ little in size, small enough that a list of a region's blocks stays cheap."""

LARGEST_BLOCK = 1 << 24
"""A block's sum of squares is formed within one thread's share of work, see `norms`."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor of a model, by name, as the platform needs to know it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: Kind
    group: int = 0

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Entry:
    """The place of one tensor in its region: `size` elements from `start` on, in row-major order."""

    name: str
    shape: tuple[int, ...]
    start: int
    size: int
    group: int


@dataclass(frozen=True, slots=True)
class Region:
    """One flat vector, such as `"parameter.float32"`, and the tensors that lie in it."""

    key: str
    kind: Kind
    dtype: str
    size: int
    entries: tuple[Entry, ...]

    @classmethod
    def of(cls, kind: Kind, dtype: str, specs: Iterable[TensorSpec]) -> Region:
        """Lay the specs one after the other."""
        entries, start = [], 0
        for spec in specs:
            entries.append(Entry(spec.name, spec.shape, start, spec.size, spec.group))
            start += spec.size
        return cls(f"{kind}.{dtype}", kind, dtype, start, tuple(entries))


@dataclass(frozen=True, slots=True)
class Span:
    """A run of elements of one parameter group, relative to the piece it lies in."""

    group: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The regions of a model and their cut into shards and blocks."""

    regions: tuple[Region, ...]
    shards: int
    block_elements: int

    def __post_init__(self) -> None:
        block = self.block_elements
        if self.shards < 1:
            raise ConfigurationError(
                f"The number of shards must be at least 1, not {self.shards}; try 1.", field="shards"
            )
        if not 1 <= block <= LARGEST_BLOCK or block & (block - 1):
            message = f"block_elements must be a power of two up to {LARGEST_BLOCK}, not {block}; try 65536."
            raise ConfigurationError(message, field="block_elements")

    @classmethod
    def of(cls, specs: Sequence[TensorSpec], *, shards: int, block_elements: int = 65536) -> Layout:
        """Lay out the tensors of a model.

        Raises
        ------
        ConfigurationError
            If a name occurs twice or a dtype cannot be laid out, or if a number is out of range.
        """
        _check_specs(specs)

        def place(spec: TensorSpec) -> tuple[bool, str, int]:
            return spec.kind == "buffer", spec.dtype, spec.group if spec.kind == "parameter" else 0

        def region(spec: TensorSpec) -> tuple[Kind, str]:
            return spec.kind, spec.dtype

        ordered = sorted(specs, key=place)  # stable: the order given decides the rest
        regions = tuple(Region.of(*which, members) for which, members in groupby(ordered, key=region))
        return cls(regions, shards, block_elements)

    def region(self, key: str) -> Region:
        """Return the region of that key."""
        for region in self.regions:
            if region.key == key:
                return region
        raise InvariantViolation(f"the layout has no region {key!r}")

    def block_size(self, region_key: str) -> int:
        """Return the elements per block of a region, a power of two."""
        size, block = self.region(region_key).size, self.block_elements
        while block > 1 and block * BLOCKS_AT_LEAST > size:
            block //= 2
        return block

    def piece(self, shard: int, region_key: str) -> slice:
        """Return the elements of a region that a shard owns: consecutive whole blocks, maybe none."""
        if not 0 <= shard < self.shards:
            raise InvariantViolation(f"there is no shard {shard} among {self.shards}")
        size, block = self.region(region_key).size, self.block_size(region_key)
        blocks = -(-size // block)
        start, stop = (min(size, block * (number * blocks // self.shards)) for number in (shard, shard + 1))
        return slice(start, stop)

    def blocks(self, shard: int, region_key: str) -> tuple[slice, ...]:
        """Return the blocks of a shard's piece, relative to the region."""
        piece, block = self.piece(shard, region_key), self.block_size(region_key)
        return tuple(slice(start, min(start + block, piece.stop)) for start in range(piece.start, piece.stop, block))

    def spans(self, shard: int, region_key: str) -> tuple[Span, ...]:
        """Return the runs of equal parameter group in a shard's piece, relative to the piece."""
        piece = self.piece(shard, region_key)
        parts = []
        for entry in self.region(region_key).entries:
            start, stop = max(entry.start, piece.start), min(entry.start + entry.size, piece.stop)
            if start < stop:
                parts.append(Span(entry.group, start - piece.start, stop - piece.start))
        runs = [list(run) for _, run in groupby(parts, key=lambda part: part.group)]
        return tuple(Span(run[0].group, run[0].start, run[-1].stop) for run in runs)

    @property
    def parameters(self) -> int:
        """Number of trainable elements."""
        return sum(region.size for region in self.regions if region.kind == "parameter")

    @property
    def most_shards(self) -> int:
        """The largest number of shards that each hold a parameter: that of the blocks of the largest such region."""
        regions = [one for one in self.regions if one.kind == "parameter"]
        return max((-(-one.size // self.block_size(one.key)) for one in regions), default=0)

    @property
    def nbytes(self) -> int:
        """Bytes of one copy of all regions."""
        return sum(region.size * ITEM_BYTES[region.dtype] for region in self.regions)

    def describe(self) -> str:
        """Return one line for people."""
        regions = ", ".join(f"{region.key} {region.size:,}" for region in self.regions)
        return f"{self.parameters:,} parameters in {self.shards} shard{'s' * (self.shards > 1)} ({regions})"

    def to_plain(self) -> dict[str, Any]:
        """Return the layout as a dict of numbers, strings and lists."""
        regions = [
            {
                "kind": region.kind,
                "dtype": region.dtype,
                "tensors": [[entry.name, list(entry.shape), entry.group] for entry in region.entries],
            }
            for region in self.regions
        ]
        return {"shards": self.shards, "block_elements": self.block_elements, "regions": regions}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Layout:
        """Return the layout that `to_plain` described."""
        specs = [
            TensorSpec(name, tuple(shape), region["dtype"], region["kind"], group)
            for region in plain["regions"]
            for name, shape, group in region["tensors"]
        ]
        return cls.of(specs, shards=plain["shards"], block_elements=plain["block_elements"])


def _check_specs(specs: Sequence[TensorSpec]) -> None:
    seen: set[str] = set()
    for spec in specs:
        if spec.name in seen:
            raise ConfigurationError(f"Two tensors are named {spec.name!r}; rename one.", field="model")
        seen.add(spec.name)
        if spec.dtype not in ITEM_BYTES:
            remedy = f"use one of {', '.join(ITEM_BYTES)}"
            raise ConfigurationError(f"The tensor {spec.name!r} is of dtype {spec.dtype}; {remedy}.", field="model")
        if spec.kind == "parameter" and spec.dtype not in TRAINABLE:
            remedy = "keep parameters in float32 (torch.autocast computes in lower precision)"
            raise ConfigurationError(f"The parameter {spec.name!r} is of dtype {spec.dtype}; {remedy}.", field="model")
