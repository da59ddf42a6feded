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

_SEQUENCE: Final = 0  # place in the segment's header
_NONE: Final = -1

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

    def begin(self) -> None:
        """Note that what lies here is being written over."""
        if self.segment is not None:
            self.segment.header[_SEQUENCE] = _NONE

    def hold(self, sequence: int) -> None:
        """Note that the gradient of that sequence lies here, whole."""
        if self.segment is not None:
            self.segment.header[_SEQUENCE] = sequence

    def holds(self, sequence: int) -> bool:
        """Whether the gradient of that sequence lies here, whole."""
        return self.segment is not None and int(self.segment.header[_SEQUENCE]) == sequence

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
    _slabs: dict[str, tuple[Slab, SegmentName]] = field(default_factory=dict)
    _pushed: dict[str, dict[int, Vectors]] = field(default_factory=dict)
    _dismissed: dict[str, int] = field(default_factory=dict)
    _counters: dict[tuple[str, int], int] = field(default_factory=dict)

    def attach(self, member: str, name: SegmentName | None) -> bool:
        """Map a worker's slab; return whether this process can see it."""
        segment = Segment.open(name) if name is not None else None
        if segment is None or name is None:
            return False
        slab = Slab(self.layout, segment)
        segment.populate(shard_vectors(self.layout, self.shard, slab.vectors))
        self._slabs[member] = slab, name
        return True

    @property
    def slabs(self) -> dict[str, SegmentName]:
        """The names of the slabs that can be seen, by member."""
        return {member: name for member, (_, name) in self._slabs.items()}

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
        """Return this shard's pieces of a gradient where they lie, or ``None`` if they are not to be had (any more)."""
        pushed = self._pushed.get(member, {}).get(sequence)
        if pushed is not None or not self.has(member, sequence):
            return pushed
        return shard_vectors(self.layout, self.shard, self._slabs[member][0].vectors)

    def has(self, member: str, sequence: int) -> bool:
        """Whether a gradient is to be had, whole."""
        if sequence in self._pushed.get(member, {}):
            return True
        return member in self._slabs and self._slabs[member][0].holds(sequence)

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
