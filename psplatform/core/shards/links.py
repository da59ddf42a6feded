"""What a server knows of its replicas: how far each may be behind, and what is on its way to it.

A link is *joining* until its replica has caught up, then *in sync*: from then on no version becomes visible from which
the replica is further away than its account allows.  Where commits come faster than transfers arrive, it would never
catch up, so versions wait for a joining one, too, once its first transfer has arrived too late.  Transfers to a replica
go one after the other, so that it always stands at an exact position of the server's order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol


class Account(Protocol):
    """What one replica lacks of its server's newest state, staged or visible, and how much it may lack."""

    @property
    def distance(self) -> float:
        """The Euclidean distance of the parameters, or more; 0 exactly where nothing is lacking."""

    @property
    def updates(self) -> int:
        """Number of updates that are lacking."""

    @property
    def within(self) -> bool:
        """Whether the newest state may be visible."""

    @property
    def due(self) -> bool:
        """Whether a transfer should begin, so that the bound need not hold the next steps back."""

    def add(self, position: int, step: float, updates: int = 1) -> None:
        """Add a step of the Euclidean norm `step`, which leads to `position` and is made of so many updates."""

    def settle(self, position: int) -> None:
        """Drop the steps up to `position`, where the replica stands."""


MakeAccount = Callable[[], Account]


def no_account() -> Account:
    """Raise: where nobody accounts for what replicas lack, there can be none."""
    raise RuntimeError("there are replicas, but nothing was given that accounts for what they lack")


@dataclass(slots=True)
class Link:
    """One replica as its server sees it.

    Attributes
    ----------
    in_sync
        Whether the account's bound is kept, and the replica may be promoted.
    awaited
        Whether it is kept so that the replica catches up.
    position
        Where the replica stands; -1 while that is not known.
    flying
        Number of the transfer under way, or 0.
    size_bytes
        What workers send for the transfer under way.
    missing
        Whether there is nobody: the account only says how far the server may go until that place is taken.
    followed
        Last position of which the replica was asked to take the gradients from the workers.
    """

    replica: str
    account: Account
    in_sync: bool = False
    awaited: bool = False
    position: int = -1
    flying: int = 0
    size_bytes: int = 0
    followed: int = -1
    missing: bool = False


@dataclass
class Links:
    """The replicas of one server, in the order in which they were included."""

    make_account: MakeAccount
    by_replica: dict[str, Link] = field(default_factory=dict)
    _excluded: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.by_replica)

    @property
    def in_sync(self) -> tuple[str, ...]:
        """The replicas in sync."""
        return tuple(link.replica for link in self.by_replica.values() if link.in_sync)

    @property
    def replicas(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(self.by_replica)

    def get(self, replica: str) -> Link | None:
        """Return the link to that replica."""
        return self.by_replica.get(replica)

    def begin(self, replica: str, position: int) -> None:
        """Include a replica that is known to stand where the server does."""
        self.by_replica[replica] = Link(replica, self.make_account(), in_sync=True, position=position)

    def include(self, replica: str) -> Link | None:
        """Include a replica that must be brought in sync, unless it is included already; return its link.

        One that was excluded is not included again, whatever comes late: names are never used again.
        """
        if replica in self._excluded:
            return None
        if replica not in self.by_replica:
            self.by_replica[replica] = Link(replica, self.make_account())
        return self.by_replica[replica]

    def miss(self, replica: str) -> None:
        """Go no further than if that lost copy were a replica that stands level now, until it is excluded."""
        self.by_replica[replica] = Link(replica, self.make_account(), missing=True)

    def exclude(self, replica: str) -> None:
        """Wait for a replica no longer."""
        self._excluded.add(replica)
        self.by_replica.pop(replica, None)

    def add(self, position: int, step: float, updates: int = 1) -> None:
        """Add a staged step to every account."""
        for link in self.by_replica.values():
            link.account.add(position, step, updates)

    @property
    def within(self) -> bool:
        """Whether every replica that versions wait for is near enough to the newest state for it to be visible."""
        for link in self.by_replica.values():  # at every step: a generator costs more
            if (link.in_sync or link.awaited or link.missing) and not link.account.within:
                return False
        return True

    @property
    def distance(self) -> float:
        """The largest distance of a replica in sync from the newest state, or more."""
        if not self.by_replica:
            return 0.0
        return max((link.account.distance for link in self.by_replica.values() if link.in_sync), default=0.0)

    @property
    def lag(self) -> int:
        """The most updates that a replica in sync lacks of the newest state."""
        if not self.by_replica:
            return 0
        return max((link.account.updates for link in self.by_replica.values() if link.in_sync), default=0)

    @property
    def flying(self) -> bool:
        """Whether a transfer is under way."""
        return any(link.flying for link in self.by_replica.values())

    def idle(self) -> list[Link]:
        """Return the replicas in sync that nothing is under way to."""
        return [link for link in self.by_replica.values() if link.in_sync and not link.flying]

    def wanting(self, position: int, *, early: bool = True) -> Link | None:
        """Return a replica that should get the newest state, which is at `position`, now.

        Unless `early`, one that is in sync gets it only when the bound would not be kept without.
        """
        for link in self.by_replica.values():
            free = not link.flying and not link.missing and link.position < position
            if free and (not link.in_sync or (early and link.account.due) or not link.account.within):
                return link
        return None

    def archiving(self) -> Link | None:
        """Return a replica in sync that can take a transfer now, to write a checkpoint's part."""
        return next((link for link in self.by_replica.values() if link.in_sync and not link.flying), None)

    def level_with(self, position: int) -> Link | None:
        """Return a replica in sync that lacks nothing of the state at `position`."""
        return next((link for link in self.by_replica.values() if link.in_sync and link.position == position), None)

    def arrived(self, replica: str, number: int, position: int) -> Link | None:
        """Count a transfer as arrived; return the replica's link if that has brought it in sync.

        A negative position says that it could not be read.
        """
        link = self.by_replica.get(replica)
        if link is None or number != link.flying:
            return None
        link.flying = 0
        if position < 0:  # it could not be read, and must be sent again
            return None
        link.position = position
        link.account.settle(position)
        if link.in_sync:
            return None
        if not link.account.within:
            link.awaited = True
            return None
        link.in_sync = True
        return link
