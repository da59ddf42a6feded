"""How a gradient is made reachable for the servers: read where it lies on the same host, sent elsewhere.

A worker has one slab, a whole set of flat vectors its gradients are computed into.  It may write the next gradient
there because it is released only by a commit or a drop of the last one, and pulls a version at which every shard that
committed it has consumed it.

Of gradients that were summed on their way a server has the sum, sent by the worker that summed them.

Replicas that take gradients from the workers may read them later than that.  For them a worker keeps a copy of its last
gradient beside the slab, until it has the next; a reader looks afterwards whether it still is what was looked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from psplatform.core.protocol.messages import Bundle, Contribution
from psplatform.runtime.dataplane.pulls.content import Vectors
from psplatform.runtime.dataplane.segments import Segment, SegmentName
from psplatform.tensors.layout import Layout
from psplatform.tensors.shard import Shard
from psplatform.tensors.vectors import carve, own_pages, shard_vectors, size_bytes, sizes

_SEQUENCE: Final = 0  # places in the segment's header
_COPIED: Final = 1
_NONE: Final = -1

_MOST_LET_GO: Final = 64
"""Names of slabs that are kept for a coordinator that may not have dismissed their workers."""

_KEPT: Final = 2
"""Pushed gradients kept per member: the one being committed, and one that may follow."""


class Slab:
    """A worker's gradient vectors, in a segment or in private memory."""

    def __init__(self, layout: Layout, segment: Segment | None) -> None:
        self.segment = segment
        size = size_bytes(layout)
        content = own_pages(size) if segment is None else segment.content  # a GPU pins whole pages
        self.vectors: Vectors = carve(content[:size], sizes(layout))
        has_copy = content.numel() >= 2 * size
        self.copied: Vectors | None = carve(content[size : 2 * size], sizes(layout)) if has_copy else None

    @classmethod
    def create(cls, layout: Layout, run: str, *, shared: bool, with_copy: bool = False) -> Slab:
        """Make a slab, shared with other processes of this host or not, perhaps with room for a copy beside it."""
        return cls(layout, Segment.create(run, "slab", (1 + with_copy) * size_bytes(layout)) if shared else None)

    def begin(self) -> None:
        """Tag what lies here as being written over."""
        if self.segment is not None:
            self.segment.header[_SEQUENCE] = _NONE

    def hold(self, sequence: int) -> None:
        """Tag what lies here as the gradient of that sequence, whole."""
        if self.segment is not None:
            self.segment.header[_SEQUENCE] = sequence

    def holds(self, sequence: int) -> bool:
        """Whether the gradient of that sequence lies here, whole."""
        return self.segment is not None and int(self.segment.header[_SEQUENCE]) == sequence

    def keep_copy(self, sequence: int) -> None:
        """Copy the gradient of that sequence beside the slab, if there is room and it is not written over meanwhile."""
        if self.segment is None or self.copied is None:
            return
        self.segment.header[_COPIED] = _NONE
        for key, vector in self.vectors.items():
            self.copied[key].copy_(vector)
        if self.holds(sequence):
            self.segment.header[_COPIED] = sequence

    def find(self, sequence: int, *, late: bool = False) -> Vectors | None:
        """Return the gradient of that sequence where it lies; for who may come `late`, the copy if there is one."""
        if late and self.copied is not None and self.segment is not None and self.segment.header[_COPIED] == sequence:
            return self.copied
        return self.vectors if self.holds(sequence) else None

    @property
    def name(self) -> SegmentName | None:
        """What another process needs to open it, or ``None`` where it is private."""
        return self.segment.name if self.segment is not None else None

    def remove(self) -> None:
        """Remove the segment's name; servers that have it mapped keep it."""
        if self.segment is not None:
            self.segment.remove()


@dataclass(frozen=True, slots=True)
class _Seen:
    """A worker's slab that this process can see, and one shard's pieces of it and of the copy beside it."""

    slab: Slab
    name: SegmentName
    pieces: Vectors
    copied: Vectors | None


