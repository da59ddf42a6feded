"""What a planner of transfers is asked and what it answers: which gradients are sent now, and by which way.

A planner knows hosts and rates, and of each gradient its host and its deadline.  It advises: what is applied, and in
which order, is decided when a gradient has arrived.  So a plan that is wrong costs time, never a promise of the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from psplatform.core.protocol.member_messages import Carried
from psplatform.core.traits import Scope, Traits
from psplatform.errors import ConfigurationError

_PATIENCE: Final = 4.0
_LEAST_S: Final = 1.0


def patience_s(seconds: float) -> float:
    """Return how long something is waited for that was expected to take so long, infinity where nobody knows."""
    return max(_LEAST_S, _PATIENCE * seconds) if seconds < math.inf else _LEAST_S


@dataclass(frozen=True, slots=True)
class Offer:
    """A computed gradient that waits to be sent.

    Attributes
    ----------
    key
        Names it in the answer.
    host
        Where it lies.
    deadline
        The last position at which it may be committed, counted from 1 for the next update; ``None`` for any.
    alone
        Whether it must go straight: it was to be summed once, and that came to nothing.
    """

    key: int
    host: str
    deadline: int | None = None
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Grant:
    """Gradients that may be sent: one straight to the servers, or some to an aggregator that sends their sum on.

    Attributes
    ----------
    keys
        The offers.
    begins
        When each of them is to be sent, so that transfers through one interface do not overlap; seconds.
    aggregator
        The aggregator's host; ``None`` for straight.
    end
        When it is expected at the servers.
    """

    keys: tuple[int, ...]
    begins: tuple[float, ...]
    aggregator: str | None
    end: float


@dataclass(frozen=True, slots=True)
class TransferPlan:
    """What is sent now, what is dropped where it lies, and what waits for the next plan; the two latter by key."""

    granted: tuple[Grant, ...]
    dropped: tuple[int, ...]
    waiting: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A worker that waits for parameters: its name in the answer, and its host."""

    key: int
    host: str


@dataclass(frozen=True, slots=True)
class PullGrant:
    """A worker that may be sent the parameters now.

    Attributes
    ----------
    relay
        The host from whose relay it gets them; ``None`` for straight from the servers.
    end
        When all of it is expected to be there.
    """

    key: int
    relay: str | None
    end: float


@dataclass(frozen=True, slots=True)
class PullPlan:
    """Who may be sent the parameters now, and when to ask again for the others."""

    granted: tuple[PullGrant, ...]
    again_at: float


class TransferPlanner(Protocol):
    """Plans transfers to the servers; a pure state machine, whose copy goes on as it does."""

    @property
    def tick_s(self) -> float:
        """Seconds from one plan to the next, while offers wait."""

    @property
    def servers(self) -> Sequence[tuple[str, float]]:
        """The host of each shard's server, with the bytes of a gradient's part for it."""

    @property
    def sums(self) -> bool:
        """Whether it may grant gradients to an aggregator."""

    @property
    def relays(self) -> bool:
        """Whether it plans when workers pull, and through whom; else they pull at once, from the servers."""

    def plan_pulls(self, waiting: Sequence[PullRequest], now: float, able: Collection[str] | None = None) -> PullPlan:
        """Return who of those that wait for parameters may be sent them now.

        Of its relays only the hosts in `able` hand on, the lowest slots' before, or all if it is not given.
        """

    def pulled(self, key: int, begin: float, end: float) -> None:
        """Learn when a worker that was granted parameters has asked for them, and when it had all of them."""

    def settle_pull(self, key: int) -> None:
        """Expect a worker that was granted parameters to say no more when it had them."""

    def plan(self, offers: Sequence[Offer], now: float, able: Collection[str] | None = None) -> TransferPlan:
        """Return what is sent before the next tick; offers that are under way are left out.

        Of its aggregators only the hosts in `able` sum, the lowest slots' before, or all if it is not given.
        """

    def grant_at_once(self, offer: Offer, now: float, waiting: Iterable[Offer] = ()) -> Grant | float:
        """Return the grant of an offer whose way is idle; else when it may be, and infinity if only a plan can tell.

        `waiting` are the other offers; it is looked at only if the way is idle.
        """

    def begins(self, now: float) -> Mapping[int, tuple[float, float]]:
        """Return when the gradients may be sent that were granted and begin later, by key, and are expected to end.

        None begins later than it was to.  To be asked when something has arrived that they may have waited for.
        """

    def arrive(self, key: int, host: str, begin: float, end: float) -> None:
        """Learn when a gradient that was granted was sent from a host, and when it was at every server.

        Of gradients that were summed: when the sum was sent, and from where; any of their keys stands for all.
        """

    def seen(self, sender: str, receiver: str, begin: float, end: float) -> None:
        """Learn when a whole gradient was sent from one host to another, neither a server's, and when it was there."""

    def settle(self, key: int) -> None:
        """Expect a gradient that was granted no longer, nor those that it was to be summed with."""

    def count(self, count: Carried, now: float) -> tuple[float, float]:
        """Learn what the interface of a host has carried until now.

        Return what its directions out of the host and into it are believed to carry, bytes per second.
        """

    def serve(self, shard: int, host: str, now: float) -> None:
        """Plan what goes to a shard for that host from now on: another server has taken over there."""


@dataclass(frozen=True, slots=True)
class Fabric:
    """A planner for one run, and the host of each worker's gradients, by the worker's name, as the planner calls it."""

    planner: TransferPlanner
    host_of: Callable[[str], str]


def require_plannable(traits: Traits, *, sums: bool) -> None:
    """Raise `ConfigurationError` if transfers cannot be planned, or gradients not summed, under such a policy."""
    if traits.scope is Scope.BLOCK:
        text = "transfers cannot be planned where the policy decides block by block; choose another policy"
        raise ConfigurationError(text, field="network")
    if sums and not traits.sums:
        text = (
            "the policy takes no sums of gradients: it learns from each that arrives, or has workers abort; "
            "choose bsp, asp, ssp or delay-bounded, or no aggregators"
        )
        raise ConfigurationError(text, field="network")
