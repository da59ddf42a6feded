"""One copy of a shard: a replica first or the server at once, and the lease that it holds."""

from __future__ import annotations

import math
from typing import Any

from psplatform.core.effects import COORDINATOR, Effect, Send
from psplatform.core.events import Tick
from psplatform.core.leases import entitlement
from psplatform.core.links import MakeAccount
from psplatform.core.messages import Beat, Lease, Promote
from psplatform.core.replica import Replica
from psplatform.core.server import Server


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
