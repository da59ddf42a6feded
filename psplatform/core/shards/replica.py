"""One copy of a shard: a replica first or the server at once, and the lease that it holds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Archive, Effect, Load, Send
from psplatform.core.protocol.events import Archived, ArchiveFailed, Loaded, Tick
from psplatform.core.protocol.messages import Beat, Lease, Promote
from psplatform.core.protocol.names import COORDINATOR, Role
from psplatform.core.shards.links import MakeAccount
from psplatform.core.shards.sending import not_written, written
from psplatform.core.shards.server import Server
from psplatform.core.shards.shown import REMEMBERED
from psplatform.core.supervision.leases import entitlement


@dataclass
class Replica:
    """One shard's replica.

    Parameters
    ----------
    shard, name
        Index of the shard, and the name of this copy.
    epoch
        Highest epoch of a server heard so far.
    term
        Highest term of a coordinator heard so far.
    position, version
        Where the state stands.

    Attributes
    ----------
    promotion
        The order to become the server that waits until a transfer is loaded.
    past
        By position, the last commits that the state contains: the copy that is promoted may be the last to know them.
    """

    shard: int
    name: str
    epoch: int = 1
    term: int = 0
    position: int = 0
    version: int = 0
    applied: dict[int, int] = field(default_factory=dict)
    promotion: msg.Promote | None = None
    past: dict[int, msg.Past] = field(default_factory=dict)
    _loading: msg.Transfer | None = None
    _next: msg.Transfer | None = None
    _number: int = 0

    def handle(self, event: Any, now: float) -> list[Effect]:
        """Return what to do about `event`; what is said to a server is for none here, and changes nothing."""
        handler = _HANDLERS.get(type(event))
        return handler(self, event) if handler is not None else []

    @property
    def loading(self) -> bool:
        """Whether a transfer is being loaded."""
        return self._loading is not None

    def _on_transfer(self, transfer: msg.Transfer) -> list[Effect]:
        server = Role.copy(transfer.server)
        if transfer.epoch < self.epoch or self.promotion is not None:
            return [Send(server, msg.Outdated(self.shard, self.epoch))]
        if transfer.epoch > self.epoch:
            self.epoch, self._number = transfer.epoch, 0
        if self._loading is not None:
            if transfer.epoch > self._loading.epoch:
                self._next = transfer  # nobody would send it again before it is answered
            return []
        if transfer.number <= self._number:
            return [self._acknowledge(transfer, self.position)] if transfer.number == self._number else []
        self._loading, self._number = transfer, transfer.number
        return [Load(transfer)]

    def _on_loaded(self, event: Loaded) -> list[Effect]:
        transfer = self._loading
        if transfer is None or event.number != transfer.number:
            return []
        following, self._loading, self._next = self._next, None, None
        effects = self._stand_after(transfer) if event.whole else [self._acknowledge(transfer, -1)]
        return [*effects, *(self._on_transfer(following) if following is not None else ())]

    def _stand_after(self, transfer: msg.Transfer) -> list[Effect]:
        before, self.position, self.version = self.position, transfer.position, transfer.version
        kept = self.applied if transfer.kind == msg.GRADIENTS else {}
        self.applied = {**kept, **dict(transfer.applied)}
        self._remember(transfer, before)
        archive: list[Effect] = []
        if transfer.cut:
            archive = [Archive(transfer.cut, self.position, self.version, transfer.applied)]
        return [*archive, self._acknowledge(transfer, self.position)]

    def _remember(self, transfer: msg.Transfer, before: int) -> None:
        """Remember the commits that a transfer tells of; the oldest stay first."""
        for one in transfer.past:
            self.past[one.commit.position] = one
        first = transfer.past[0].commit.position if transfer.past else self.position
        if first <= before:
            # Later ones were in the state that a lost server had sent, and are not in this one.
            self.past = {position: self.past[position] for position in sorted(self.past) if position <= self.position}
        while self.past and (oldest := next(iter(self.past))) <= self.position - REMEMBERED:
            del self.past[oldest]

    def _acknowledge(self, transfer: msg.Transfer, position: int) -> Send:
        done = msg.Replicated(self.shard, self.name, transfer.epoch, transfer.number, position)
        return Send(Role.copy(transfer.server), done)

    def _on_promote(self, message: msg.Promote) -> list[Effect]:
        if message.term < self.term or message.epoch <= self.epoch:
            return [Send(COORDINATOR, msg.Refused(self.shard, self.epoch, self.term))]
        self.term = message.term
        if message.replaces(self.promotion):
            self.promotion = message
        return []

    def _on_state_request(self, message: msg.StateRequest) -> list[Effect]:
        if message.term < self.term:
            return [Send(COORDINATOR, msg.Refused(self.shard, self.epoch, self.term))]
        self.term = message.term
        standing = msg.ServerState(self.shard, self.name, self.term, self.epoch, False, self.position, ())
        return [Send(COORDINATOR, standing)]


_HANDLERS: dict[type, Callable[[Replica, Any], list[Effect]]] = {
    msg.Transfer: Replica._on_transfer,
    Loaded: Replica._on_loaded,
    msg.Promote: Replica._on_promote,
    msg.StateRequest: Replica._on_state_request,
    Archived: lambda replica, event: written(replica.shard, event),
    ArchiveFailed: lambda replica, event: not_written(replica.shard, event),
}


class ShardCopy:
    """The control half of one copy of a shard.

    Parameters
    ----------
    part
        What the copy is when it begins.
    make_account
        Makes the accounts of the server it is, or becomes.
    archives_itself
        Whether that server writes its part of checkpoints although it has replicas.
    from_workers
        Whether the replicas of that server take gradients from the workers.

    Attributes
    ----------
    part
        The server or the replica that it is now.
    """

    def __init__(
        self,
        part: Server | Replica,
        make_account: MakeAccount,
        *,
        archives_itself: bool = False,
        from_workers: bool = False,
    ) -> None:
        self.part = part
        self.shard, self.name = part.shard, part.name
        self._make_account = make_account
        self._archives_itself, self._from_workers = archives_itself, from_workers
        self._holds_lease = False
        self._entitled_until = -math.inf

    @property
    def serving(self) -> bool:
        """Whether this copy is the server of its shard, as far as it knows."""
        return isinstance(self.part, Server) and not self.part.fenced

    def handle(self, event: Any, now: float) -> list[Effect]:
        """Return what to do about `event`."""
        kind, part = type(event), self.part
        if kind is Tick:
            self._holds_lease = True
            return [Send(COORDINATOR, Beat(self.name, now))]
        if kind is Lease:
            return self._renew(event, now)
        effects = part.handle(event, now)
        return effects + self._rise(part) if type(part) is Replica else effects

    def _renew(self, lease: Lease, now: float) -> list[Effect]:
        part = self.part
        if lease.term < part.term:
            return []
        self._entitled_until = max(self._entitled_until, entitlement(lease.sent_at, lease.seconds))
        return part.renew(self._entitled_until, now) if isinstance(part, Server) else []

    def _rise(self, part: Replica) -> list[Effect]:
        """Become the server if that was ordered and nothing is being loaded any more."""
        if part.promotion is None or part.loading:
            return []
        order: Promote = part.promotion
        self.part = Server(
            shard=part.shard,
            epoch=order.epoch,
            term=order.term,
            position=part.position,
            version=part.version,
            name=part.name,
            make_account=self._make_account,
            applied=part.applied,
            archives_itself=self._archives_itself,
            from_workers=self._from_workers,
            # It has held a lease as a replica, or waits for its first: promoting it does not entitle it to anything.
            entitled_until=self._entitled_until if self._holds_lease else math.inf,
        )
        if order.missing:
            self.part.links.miss(order.missing)
        return self.part.began(order, tuple(part.past.values()))
