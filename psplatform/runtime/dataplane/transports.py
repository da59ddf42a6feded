"""Transports: where parameters and gradients lie, and how other processes get at them.

Four kinds of arrays move in a run.  A *publisher* is what a server shows, a *view* of it is what a worker or an
evaluator on the same host copies out of, a *slab* is where a worker's gradients lie, and an *outbox* what replicas
are sent; where outboxes lie in segments, replicas read parameters out of the publisher's segment instead.  A transport
makes them, each in a segment or in private memory, and says which way calls take; nothing else asks which transport a
run has.  What cannot be seen where it lies is sent, so that a transport need not reach everywhere.  Gradients that are
merged block by block, and states for a store, are always sent.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import Final, Protocol

from distributed import Worker

from psplatform.runtime.comms.bulk import take_part
from psplatform.runtime.comms.calls import Connect, connections_of
from psplatform.runtime.comms.local_calls import local_connections_of
from psplatform.runtime.dataplane.gradients.gradient_buffers import Slab
from psplatform.runtime.dataplane.pulls.content import Content
from psplatform.runtime.dataplane.replicas.outbox import Outbox, Sizes
from psplatform.runtime.dataplane.segments import SegmentName
from psplatform.tensors.layout import Layout


class Transport(Protocol):
    """Makes the places where arrays lie, and the way that calls take.

    Attributes
    ----------
    lends
        Whether `view` can map a content so that nothing written there leaves this process (`private`).
    """

    lends: bool

    async def connections(self, worker: Worker, until: ExitStack) -> Connect:
        """Return the way from a Dask worker's process to every other, to be used until `until` is closed."""

    def publisher(self, layout: Layout, shard: int, run: str, epoch: int) -> Content:
        """Make the place where a server shows its shard under that epoch, showing nothing yet."""

    def view(self, layout: Layout, shard: int, name: SegmentName, *, private: bool = False) -> Content | None:
        """Return a server's content for reading; ``None`` where it is to be sent.

        If `private`, which only who `lends` is asked for, what is written there nevertheless stays in this process.
        """

    def slab(self, layout: Layout, run: str, *, with_copy: bool) -> Slab:
        """Make the place of a worker's gradients, perhaps with room for a copy beside it."""

    def outbox(self, run: str, role: str, sizes: Sizes) -> Outbox:
        """Make the place from which one replica takes what it is sent: vectors of those dtypes and sizes."""


class Comms:
    """Sends everything.

    What a server shows lies in a segment all the same: what a lost server has left is looked for there.
    """

    lends = False

    async def connections(self, worker: Worker, until: ExitStack) -> Connect:
        """Return Dask's."""
        take_part(worker)
        return connections_of(worker)

    def publisher(self, layout: Layout, shard: int, run: str, epoch: int) -> Content:
        """Make a segment."""
        return Content.create(layout, shard, run, epoch)

    def view(self, layout: Layout, shard: int, name: SegmentName, *, private: bool = False) -> Content | None:
        """Return ``None``: it is sent."""
        return None

    def slab(self, layout: Layout, run: str, *, with_copy: bool) -> Slab:
        """Make one in private memory: every server gets a copy, so none is kept for replicas that read later."""
        return Slab.create(layout, run, shared=False)

    def outbox(self, run: str, role: str, sizes: Sizes) -> Outbox:
        """Make one in private memory."""
        return Outbox(run, role, sizes, shared=False)


class SharedMemory(Comms):
    """Lets processes of one host read where arrays lie, and sends to the others."""

    lends = sys.platform == "linux"

    async def connections(self, worker: Worker, until: ExitStack) -> Connect:
        """Return Dask's, and sockets for small calls to processes of this host."""
        take_part(worker)
        return await local_connections_of(worker, until)

    def view(self, layout: Layout, shard: int, name: SegmentName, *, private: bool = False) -> Content | None:
        """Map the segment, if this process can see it."""
        return Content.open(layout, shard, name, private=private)

    def slab(self, layout: Layout, run: str, *, with_copy: bool) -> Slab:
        """Make one in a segment."""
        return Slab.create(layout, run, shared=True, with_copy=with_copy)

    def outbox(self, run: str, role: str, sizes: Sizes) -> Outbox:
        """Make one in a segment."""
        return Outbox(run, role, sizes, shared=True)


COMMS: Final = Comms()

TRANSPORTS: Final[dict[str, Transport]] = {"auto": SharedMemory(), "comms": COMMS}
"""By the word that a job names one with."""
