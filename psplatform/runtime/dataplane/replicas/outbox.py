"""Where the content of a transfer lies, so that no later step can spoil it: in segments that its replica reads.

A server merges what its workers send into a *room*, from which its replicas take it: nothing is copied for them.  A
room is used again once all of them have, so that there are mostly two.  A whole state is put into an *outbox*, which a
replica has for that if need be.  Both are made and touched once, because fresh memory costs several times the copying.

Of a whole state, only the optimiser's part is copied at once.  The replica reads the parameters *in place*, where the
server shows them, and the server copies them *on write*: when a step is about to write over what was not read yet.
The outbox's header says which transfer's parameters are in place, and which one's were copied.  A replica looks there
after it has read: what it read in place is whole if it is in place still, and otherwise the copy is there.  That the
header changes before the parameters do, in the view of every process, follows from the locks that a thread takes in
between, and on the reading side from the order in which x86 and the locks of Python's interpreter keep loads.

Only the server writes here; one that wakes up after it was replaced spoils nothing, because its replica has state of
its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from psplatform.runtime.dataplane.segments import Segment, SegmentName
from psplatform.tensors.shares import copy
from psplatform.tensors.vectors import bytes_in, carve, size_bytes_of

Sizes = Mapping[str, tuple[str, int]]

_IN_PLACE: Final = 0
_COPIED: Final = 1
"""Fields of an outbox's header: numbers of transfers, or 0."""


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
        self._header = np.zeros(_COPIED + 1, np.int64) if self._segment is None else self._segment.header
        # The transfer whose parameters are read in place, and those.
        self._in_place: tuple[int, Mapping[str, Tensor]] = 0, {}
        self._copying = threading.Lock()

    @property
    def name(self) -> SegmentName | None:
        """What the replica needs to open it."""
        return self._segment.name if self._segment is not None else None

    @property
    def vectors(self) -> Mapping[str, Tensor]:
        """What lies here."""
        return self._vectors

    def capture(self, vectors: Mapping[str, Tensor], number: int = 0) -> int:
        """Copy vectors here, for the transfer of that number; return their size in bytes."""
        with self._copying:
            self._begin(0, {})
            self._copy(vectors)
            self._header[_COPIED] = number
        return bytes_in(vectors)

    def capture_in_place(self, vectors: Mapping[str, Tensor], in_place: Mapping[str, Tensor], number: int) -> None:
        """Copy those of `vectors` here that are not `in_place`, for the transfer of that number.

        The others must be copied by `copy_on_write` before they are written to.
        """
        with self._copying:
            self._begin(number, in_place)
            self._copy({key: vector for key, vector in vectors.items() if key not in in_place})
            self._header[_IN_PLACE] = number

    def copy_on_write(self, vectors: Mapping[str, Tensor] | None = None) -> None:
        """Copy what is in place if it is those vectors, which are about to be written to; without them, whatever it is.

        May be called in several threads; each returns when it has been copied.
        """
        with self._copying:
            number, in_place = self._in_place
            if number and (vectors is None or vectors is in_place):
                self._copy(in_place)
                self._header[_COPIED] = number
                self._end()

    def leave_nothing_in_place(self) -> None:
        """Copy nothing any more of what is in place: it was read, or need not be."""
        if self._copying.acquire(blocking=False):  # else it is just being copied
            self._end()
            self._copying.release()

    def _begin(self, number: int, in_place: Mapping[str, Tensor]) -> None:
        self._header[_IN_PLACE] = self._header[_COPIED] = 0
        self._in_place = number, in_place

    def _end(self) -> None:
        self._header[_IN_PLACE] = 0
        self._in_place = 0, {}

    def _copy(self, vectors: Mapping[str, Tensor]) -> None:
        copy(list(vectors.values()), [self._vectors[key] for key in vectors])

    def arrays(self, keys: Sequence[str]) -> list[NDArray[Any]]:
        """Return what lies here under `keys`, to be sent; it must not change before it has arrived."""
        return [self._vectors[key].numpy() for key in keys]

    def remove(self) -> None:
        """Give the place up; a replica that has opened it keeps it."""
        if self._segment is not None:
            self._segment.remove()


