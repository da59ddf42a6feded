"""A shard's published content: two copies side by side, one shown while the next is written.

On one host both lie in a segment.  Each copy carries a tag, the version it holds, or -1 while it is written.  A reader
copies and then looks at the tag again: if it changed, what was read is no version at all and is read again.  The epoch
of the server is in the header, so that a server that wakes up after its replica was promoted misleads nobody; and so is
is what its account says of its replicas' divergence, for those that look at what a lost server has left.

A reader need not ask for what is shown already.  The header says until when the server would answer pulls, by the
clock of the host, and what with; and the kernel, whether the server's process is dying.  A reader checks the time
first, then the process, then the tags: when it checked, no replica had been promoted because of that death.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from psplatform.core.protocol.messages import Pull, Pulled
from psplatform.runtime.dataplane.segments import Place, Segment, SegmentName
from psplatform.tensors.layout import Layout
from psplatform.tensors.vectors import carve, size_bytes, sizes

_WRITING: Final = -1
_EPOCH: Final = 0
_TAGS: Final = 1
_DIVERGENCE: Final = 3
_DECIDED_IN: Final = 4
_ANSWERS_UNTIL: Final = 5

Vectors = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a pull.

    Attributes
    ----------
    pulled
        The protocol's answer, encoded, or ``None`` for "not yet".
    copy
        Which copy of the server's segment holds the version.
    arrays
        The content itself, by region in the order of the layout, where it was asked for.
    """

    pulled: bytes | None
    copy: int = 0
    arrays: tuple[NDArray[Any], ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the fields alone."""
        return Answer, (self.pulled, self.copy, self.arrays)


class Content:
    """The two copies of a shard, as its server writes them or as a reader on the same host sees them."""

    def __init__(self, layout: Layout, shard: int, segment: Segment) -> None:
        self._segment = segment
        self._divergence = segment.header[_DIVERGENCE : _DIVERGENCE + 1].view(np.float64)
        self._answers_until = segment.header[_ANSWERS_UNTIL : _ANSWERS_UNTIL + 1].view(np.float64)
        size, wanted = size_bytes(layout, shard), sizes(layout, shard)
        self._size = size
        self.copies: tuple[Vectors, Vectors] = (
            carve(segment.content[:size], wanted),
            carve(segment.content[size : 2 * size], wanted),
        )

    @classmethod
    def create(cls, layout: Layout, shard: int, run: str, epoch: int) -> Content:
        """Make the segment of a server, showing nothing yet."""
        content = cls(layout, shard, Segment.create(run, f"shard{shard}", 2 * size_bytes(layout, shard)))
        content._segment.header[_EPOCH] = epoch
        content._segment.header[_TAGS : _TAGS + 2] = _WRITING
        content.answer_until(-math.inf, 0)
        return content

    @classmethod
    def open(cls, layout: Layout, shard: int, name: SegmentName, *, private: bool = False) -> Content | None:
        """Map a server's segment, or return ``None`` if this process cannot see it.

        Parameters
        ----------
        private
            Whether what is written to it here is to stay here (`Segment.open`).
        """
        segment = Segment.open(name, private=private)
        if segment is None:
            return None
        content = cls(layout, shard, segment)
        for copy in content.copies:
            segment.populate(copy)
        return content

    @property
    def name(self) -> SegmentName:
        """What another process needs to open it."""
        return self._segment.name

    def place_of(self, vectors: Vectors) -> Place | None:
        """Return where one of the two copies lies; ``None`` for other vectors, or if no other process can see it."""
        if not self.name.path:
            return None
        for copy, lying in enumerate(self.copies):
            if all(lying.get(key) is vector for key, vector in vectors.items()):
                return Place(self.name, copy * self._size)
        return None

    def arrays(self, copy: int) -> tuple[NDArray[Any], ...]:
        """Return the vectors of `copy` where they lie."""
        return tuple(vector.numpy() for vector in self.copies[copy].values())

    @property
    def is_swept(self) -> bool:
        """Whether its server is gone, and the memory is free as soon as nobody has it mapped."""
        return not self._segment.exists

    @property
    def was_written_to_here(self) -> bool:
        """Whether what is read here, through a private mapping, may be what was written here."""
        return self._segment.has_pages_of_its_own

    def forget_what_was_written_here(self) -> None:
        """Read what the server has written, through a private mapping as well."""
        self._segment.forget_pages_of_its_own()

    def belong_to(self, epoch: int) -> None:
        """Show it under that epoch from now on."""
        self._segment.header[_EPOCH] = epoch

    @property
    def divergence(self) -> float:
        """How far the parameters of replicas in sync can be from the newest version; infinity where there are none."""
        return float(self._divergence[0])

    def diverge(self, divergence: float) -> None:
        """Publish how far replicas in sync can be from the newest version."""
        self._divergence[0] = divergence

    def answer_until(self, at: float, decided_in: int) -> None:
        """Let readers of this host take what is shown until then, by the host's clock.

        Parameters
        ----------
        decided_in
            The highest term in which that may have been decided.
        """
        self._segment.header[_DECIDED_IN] = decided_in
        self._answers_until[0] = at

    def answer(self, pull: Pull, at: float) -> tuple[Pulled, Answer] | None:
        """Return how the server would answer a pull now; ``None`` where it must be asked, or does not live."""
        header = self._segment.header
        if at > self._answers_until[0] or self._segment.owner_is_dying:
            return None
        tags = int(header[_TAGS]), int(header[_TAGS + 1])
        copy, epoch = int(tags[1] > tags[0]), int(header[_EPOCH])
        if tags[copy] < pull.version or epoch < pull.epoch:
            return None
        return Pulled(pull.shard, pull.request, tags[copy], epoch, int(header[_DECIDED_IN])), Answer(b"", copy)

    def show(self, copy: int, version: int, divergence: float = math.inf) -> None:
        """Tag `copy` with `version`, and publish how far replicas in sync can be from it."""
        # First, because it may be too much for the version before; too little it is for a replica that is ahead of
        # that one alone, which then is no loss.
        self.diverge(divergence)
        self._segment.header[_TAGS + copy] = version

    def begin_writing(self, copy: int) -> None:
        """Tag `copy` as holding no version."""
        self._segment.header[_TAGS + copy] = _WRITING

    def read(self, copy: int, version: int, epoch: int, into: Vectors) -> bool:
        """Copy `version` into `into`; return whether it was there, undisturbed, under `epoch`."""
        if not self.holds(copy, version, epoch):
            return False
        for key, vector in self.copies[copy].items():
            into[key].copy_(vector)
        return self.holds(copy, version, epoch)

    def remove(self) -> None:
        """Remove the segment's name, if this process owns it, and answer nothing any more."""
        self.answer_until(-math.inf, 0)
        self._segment.remove()

    def holds(self, copy: int, version: int, epoch: int) -> bool:
        """Whether `copy` is `version` under `epoch`, whole."""
        header = self._segment.header
        return int(header[_TAGS + copy]) == version and int(header[_EPOCH]) == epoch


def private_copy(vectors: Vectors) -> dict[str, Tensor]:
    """Return the same content in memory of its own."""
    return {key: vector.clone(memory_format=torch.contiguous_format) for key, vector in vectors.items()}


class Copied:
    """A copy of the content shown, made once per version for all who are sent it: what is sent must not change."""

    def __init__(self) -> None:
        self._version = -1
        self._arrays: tuple[NDArray[Any], ...] = ()
        self._copying = asyncio.Lock()

    async def newest(
        self, content: Content, shown: Callable[[], tuple[int, int, int]]
    ) -> tuple[int, tuple[NDArray[Any], ...]]:
        """Return the version shown now and its vectors; `shown` tells which copy it is, its version and its epoch."""
        async with self._copying:
            while True:
                copy, version, epoch = shown()
                if version == self._version:
                    return version, self._arrays
                copied = await asyncio.get_running_loop().run_in_executor(None, private_copy, content.copies[copy])
                if content.holds(copy, version, epoch):
                    self._version, self._arrays = version, tuple(one.numpy() for one in copied.values())
                    return version, self._arrays
