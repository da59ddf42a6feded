"""A server's side of transfers to its replicas: captured, sent until they are acknowledged, and given up.

On one host the replica reads out of the server's memory (`psplatform.runtime.dataplane.replicas.outbox`), parameters
where the server shows them; elsewhere, or where it cannot see that, the arrays are sent.  Where replicas take gradients
from the workers, nothing is captured: a transfer then names them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from torch import Tensor

from psplatform.core.protocol.effects import Transmit
from psplatform.core.protocol.messages import GRADIENTS, UPDATE, Replicated
from psplatform.core.protocol.wire import decode
from psplatform.runtime.comms.background import Background, Kept
from psplatform.runtime.comms.bulk import call_with_arrays
from psplatform.runtime.comms.calls import Begun, Connect, Peer, PeerLost, begin_call
from psplatform.runtime.dataplane.replicas.outbox import Outbox, Rooms
from psplatform.runtime.dataplane.replicas.parcel import Parcel
from psplatform.runtime.dataplane.segments import Place, SegmentName
from psplatform.runtime.dataplane.transports import Transport
from psplatform.runtime.timeouts import TIMEOUTS
from psplatform.tensors.shard import Shard
from psplatform.tensors.vectors import bytes_in

_KEPT_FOR: Final = 256
"""Transfers without a whole state, after which the room for one is given up."""


class ProcessCarrier:
    """A server's side of replicas in other processes, a `psplatform.runtime.dataplane.carriers.Carrier`.

    Parameters
    ----------
    each
        Whether replicas are sent each update.
    """

    def __init__(
        self, run: str, name: str, shard: Shard, background: Background, transport: Transport, *, each: bool = False
    ) -> None:
        self._run, self._name = run, name
        self._each = self._expects_update = each
        self._replicas: set[str] = set()
        self._rooms = Rooms(partial(transport.outbox, run, f"{name}-room", shard.front_sizes()))
        self._shard = shard
        self._transport = transport
        self._background = background
        self._peers: dict[str, Peer] = {}
        self._outboxes: dict[str, Outbox] = {}
        self._sources: dict[str, Outbox] = {}
        self._unused: dict[str, int] = {}
        self._unmerged = 0
        # Where the server shows vectors, if it does.  Some replicas cannot see that.
        self._place_of: Callable[[Mapping[str, Tensor]], Place | None] = _nowhere
        self._cannot_read_in_place: set[str] = set()
        self._captured: dict[str, Parcel] = {}
        self._begun: dict[str, Begun] = {}
        self._tasks: dict[str, Kept] = {}
        self._closed = False

    def know(self, replica: str, peer: Peer) -> None:
        """Send transfers to a replica to that peer from now on."""
        self._peers[replica] = peer

    def read_in_place(self, place_of: Callable[[Mapping[str, Tensor]], Place | None]) -> None:
        """Let replicas read parameters where the server shows them; `place_of` returns where it shows vectors."""
        self._place_of = place_of
        self._shard.before_overwriting(self._copy_on_write)

    def _copy_on_write(self, vectors: Mapping[str, Tensor]) -> None:
        for outbox in list(self._outboxes.values()):
            outbox.copy_on_write(vectors)

    def prepare(self, replica: str) -> None:
        """Make room for what a replica is sent beforehand."""
        self._replicas.add(replica)
        if self._each:
            self._rooms.prepare(len(self._replicas))
        else:
            self._outbox_of(replica)

    def room(self) -> Mapping[str, Tensor] | None:
        """Return vectors to merge the next update into, if that is likely to be sent.  For the thread that computes.

        It is where the one before was: a replica that may lag is sent whole states, each instead of many updates.
        """
        expected, self._expects_update = self._expects_update and bool(self._replicas), self._each
        return self._rooms.next() if expected else None

    def capture(self, effect: Transmit) -> int:
        """Capture what a transfer carries; return its size in bytes.  For the thread that computes."""
        self._replicas.add(effect.replica)
        is_update = effect.transfer.kind == UPDATE
        self._expects_update |= is_update
        self._count_unmerged(is_update)
        vectors = self._shard.gathered if is_update else self._shard.state()
        outbox = self._rooms.take(effect.replica, vectors) if is_update else None
        in_place = None
        if outbox is None:
            outbox = self._outbox_of(effect.replica)
            in_place = None if is_update else self._capture_in_place(effect, outbox, vectors)
            if in_place is None:
                outbox.capture(vectors, effect.transfer.number)
        self._sources[effect.replica] = outbox
        size_bytes = bytes_in(vectors)
        arrays = () if outbox.name is not None else tuple(outbox.arrays(tuple(vectors)))
        state = effect.transfer, self._shard.commits, tuple(vectors), outbox.name, arrays
        self._captured[effect.replica] = Parcel(*state, {}, in_place, self._shard.reach)
        return size_bytes

    def _capture_in_place(self, effect: Transmit, outbox: Outbox, vectors: Mapping[str, Tensor]) -> Place | None:
        """Let a replica read the parameters where the server shows them; return the place, or ``None`` if it cannot."""
        if outbox.name is None or effect.replica in self._cannot_read_in_place:
            return None
        parameters = self._shard.newest
        place = self._place_of(parameters)
        if place is not None:
            outbox.capture_in_place(vectors, parameters, effect.transfer.number)
        return place

    def send(
        self, connect: Connect, effect: Transmit, slabs: Mapping[str, SegmentName], feed: Callable[[Any], None]
    ) -> None:
        """Send what was captured until it is acknowledged, or another transfer to this replica is sent."""
        self._end(effect.replica)
        if self._closed:
            return
        self._give_up_unused(effect.replica, effect.transfer.kind)
        if effect.transfer.kind == GRADIENTS:
            members = sorted({one.member for one in effect.transfer.contributions} & slabs.keys())
            parcel = Parcel(effect.transfer, 0, (), None, (), {member: slabs[member] for member in members})
        else:
            parcel = replace(self._captured[effect.replica], slabs=slabs)
        peer, parts = self._peers.get(effect.replica), (connect, effect.replica, parcel, feed)
        begun: Begun | None = None
        if peer is not None:
            begun = begin_call(
                connect,
                peer,
                *("transfer", parcel),
                deadline_s=TIMEOUTS.transfer_s,
                done=partial(self._on_answered, *parts),
                otherwise=partial(self._insist, *parts),
            )
        if begun is None:
            self._insist(*parts)
        else:
            self._begun[effect.replica] = begun

    def _on_answered(
        self, connect: Connect, replica: str, parcel: Parcel, feed: Callable[[Any], None], answer: bytes | None
    ) -> None:
        if answer is None:
            self._insist(connect, replica, parcel, feed, sees_it=False)
            return
        del self._begun[replica]
        try:
            feed(self._arrived(replica, parcel, answer))
        except Exception as error:  # noqa: BLE001  as of a task: it is told, and the connection is not to blame
            self._background.tell_of(error)

    def _insist(
        self, connect: Connect, replica: str, parcel: Parcel, feed: Callable[[Any], None], *, sees_it: bool = True
    ) -> None:
        self._begun.pop(replica, None)
        if self._closed:
            return
        send = partial(self._send, connect, replica, parcel, feed, sees_it=sees_it)
        self._tasks[replica] = self._background.keep(send)

    def _end(self, replica: str) -> None:
        task, begun = self._tasks.pop(replica, None), self._begun.pop(replica, None)
        if task is not None:
            task.end()
        if begun is not None:
            begun.give_up()

    async def _send(
        self, connect: Connect, replica: str, parcel: Parcel, feed: Callable[[Any], None], *, sees_it: bool
    ) -> None:
        # Ends with an answer, with this copy, or when the coordinator, who watches the replica, has it excluded.
        while not self._closed:
            if not sees_it:
                parcel = await self._without_what_it_cannot_see(replica, parcel)
            peer = self._peers.get(replica)
            try:
                what = "transfer", parcel
                answer = await call_with_arrays(connect, peer, *what, deadline_s=TIMEOUTS.transfer_s) if peer else b""
            except PeerLost:
                answer = b""
            if answer:
                feed(self._arrived(replica, parcel, answer))
                return
            sees_it = answer is not None
            if sees_it:
                await asyncio.sleep(TIMEOUTS.transfer_retry_s)

    async def _without_what_it_cannot_see(self, replica: str, parcel: Parcel) -> Parcel:
        """Return a parcel whose parameters lie in the outbox, too, or else all of which is sent."""
        source = self._sources[replica]
        if parcel.in_place is None:
            return replace(parcel, outbox=None, arrays=tuple(source.arrays(parcel.keys)))
        self._cannot_read_in_place.add(replica)
        await asyncio.get_running_loop().run_in_executor(None, source.copy_on_write)
        return replace(parcel, in_place=None)

    def _arrived(self, replica: str, parcel: Parcel, answer: bytes) -> Any:
        """Return the answer to a transfer; what the replica has loaded is used again."""
        message = decode(answer)
        captured = self._captured.get(replica)
        if captured is not None and captured.transfer.number == parcel.transfer.number:
            if isinstance(message, Replicated):
                self._sources[replica].leave_nothing_in_place()
                self._rooms.has_read(replica)
            else:  # it may be loading it for all that
                self._rooms.abandon(replica)
        return message

    def _count_unmerged(self, is_update: bool) -> None:
        """Give up rooms once only whole states have been sent for long."""
        self._unmerged = 0 if is_update or self._each else self._unmerged + 1
        if self._unmerged > _KEPT_FOR:
            self._unmerged = 0
            self._rooms.remove_free()

    def _outbox_of(self, replica: str) -> Outbox:
        if replica not in self._outboxes:
            role = f"{self._name}-{replica}"
            self._outboxes[replica] = self._transport.outbox(self._run, role, self._shard.state_sizes())
        return self._outboxes[replica]

    def _give_up_unused(self, replica: str, kind: str) -> None:
        """Give up a replica's outbox once it has long done without."""
        outbox = self._outboxes.get(replica)
        if kind != GRADIENTS and self._sources.get(replica) is outbox:
            self._unused[replica] = 0
            return
        self._unused[replica] = self._unused.get(replica, 0) + 1
        if outbox is not None and self._unused[replica] > _KEPT_FOR:
            del self._outboxes[replica]
            if self._sources.get(replica) is outbox:  # which would keep it mapped
                del self._sources[replica], self._captured[replica]
            outbox.remove()

    def forget(self, replica: str) -> None:
        """Send a replica that was excluded nothing more, and give up what that took."""
        self._end(replica)
        self._replicas.discard(replica)
        self._rooms.abandon(replica)
        self._cannot_read_in_place.discard(replica)
        for kept in (self._captured, self._sources, self._unused):
            kept.pop(replica, None)
        outbox = self._outboxes.pop(replica, None)
        if outbox is not None:
            outbox.leave_nothing_in_place()
            outbox.remove()

    def close(self) -> None:
        """Send nothing more."""
        self._closed = True
        self._rooms.remove()
        for outbox in self._outboxes.values():
            outbox.remove()


def _nowhere(_vectors: Mapping[str, Tensor]) -> Place | None:
    """Return ``None``: nothing is shown."""
    return None
