"""What a worker computes on: a copy of what it pulled, or the very memory in which its server shows that.

Where nothing may be made of a gradient before every worker has computed one (`Traits.awaits_all`), a version stays as
it is until the worker has computed on it, so that no copy is needed.  The two exceptions are noticed:

* A worker that was taken for lost is passed by.  The tag of the version tells that afterwards; then the gradient is of
  no version, and is computed again on a copy.
* A model may write to its own parameters while it computes.  The memory is mapped so that this changes a page of the
  worker's own (copy on write); such pages would hide later versions, so from then on the worker computes on copies.

Buffers, which models write to all the time, are always copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray

from psplatform.core.protocol.messages import Pulled
from psplatform.runtime.dataplane.pulls.content import Answer, Content, Vectors
from psplatform.tensors.layout import Layout
from psplatform.tensors.vectors import allocate, shard_vectors, torch_dtype


class Parameters:
    """Vectors of whole regions that pulls are copied into.

    Parameters
    ----------
    whole
        Whether nothing is computed on them before every shard that was asked for is there: only then a shard may arrive
        in them little by little.

    Attributes
    ----------
    vectors
        What was pulled.
    borrows
        Whether it may lie where a server shows it.
    """

    borrows = False

    @property
    def is_lent(self) -> bool:
        """Whether the vectors lie where a server shows them."""
        return False

    def __init__(self, layout: Layout, vectors: Vectors | None = None, *, whole: bool = True) -> None:
        self._whole = whole
        self.vectors: Vectors = allocate(layout) if vectors is None else vectors
        self._pieces = [shard_vectors(layout, shard, self.vectors) for shard in range(layout.shards)]

    def take(self, pulled: Pulled, content: Content | None, answer: Answer) -> bool:
        """Take what was pulled, out of a server's content or of its answer; return whether it was there."""
        into = self._pieces[pulled.shard]
        if content is not None:
            return content.read(answer.copy, pulled.version, pulled.epoch, into)
        for vector, array in zip(into.values(), answer.arrays, strict=True):
            vector.copy_(torch.from_numpy(array))
        return True

    def room(self, shard: int) -> Sequence[NDArray[Any]] | None:
        """Return where the content of a shard is read into that is sent here, by region; ``None`` where it is taken.

        What has been read there need not be taken.
        """
        return [vector.numpy() for vector in self._pieces[shard].values()] if self._whole else None

    def piece(self, shard: int) -> Vectors:
        """Return a shard's pieces of the vectors."""
        return self._pieces[shard]

    async def meet(self, content: Content) -> None:
        """Prepare for pulls out of a server's content."""

    def forget(self, content: Content) -> None:
        """Undo that, before the content is unmapped."""

    def close(self) -> None:
        """Forget all contents."""

    def has_changed(self) -> bool:
        """Whether what was pulled was written over by its server meanwhile; then pulls are copied from now on."""
        return False

    def look_after(self) -> None:
        """Look whether the model has written to its parameters; then pulls are copied from now on."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a version lies."""

    content: Content
    copy: int
    version: int
    epoch: int

    def holds(self) -> bool:
        return self.content.holds(self.copy, self.version, self.epoch)


class BorrowedParameters(Parameters):
    """Vectors of a single shard that lie where its server shows them, if they can be read there; see the module."""

    borrows = True

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._buffers = {
            region.key: torch.zeros(region.size, dtype=torch_dtype(region.dtype))
            for region in layout.regions
            if region.kind == "buffer"
        }
        self._own: Parameters | None = None
        self._place: _Place | None = None
        self._views: tuple[Content, tuple[Vectors, Vectors]] | None = None
        self._copied_from: Content | None = None
        self._copies_from_now_on = False
        self.vectors = {**allocate(layout), **self._buffers}

    @property
    def is_lent(self) -> bool:
        """Whether the vectors lie where a server shows them."""
        return self._place is not None

    def take(self, pulled: Pulled, content: Content | None, answer: Answer) -> bool:
        """Take what was pulled, out of a server's content or of its answer; return whether it was there."""
        if content is None or self._copies_from_now_on:
            return self._copy(pulled, content, answer)
        place = _Place(content, answer.copy, pulled.version, pulled.epoch)
        if not place.holds():
            return False
        for key, buffer in self._buffers.items():
            buffer.copy_(content.copies[answer.copy][key])
        if self._views is None or self._views[0] is not content:
            first, second = content.copies
            self._views = content, ({**first, **self._buffers}, {**second, **self._buffers})
        self._place, self._own, self._copied_from = place, None, None
        self.vectors = self._views[1][answer.copy]
        return place.holds()

    def _copy(self, pulled: Pulled, content: Content | None, answer: Answer) -> bool:
        own = self._turn_to_own()
        if content is not None and content is not self._copied_from:
            content.forget_what_was_written_here()
            self._copied_from = content
        return own.take(pulled, content, answer)

    def _turn_to_own(self) -> Parameters:
        self._place = self._views = None
        if self._own is None:
            self._own = Parameters(self._layout, {**allocate(self._layout), **self._buffers})
        self.vectors = self._own.vectors
        return self._own

    def room(self, shard: int) -> Sequence[NDArray[Any]] | None:
        """Return the vectors of this process, which are computed on from now on."""
        return self._turn_to_own().room(shard)

    def piece(self, shard: int) -> Vectors:
        """Return a shard's pieces of the vectors."""
        return self.vectors

    def has_changed(self) -> bool:
        """Whether what was pulled was written over by its server meanwhile; then pulls are copied from now on."""
        changed = self._place is not None and not self._place.holds()
        self._copies_from_now_on |= changed
        return changed

    def look_after(self) -> None:
        """Look whether the model has written to its parameters; then pulls are copied from now on."""
        if self._place is not None and self._place.content.was_written_to_here:
            self._copies_from_now_on = True
