"""A replica's side of transfers: kept until they are loaded, loaded from where they lie, and answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from psplatform.core.protocol.messages import GRADIENTS, STATE, UPDATE, Transfer
from psplatform.core.protocol.wire import encode
from psplatform.errors import ClusterError, InvariantViolation
from psplatform.runtime.dataplane.replicas.feed_reader import FeedReader
from psplatform.runtime.dataplane.replicas.outbox import Inbox, OutboxState
from psplatform.runtime.dataplane.replicas.parcel import Parcel
from psplatform.tensors.shard import Shard


@dataclass(frozen=True, slots=True)
class _Kept:
    """A parcel with its content, which stays readable whatever becomes of its server.

    Attributes
    ----------
    vectors
        What was sent, or lies in the outbox.
    in_place
        The parameters where the server shows them, if they are to be read there.
    state
        Tells which of the two is whole; ``None`` where everything was sent.
    """

    parcel: Parcel
    vectors: Mapping[str, Tensor] = field(default_factory=dict)
    in_place: Mapping[str, Tensor] = field(default_factory=dict)
    state: OutboxState | None = None


class Receiver:
    """A replica's side of transfers."""

    def __init__(self, shard: Shard, feed_reader: FeedReader) -> None:
        self._shard, self._feed_reader = shard, feed_reader
        self._inbox = Inbox()
        self._kept: dict[str, _Kept] = {}
        self._answers: list[tuple[str, asyncio.Future[bytes]]] = []

    def expect(self, parcel: Parcel) -> asyncio.Future[bytes] | None:
        """Keep a parcel until it is taken; return what the answer to it will be, encoded.

        ``None`` where its content can be read neither here nor where it lies.
        """
        found = self._find(parcel)
        if found is None:
            return None
        server = parcel.transfer.server
        kept = self._kept.get(server)
        # One that was repeated may come after the next: that one is needed.
        late = kept is not None and kept.parcel.transfer.number > parcel.transfer.number
        if parcel.transfer.kind != GRADIENTS and not late:  # of gradients there is nothing to keep
            # Another server's may be being loaded: as long as that one has not been answered, it is needed.
            waiting = {of for of, _ in self._answers}
            self._kept = {of: one for of, one in self._kept.items() if of in waiting} | {server: found}
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

        Raises
        ------
        ClusterError
            If its server has given the transfer up, and written over what it carries: the replica was excluded.
        """
        if transfer.kind == STATE:
            self._restore(self._kept_for(transfer), begin_writing)
            return True
        if transfer.kind == UPDATE:
            self._shard.gather([self._kept_for(transfer).vectors])
        elif not self._feed_reader.gather(transfer):
            return False
        begin_writing()
        self._shard.stage(self._shard.rate_of(transfer.rate, transfer.updates))
        self._shard.publish(max(transfer.version, self._shard.version + 1))
        return True

    def drop(self, transfer: Transfer) -> None:
        """Give up what a transfer carried, once it is loaded: it may be large, and is not loaded again."""
        kept = self._kept.get(transfer.server)
        if kept is not None and kept.parcel.transfer.number == transfer.number:
            del self._kept[transfer.server]
        self._inbox.forget_removed()

    def forget(self) -> None:
        """Give up the memory of a server that nothing is expected of any more."""
        self._inbox = Inbox()
        self._kept = {}

    def _restore(self, kept: _Kept, begin_writing: Callable[[], None]) -> None:
        transfer = kept.parcel.transfer
        commits, reach = kept.parcel.commits, kept.parcel.reach
        restore = partial(self._shard.restore, version=transfer.version, commits=commits, reach=reach)
        begin_writing()
        if kept.state is None:
            restore(kept.vectors)
            return
        if kept.in_place and restore({**kept.vectors, **kept.in_place}, whole=kept.state.is_in_place):
            return
        if not restore(kept.vectors, whole=kept.state.is_copied):
            raise ClusterError(f"{transfer.server} gave transfer {transfer.number} up while it was read")

    def _kept_for(self, transfer: Transfer) -> _Kept:
        kept = self._kept.get(transfer.server)
        if kept is None or kept.parcel.transfer.number != transfer.number:
            raise InvariantViolation(f"transfer {transfer.number} is to be loaded, but it was not kept")
        return kept

    def _find(self, parcel: Parcel) -> _Kept | None:
        if parcel.outbox is None:
            tensors = [torch.from_numpy(array) for array in parcel.arrays]
            return _Kept(parcel, dict(zip(parcel.keys, tensors, strict=True)))
        sizes = self._shard.front_sizes() if parcel.transfer.kind == UPDATE else self._shard.state_sizes()
        vectors = self._inbox.vectors(parcel.outbox, sizes)
        state = self._inbox.state(parcel.outbox, parcel.transfer.number)
        in_place: Mapping[str, Tensor] | None = {}
        if (place := parcel.in_place) is not None:
            in_place = self._inbox.vectors(place.segment, self._shard.front_sizes(), place.at)
        if vectors is None or state is None or in_place is None:
            return None
        return _Kept(parcel, {key: vectors[key] for key in parcel.keys}, in_place, state)
