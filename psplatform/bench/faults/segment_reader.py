"""Looking into a copy of a shard from beside it: its segment stays readable when its process is gone."""

from __future__ import annotations

from torch import Tensor

from psplatform.errors import ClusterError
from psplatform.runtime.dataplane.pulls.content import Content
from psplatform.runtime.dataplane.segments import Segment, SegmentName
from psplatform.tensors.layout import Layout
from psplatform.tensors.norms import norm, squared_norms

_EPOCH = 0
_TAGS = slice(1, 3)  # of the two copies: the version that each holds

Vectors = dict[str, Tensor]


class SegmentReader:
    """A mapped segment of a copy, which nobody is asked about.

    Raises
    ------
    ClusterError
        If the segment is gone or on another host.
    """

    def __init__(self, layout: Layout, shard: int, name: SegmentName) -> None:
        segment = Segment.open(name)
        if segment is None:
            raise ClusterError(f"the content of shard {shard} at {name.path} cannot be read from here")
        self._header = segment.header
        self._content = Content(layout, shard, segment)
        self._layout = layout

    @property
    def epoch(self) -> int:
        """Under which epoch the content is shown."""
        return int(self._header[_EPOCH])

    @property
    def tags(self) -> tuple[int, int]:
        """The version that each of the two places holds, or -1 while it is written."""
        first, second = (int(tag) for tag in self._header[_TAGS])
        return first, second

    @property
    def place(self) -> int:
        """Where the newest version is."""
        first, second = self.tags
        return 1 if second > first else 0

    @property
    def version(self) -> int:
        """The newest version."""
        return max(self.tags)

    @property
    def divergence(self) -> float:
        """How far replicas in sync can be from the newest version, by the server's account."""
        return self._content.divergence

    def read(self, place: int, into: Vectors) -> int:
        """Copy what is at `place` into `into`; return which version is there afterwards: whole if it was before."""
        for key, vector in self._content.copies[place].items():
            into[key].copy_(vector)
        return self.tags[place]

    def find(self, version: int | None) -> Vectors | None:
        """Return a version where it lies, or ``None`` if it is not there."""
        return dict(self._content.copies[self.tags.index(version)]) if version in self.tags else None

    def distance(self, other: Vectors) -> float:
        """Return the Euclidean distance of the newest version's parameters from those of `other`, in float64."""
        newest = self._content.copies[self.place]
        return norm(
            square
            for region in self._layout.regions
            if region.kind == "parameter"
            for square in squared_norms(
                newest[region.key], self._layout.block_size(region.key), minus=other[region.key]
            )
        )
