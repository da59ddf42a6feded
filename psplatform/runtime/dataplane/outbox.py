"""What a transfer carries, captured where no later step can change it: in a segment that its replica reads.

Each replica has an outbox of its own at its server, made and touched once and used again for every transfer, because
fresh memory costs several times the copying.  Only the server writes there; one that wakes up after it was replaced
spoils nothing, because its replica has state of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from psplatform.runtime.dataplane.segments import Segment, SegmentName
from psplatform.tensors.shares import copy
from psplatform.tensors.vectors import carve, size_bytes_of

Sizes = Mapping[str, tuple[str, int]]


class Outbox:
    """The place from which one replica takes what it is sent.

    Parameters
    ----------
    run, role
        For the segment's name.
    sizes
        Dtype and elements of every vector that there can be.
    shared
        Whether it lies in a segment; else in private memory, from which it is sent.
    """

    def __init__(self, run: str, role: str, sizes: Sizes, *, shared: bool) -> None:
        size = size_bytes_of(sizes)
        self._segment = Segment.create(run, f"outbox-{role}", size) if shared else None
        content = torch.empty(size, dtype=torch.uint8) if self._segment is None else self._segment.content[:size]
        content.zero_()  # touched now, not at the first transfer
        self._vectors = carve(content, sizes)

    @property
    def name(self) -> SegmentName | None:
        """What the replica needs to open it."""
        return self._segment.name if self._segment is not None else None

    def capture(self, vectors: Mapping[str, Tensor]) -> int:
        """Copy vectors here; return their size in bytes."""
        copy(list(vectors.values()), [self._vectors[key] for key in vectors])
        return sum(vector.numel() * vector.element_size() for vector in vectors.values())

    def arrays(self, keys: Sequence[str]) -> list[NDArray[Any]]:
        """Return what lies here under `keys`, to be sent; it must not change before it has arrived."""
        return [self._vectors[key].numpy() for key in keys]

    def remove(self) -> None:
        """Give the place up."""
        if self._segment is not None:
            self._segment.remove()


class Inbox:
    """A server's outbox as its replica sees it."""

    def __init__(self) -> None:
        self._opened: tuple[SegmentName, Segment] | None = None

    def vectors(self, name: SegmentName, sizes: Sizes) -> dict[str, Tensor] | None:
        """Return what lies in the segment of that name, or ``None`` if this process cannot see it."""
        opened = self._opened  # read once: another thread may ask for another server's at the same time
        if opened is None or opened[0] != name:
            segment = Segment.open(name)
            if segment is None:
                return None
            self._opened = opened = name, segment
        return carve(opened[1].content, sizes)
