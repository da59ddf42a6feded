"""A replica's side of transfers: kept until they are loaded, loaded from where they lie, and answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from psplatform.core.protocol.messages import GRADIENTS, STATE, UPDATE, Transfer
from psplatform.core.protocol.wire import encode
from psplatform.errors import InvariantViolation
from psplatform.runtime.dataplane.replicas.feed_reader import FeedReader
from psplatform.runtime.dataplane.replicas.outbox import Inbox
from psplatform.runtime.dataplane.replicas.parcel import Parcel
from psplatform.tensors.shard import Shard


class Receiver:
    """A replica's side of transfers."""

    def __init__(self, shard: Shard, feed_reader: FeedReader) -> None:
        self._shard, self._feed_reader = shard, feed_reader
        self._inbox = Inbox()
        self._parcels: dict[str, Parcel] = {}
        self._answers: list[tuple[str, asyncio.Future[bytes]]] = []

    def can_see(self, parcel: Parcel) -> bool:
        """Whether the arrays can be read, here or where they lie."""
        return self._vectors_of(parcel) is not None

    def expect(self, parcel: Parcel) -> asyncio.Future[bytes]:
        """Keep a parcel until it is taken; return what the answer to it will be, encoded."""
        server = parcel.transfer.server
        kept = self._parcels.get(server)
        # One that was repeated may come after the next: that one is needed.
        late = kept is not None and kept.transfer.number > parcel.transfer.number
        if parcel.transfer.kind != GRADIENTS and not late:  # of gradients there is nothing to keep
            # Another server's may be being loaded: as long as that one has not been answered, it is needed.
            waiting = {of for of, _ in self._answers}
            self._parcels = {of: one for of, one in self._parcels.items() if of in waiting} | {server: parcel}
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._answers.append((server, answer))
        return answer

    def answer(self, server: str, message: Any) -> None:
        """Answer a server, each time that it has asked; one that was replaced must not get another's answer."""
        waiting = [answer for of, answer in self._answers if of == server]
        self._answers = [(of, answer) for of, answer in self._answers if of != server]
        answer = encode(message)
        for one in waiting:
            if not one.done():
                one.set_result(answer)

    def load(self, transfer: Transfer, begin_writing: Callable[[], None]) -> bool:
        """Make what a transfer carries the shard's state, or take the step that it names.

        For the thread that computes.  `begin_writing` is called before the back copy is written; nothing is, and
        false returned, where gradients are gone.
        """
        if transfer.kind == STATE:
            self._restore(self._parcel_of(transfer), begin_writing)
            return True
        if transfer.kind == UPDATE:
            self._shard.gather([self._read(self._parcel_of(transfer))])
        elif not self._feed_reader.gather(transfer):
            return False
        begin_writing()
        self._shard.stage(self._shard.rate_of(transfer.rate, transfer.updates))
        self._shard.publish(max(transfer.version, self._shard.version + 1))
        return True

    def drop(self, transfer: Transfer) -> None:
        """Give up what a transfer carried, once it is loaded: it may be large, and is not loaded again."""
        parcel = self._parcels.get(transfer.server)
        if parcel is not None and parcel.transfer.number == transfer.number:
            del self._parcels[transfer.server]
        self._inbox.forget_removed()

    def forget(self) -> None:
        """Give up the memory of a server that nothing is expected of any more."""
        self._inbox = Inbox()
        self._parcels = {}

    def _restore(self, parcel: Parcel, begin_writing: Callable[[], None]) -> None:
        vectors, lent = self._read(parcel), self._lent_of(parcel)
        outbox = self._inbox.state(parcel.outbox, parcel.transfer.number) if parcel.outbox is not None else None
        begin_writing()
        restore = partial(self._shard.restore, version=parcel.transfer.version, commits=parcel.commits)
        if outbox is None:
            restore(vectors)
            return
        if lent is not None and restore(vectors | lent, whole=outbox.is_lent):
            return
        if not restore(vectors, whole=outbox.is_captured):
            raise _gone(parcel.transfer)

    def _parcel_of(self, transfer: Transfer) -> Parcel:
        parcel = self._parcels.get(transfer.server)
        if parcel is None or parcel.transfer.number != transfer.number:
            raise InvariantViolation(f"transfer {transfer.number} is to be loaded, but it was not kept")
        return parcel

    def _read(self, parcel: Parcel) -> dict[str, Tensor]:
        if parcel.outbox is None:
            tensors = [torch.from_numpy(array) for array in parcel.arrays]
            return dict(zip(parcel.keys, tensors, strict=True))
        vectors = self._vectors_of(parcel)
        if vectors is None:
            raise _gone(parcel.transfer)
        return {key: vectors[key] for key in parcel.keys}

    def _lent_of(self, parcel: Parcel) -> dict[str, Tensor] | None:
        """Return the parameters where the server shows them, or ``None`` where they are not lent or cannot be seen."""
        place = parcel.lent
        return self._inbox.vectors(place.segment, self._shard.front_sizes(), place.at) if place is not None else None

    def _vectors_of(self, parcel: Parcel) -> dict[str, Tensor] | None:
        if parcel.outbox is None:
            return {}
        if parcel.lent is not None and self._lent_of(parcel) is None:
            return None
        is_update = parcel.transfer.kind == UPDATE
        sizes = self._shard.front_sizes() if is_update else self._shard.state_sizes()
        return self._inbox.vectors(parcel.outbox, sizes)


def _gone(transfer: Transfer) -> InvariantViolation:
    return InvariantViolation(f"what transfer {transfer.number} carries has gone")