@dataclass
class GradientBuffers:
    """A server's view of what the workers exposed."""

    layout: Layout
    shard: int
    _slabs: dict[str, _Seen] = field(default_factory=dict)
    _pushed: dict[str, dict[int, Vectors]] = field(default_factory=dict)
    _dismissed: dict[str, int] = field(default_factory=dict)
    _let_go: dict[str, SegmentName] = field(default_factory=dict)
    _term: int = 0
    _counters: dict[tuple[str, int], int] = field(default_factory=dict)
    _sums: dict[Bundle, tuple[Sequence[Contribution], Vectors]] = field(default_factory=dict)

    def attach(self, member: str, name: SegmentName | None) -> bool:
        """Map a worker's slab; return whether this process can see it."""
        segment = Segment.open(name) if name is not None else None
        if segment is None or name is None:
            return False
        slab = Slab(self.layout, segment)
        pieces = shard_vectors(self.layout, self.shard, slab.vectors)
        copied = shard_vectors(self.layout, self.shard, slab.copied) if slab.copied is not None else None
        for vectors in (pieces, copied or {}):
            segment.populate(vectors)
        self._slabs[member] = _Seen(slab, name, pieces, copied)
        return True

    @property
    def wanted(self) -> dict[str, tuple[str, int]]:
        """Dtype and elements of this shard's pieces of a gradient, in their order."""
        return sizes(self.layout, self.shard)

    @property
    def slabs(self) -> dict[str, SegmentName]:
        """The names of the slabs that can be seen, by member."""
        return {member: seen.name for member, seen in self._slabs.items()}

    def keeps(self, member: str, sequence: int) -> bool:
        """Whether a gradient was pushed here, and is kept."""
        return sequence in self._pushed.get(member, {})

    def keep(
        self,
        member: str,
        sequence: int,
        vectors: Vectors,
        counter: int | None = None,
        most: int | None = None,
    ) -> None:
        """Keep a pushed gradient: this shard's pieces.

        One with a `counter` is kept until that version is over, others until two newer ones came.  Beyond `most` of a
        member, the oldest go all the same.
        """
        if self.keeps(member, sequence):  # pushed again, while it may be read
            return
        kept = self._pushed.setdefault(member, {})
        self._forget_sums_before(member, sequence)
        kept[sequence] = vectors
        if counter is not None:
            self._counters[member, sequence] = counter
        most = _KEPT if counter is None else most
        for old in sorted(kept)[: -most if most else 0]:
            del kept[old]
            self._counters.pop((member, old), None)

    def keep_sum(self, bundle: Bundle, gradients: Sequence[Contribution], vectors: Vectors) -> None:
        """Keep the sum of gradients, until something newer comes from one of their workers.

        A worker computes its next gradient only when every shard shows what became of the one before.
        """
        for one in gradients:
            self._forget_sums_before(one.member, one.sequence)
        if bundle not in self._sums:  # else it was sent again, while it may be read
            self._sums[bundle] = gradients, vectors

    def forget_sums(self, gradients: Sequence[Contribution]) -> None:
        """Drop the sums that these were merged from, which is visible."""
        for one in gradients:
            if one.bundle is not None:
                self._sums.pop(one.bundle, None)

    def _forget_sums_before(self, member: str, sequence: int) -> None:
        for bundle, (gradients, _) in list(self._sums.items()):
            if any(one.member == member and one.sequence < sequence for one in gradients):
                del self._sums[bundle]

    def find_source(self, one: Contribution, *, late: bool = False) -> Vectors | None:
        """Return this shard's pieces of what a gradient is merged from, as `find` does: of itself, or of its sum."""
        if one.bundle is None:
            return self.find(one.member, one.sequence, late=late)
        found = self._sums.get(one.bundle)
        return found[1] if found is not None else None

    def find(self, member: str, sequence: int, *, late: bool = False) -> Vectors | None:
        """Return this shard's pieces of a gradient where they lie, or ``None`` if they are not to be had (any more).

        For who may come `late`, in the copy that its worker keeps, if there is one.
        """
        pushed = self._pushed.get(member, {}).get(sequence)
        if pushed is not None or member not in self._slabs:
            return pushed
        seen = self._slabs[member]
        place = seen.slab.find(sequence, late=late)
        return None if place is None else seen.pieces if place is seen.slab.vectors else seen.copied

    def has(self, member: str, sequence: int) -> bool:
        """Whether a gradient is to be had, whole."""
        return self.find(member, sequence) is not None

    def has_all(self, contributions: Sequence[Contribution], *, careful: bool) -> bool:
        """Whether all of those gradients are to be had now, of which those that are read with care may be copies."""
        return all(self.find_source(one, late=careful) is not None for one in contributions)

    def may_come(self, one: Contribution) -> bool:
        """Whether a gradient that is not to be had, or the sum that it is in, may still be pushed here."""
        if one.bundle is not None:
            return one.bundle.aggregator not in self._dismissed
        if one.member in self._slabs or one.member in self._dismissed:
            return False
        return max(self._pushed.get(one.member, ()), default=0) < one.sequence

    def gather(
        self,
        shard: Shard,
        contributions: Sequence[Contribution],
        *,
        careful: bool,
        into: Vectors | None = None,
        updates: int = 1,
    ) -> bool:
        """Let a shard merge gradients `into` vectors, now or in its step; return whether all of them were to be had.

        If `careful`, they may be written over meanwhile: then whether each still is where it was read.  With several
        `updates` they are added up instead (`Shard.gather`).
        """
        sources = list({one.source: one for one in contributions}.values())
        found = [self.find_source(one, late=careful) for one in sources]
        there = [one for one in found if one is not None]
        if len(there) < len(sources):
            return False
        shard.gather(there, copied=careful, into=into, gradients=len(contributions), added=updates > 1)
        if not careful:
            return True
        after = [self.find_source(one, late=True) for one in sources]
        return all(one is before for one, before in zip(after, found, strict=True))

    def dismiss(self, member: str, position: int, term: int = 0) -> None:
        """Drop what `member` exposed once `position` is visible: no later commit of the coordinator of `term` has it.

        For a newer coordinator, if one is known, that member may be there.
        """
        self.heed(term)
        if term == self._term:
            self._dismissed[member] = position

    def release(self, position: int, version: int = 0, term: int = 0) -> None:
        """Drop what no commit of the coordinator of `term` after the visible `position`, of `version`, refers to."""
        self.heed(term)
        for member, sequence in [key for key, counter in self._counters.items() if counter < version]:
            del self._counters[member, sequence]
            self._drop(member, sequence)
        for member in [name for name, last in self._dismissed.items() if last <= position]:
            del self._dismissed[member]
            self._let_go_of(member)
            self._pushed.pop(member, None)
            for bundle, (gradients, _) in list(self._sums.items()):
                if member == bundle.aggregator or any(one.member == member for one in gradients):
                    del self._sums[bundle]

    def heed(self, term: int) -> None:
        """Turn to the coordinator of `term`, if it is newer: it may have members that the one before has dismissed.

        They go on as if they were attached, so the slabs of those that live are opened again.
        """
        if term <= self._term:
            return
        self._term = term
        self._dismissed.clear()
        let_go, self._let_go = self._let_go, {}
        for member, name in let_go.items():
            segment = Segment.open(name) if member not in self._slabs else None
            if segment is not None and segment.owner_lives:
                self.attach(member, name)

    def _let_go_of(self, member: str) -> None:
        seen = self._slabs.pop(member, None)
        if seen is not None:
            self._let_go[member] = seen.name
            for oldest in list(self._let_go)[:-_MOST_LET_GO]:
                del self._let_go[oldest]

    def _drop(self, member: str, sequence: int) -> None:
        kept = self._pushed.get(member, {})
        kept.pop(sequence, None)
        if not kept:
            self._pushed.pop(member, None)  # perhaps for ever: names are never used again