class Rooms:
    """The rooms of one server.

    Parameters
    ----------
    make
        Makes one more.
    """

    def __init__(self, make: Callable[[], Outbox]) -> None:
        self._make = make
        self._all: list[Outbox] = []
        self._taken: dict[str, Outbox] = {}
        self._at_hand: Outbox | None = None
        self._lock = threading.Lock()

    def prepare(self, replicas: int) -> None:
        """Make as many as that number of replicas needs: each may read one while another is filled."""
        with self._lock:
            while len(self._all) <= replicas:
                self._all.append(self._make())

    def next(self) -> Mapping[str, Tensor]:
        """Return vectors that no replica reads, to merge into.  For the thread that computes."""
        with self._lock:
            free = [one for one in self._all if one not in self._taken.values()]
            if not free:
                free.append(self._make())
                self._all += free
            self._at_hand = free[0]
            return self._at_hand.vectors

    def take(self, replica: str, vectors: Mapping[str, Tensor]) -> Outbox | None:
        """Let a replica read the room at hand, if these vectors lie there.  For the thread that computes."""
        with self._lock:
            room = self._at_hand
            if room is None or any(vectors[key] is not vector for key, vector in room.vectors.items()):
                return None
            self._abandon(replica)
            self._taken[replica] = room
            return room

    def has_read(self, replica: str) -> None:
        """Use again what a replica has read."""
        with self._lock:
            self._taken.pop(replica, None)

    def abandon(self, replica: str) -> None:
        """Use no more what a replica may be reading still, whenever that ends."""
        with self._lock:
            self._abandon(replica)

    def _abandon(self, replica: str) -> None:
        room = self._taken.pop(replica, None)
        if room is not None and room in self._all:
            self._all.remove(room)
            room.remove()

    def remove_free(self) -> None:
        """Give up all that no replica reads.  For the thread that computes, while nothing is merged here."""
        with self._lock:
            for room in [one for one in self._all if one not in self._taken.values()]:
                self._all.remove(room)
                room.remove()
            self._at_hand = None

    def remove(self) -> None:
        """Give all of them up."""
        with self._lock:
            for room in self._all:
                room.remove()


@dataclass(frozen=True, slots=True)
class OutboxState:
    """What an outbox says of one transfer at the time that it is asked.

    Attributes
    ----------
    header
        The outbox's.
    number
        The transfer's.
    """

    header: NDArray[np.int64]
    number: int

    def is_in_place(self) -> bool:
        """Whether nothing was written yet to where the server shows the parameters, and it would copy them before."""
        return int(self.header[_IN_PLACE]) == self.number

    def is_copied(self) -> bool:
        """Whether the parameters lie in the outbox."""
        return int(self.header[_COPIED]) == self.number


@dataclass(slots=True)
class _Opened:
    """A server's segment, and what was found last from a byte on: of which sizes, and the vectors."""

    segment: Segment
    found: dict[int, tuple[Sizes, dict[str, Tensor]]]


class Inbox:
    """A server's outbox, its rooms, and what it shows, as its replica sees them.  For the thread of the event loop."""

    def __init__(self) -> None:
        self._opened: dict[SegmentName, _Opened] = {}

    def vectors(self, name: SegmentName, sizes: Sizes, at: int = 0) -> dict[str, Tensor] | None:
        """Return what lies in the segment of that name from that byte on; ``None`` if this process cannot see it."""
        opened = self._open(name)
        if opened is None:
            return None
        known, vectors = opened.found.get(at, ({}, {}))
        if known != sizes:
            vectors = carve(opened.segment.content[at:], sizes)
            opened.found[at] = sizes, vectors
        return vectors

    def state(self, name: SegmentName, number: int) -> OutboxState | None:
        """Return what the outbox of that name says of the transfer of that number; ``None`` as of `vectors`."""
        opened = self._open(name)
        return OutboxState(opened.segment.header, number) if opened is not None else None

    def _open(self, name: SegmentName) -> _Opened | None:
        opened = self._opened.get(name)
        if opened is None:
            segment = Segment.open(name)
            if segment is None:
                return None
            self.forget_removed()
            self._opened[name] = opened = _Opened(segment, {})
        return opened

    def forget_removed(self) -> None:
        """Give up what its server has removed: as long as it is mapped here, its memory is not free.

        What was found there stays readable for its holders.
        """
        self._opened = {name: one for name, one in self._opened.items() if one.segment.exists}
