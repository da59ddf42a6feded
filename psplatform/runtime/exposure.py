"""How a gradient is made reachable for the servers: read where it lies on the same host, sent elsewhere.

A worker has one slab, a whole set of flat vectors its gradients are computed into.  It may write the next gradient
there because it is released only by a commit or a drop of the last one, and pulls a version at which every shard that
committed it has consumed it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import torch
from numpy.typing import NDArray

from psplatform.runtime.content import Vectors
from psplatform.runtime.segments import Segment, SegmentName
from psplatform.tensors.layout import Layout
from psplatform.tensors.vectors import carve, shard_vectors, size_bytes, sizes

_KEPT: Final = 2
"""Pushed gradients kept per member: the one being committed, and one that may follow."""


class Slab:
    """A worker's gradient vectors, in a segment or in private memory."""

    def __init__(self, layout: Layout, segment: Segment | None) -> None:
        self.segment = segment
        size = size_bytes(layout)
        content = torch.zeros(size, dtype=torch.uint8) if segment is None else segment.content
        self.vectors: Vectors = carve(content[:size], sizes(layout))

    @classmethod
    def create(cls, layout: Layout, run: str, *, shared: bool) -> Slab:
        """Make a slab, shared with other processes of this host or not."""
        return cls(layout, Segment.create(run, "slab", size_bytes(layout)) if shared else None)

    @property
    def name(self) -> SegmentName | None:
        """What another process needs to open it, or ``None`` where it is private."""
        return self.segment.name if self.segment is not None else None

    def remove(self) -> None:
        """Remove the segment's name; servers that have it mapped keep it."""
        if self.segment is not None:
            self.segment.remove()


@dataclass
class Exposures:
    """A server's view of what the workers exposed."""

    layout: Layout
    shard: int
    _slabs: dict[str, Vectors] = field(default_factory=dict)
    _pushed: dict[str, dict[int, Vectors]] = field(default_factory=dict)
    _dismissed: dict[str, int] = field(default_factory=dict)
    _counters: dict[tuple[str, int], int] = field(default_factory=dict)

    def attach(self, member: str, name: SegmentName | None) -> bool:
        """Map a worker's slab; return whether this process can see it."""
        segment = Segment.open(name) if name is not None else None
        if segment is None:
            return False
        self._slabs[member] = shard_vectors(self.layout, self.shard, Slab(self.layout, segment).vectors)
        return True

    def keep(self, member: str, sequence: int, arrays: list[NDArray[Any]], counter: int | None = None) -> None:
        """Keep a pushed gradient: this shard's pieces, in the order of the layout's regions.

        One with a `counter` is kept until that version is over, others until two newer ones came.
        """
        keys = [region.key for region in self.layout.regions]
        kept = self._pushed.setdefault(member, {})
        kept[sequence] = {key: torch.from_numpy(array) for key, array in zip(keys, arrays, strict=True)}
        if counter is not None:
            self._counters[member, sequence] = counter
            return
        for old in sorted(kept)[:-_KEPT]:
            del kept[old]

    def find(self, member: str, sequence: int) -> Vectors | None:
        """Return this shard's pieces of a gradient, or ``None`` if it never came."""
        return self._pushed.get(member, {}).get(sequence) or self._slabs.get(member)

    def dismiss(self, member: str, position: int) -> None:
        """Note that no commit after `position` refers to `member`."""
        self._dismissed[member] = position

    def release(self, position: int, version: int = 0) -> None:
        """Drop what no commit after the visible `position`, which made `version`, refers to."""
        for member, sequence in [key for key, counter in self._counters.items() if counter < version]:
            del self._counters[member, sequence]
            self._drop(member, sequence)
        for member in [name for name, last in self._dismissed.items() if last <= position]:
            del self._dismissed[member]
            self._slabs.pop(member, None)
            self._pushed.pop(member, None)

    def _drop(self, member: str, sequence: int) -> None:
        kept = self._pushed.get(member, {})
        kept.pop(sequence, None)
        if not kept:
            self._pushed.pop(member, None)  # perhaps for ever: names are never used again
