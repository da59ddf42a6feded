"""What has come to a worker's process of the gradients that it is to sum: read where it lies on the same host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray

from psplatform.core.protocol.messages import Bundle, Contribution
from psplatform.runtime.dataplane.gradients.gradient_buffers import Slab
from psplatform.runtime.dataplane.pulls.content import Vectors
from psplatform.runtime.dataplane.segments import Segment, SegmentName
from psplatform.tensors.layout import Layout
from psplatform.tensors.sums import add_up
from psplatform.tensors.vectors import allocate

_Part = Vectors | Slab


class Parts:
    """The parts of the bundles that one worker sums, by bundle.

    A part is a copy that was sent, or a slab that this process can see: there the gradient lies whole until its fate is
    decided, or it is sent another way.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._slabs: dict[str, tuple[SegmentName, Slab]] = {}
        self._parts: dict[Bundle, dict[tuple[str, int], _Part]] = {}

    def see(self, bundle: Bundle, member: str, sequence: int, name: SegmentName) -> bool:
        """Take a part where it lies, if this process can see it; return whether it can."""
        known = self._slabs.get(member)
        if known is None or known[0] != name:
            segment = Segment.open(name)
            if segment is None:
                return False
            known = self._slabs[member] = name, Slab(self._layout, segment)
        self._parts.setdefault(bundle, {})[member, sequence] = known[1]
        return True

    def take(self, bundle: Bundle, member: str, sequence: int, arrays: Sequence[NDArray[Any]]) -> None:
        """Take a part that was sent: whole regions, in the order of the layout's."""
        regions = self._layout.regions
        vectors = {one.key: torch.from_numpy(array) for one, array in zip(regions, arrays, strict=True)}
        self._parts.setdefault(bundle, {})[member, sequence] = vectors

    def take_own(self, bundle: Bundle, member: str, sequence: int, vectors: Vectors) -> None:
        """Take a part of this process itself where it lies."""
        self._parts.setdefault(bundle, {})[member, sequence] = vectors

    def add_up(self, bundle: Bundle, gradients: Sequence[Contribution]) -> Vectors | None:
        """Return the sum of gradients whose parts are here, added in this order, in memory of its own.

        ``None`` if one of them is gone: then the bundle was given up.  For another thread, too.
        """
        parts = [self._parts.get(bundle, {}).get((one.member, one.sequence)) for one in gradients]
        found = [
            part.find(one.sequence) if isinstance(part, Slab) else part
            for part, one in zip(parts, gradients, strict=True)
        ]
        there = [vectors for vectors in found if vectors is not None]
        if len(there) < len(gradients):
            return None
        total = allocate(self._layout)
        add_up(there, total)
        whole = all(
            not isinstance(part, Slab) or part.holds(one.sequence) for part, one in zip(parts, gradients, strict=True)
        )
        return total if whole else None

    def forget(self, bundle: Bundle) -> None:
        """Forget what has come of a bundle."""
        self._parts.pop(bundle, None)
        # As long as they are mapped here, the memory of workers that are gone is not free.
        gone = [member for member, (_, slab) in self._slabs.items() if slab.segment and not slab.segment.exists]
        for member in gone:
            del self._slabs[member]
