"""What the coordinator, servers and replicas say to each other of a shard.

`psplatform.core.protocol.messages` has them all.
"""

from __future__ import annotations

from typing import Final

from psplatform.core.protocol.member_messages import Contribution
from psplatform.core.protocol.values import dataclass

# --- coordinator and server ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Commit:
    """Apply the mean of these gradients, in this order, as the `position`-th commit.

    Attributes
    ----------
    version
        The version that exists once this commit is applied.
    rate
        Factor on the optimiser's learning rate.
    norms
        Whether the server reports squared norms of the mean gradient.
    clip
        Whether the server must wait for `Proceed` with a clipping factor between gathering and stepping.
    cut
        Number of the checkpoint that this shard's state at `position` belongs to, or 0.
    again
        Whether another server may have shown it already: then workers may have gone on, and may be writing over the
        gradients that it is made of.
    updates
        Versions that it makes.  More than one: so many gradients, each an update by itself, are applied in one step,
        along their sum, or as many times the step along their mean where the optimiser divides by their size.

    Without contributions every position up to this one that the shard has not applied is lost there: the version
    exists, nothing is applied.
    """

    term: int
    epoch: int
    position: int
    version: int
    contributions: tuple[Contribution, ...]
    rate: float
    norms: bool = False
    clip: bool = False
    cut: int = 0
    again: bool = False
    updates: int = 1


@dataclass(frozen=True, slots=True)
class Proceed:
    """Multiply the gathered gradient of `position` by `factor`, then step."""

    term: int
    position: int
    factor: float


@dataclass(frozen=True, slots=True)
class Gathered:
    """A shard has what is to be applied as `position`; the squared norms of the mean gradient, block by block."""

    shard: int
    epoch: int
    position: int
    squared_norms: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Applied:
    """A shard has made `version` visible by applying `position`.

    Attributes
    ----------
    step
        Euclidean norm of the change of the parameters.
    divergence, lag
        At most so far, and so many updates, are the worst of the replicas in sync from what is visible now.
    replicated_bytes
        What this server has sent to replicas so far.
    """

    shard: int
    epoch: int
    position: int
    version: int
    squared_norms: tuple[float, ...]
    step: float = 0.0
    divergence: float = 0.0
    lag: int = 0
    replicated_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """A shard refused a message of a lower term than it has seen: its sender has been replaced."""

    shard: int
    epoch: int
    term: int


# --- copies of a shard --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Promote:
    """Be the server of the shard from now on, under `epoch`; other copies of it are none any more.

    Sent again where it has changed.  `position` is the last one that the coordinator knows to be decided: the new
    server answers no pull before it shows that.  While a coordinator takes over, it does not know all that was decided:
    such an order is not `settled`, and the new server answers no pull before it gets one that is.  Where `missing`
    names a copy that is lost, its place must be taken: the new server goes no further than if that were its replica,
    until it is told to exclude it.  `successors` are the other replicas that were in sync with the lost server: the new
    one serves when all of them stand where it does, so that until then any of them may be promoted in its place.
    """

    term: int
    epoch: int
    position: int = 0
    missing: str = ""
    successors: tuple[str, ...] = ()
    settled: bool = True

    def replaces(self, other: Promote | None) -> bool:
        """Whether this order was given after `other`, and does not just come after it.

        In one term successors become only fewer, and what is settled stays so.
        """
        if other is None or (self.term, self.epoch) != (other.term, other.epoch):
            return other is None or (self.term, self.epoch) > (other.term, other.epoch)
        return (len(self.successors), not self.settled) < (len(other.successors), not other.settled)


@dataclass(frozen=True, slots=True)
class Promoted:
    """The copy is the server of its shard under `epoch`, and begins with the state after `position`.

    Attributes
    ----------
    term
        Of the coordinator that it obeys.
    commits
        Those after the position that this one knows to be decided: what the copy has of a coordinator that is gone.
    """

    shard: int
    copy: str
    epoch: int
    position: int
    version: int
    term: int = 0
    commits: tuple[Commit, ...] = ()


@dataclass(frozen=True, slots=True)
class Include:
    """Bring `replica` in sync, and show no version from which it is further away than the bound."""

    term: int
    epoch: int
    replica: str


@dataclass(frozen=True, slots=True)
class Exclude:
    """Wait for `replica` no longer: it will not be promoted."""

    term: int
    epoch: int
    replica: str


@dataclass(frozen=True, slots=True)
class Retiring:
    """The process of `copy` is about to end in good order, and waits a little until nobody needs the copy any more."""

    copy: str


@dataclass(frozen=True, slots=True)
class HandOver:
    """Begin no further position, and bring a replica in sync to where you are."""

    term: int
    epoch: int


@dataclass(frozen=True, slots=True)
class HandedOver:
    """`replica` has everything that its server, which does nothing more, has shown or staged."""

    shard: int
    epoch: int
    replica: str


@dataclass(frozen=True, slots=True)
class InSync:
    """The server holds itself to the bound for `replica`, which stands at `position`."""

    shard: int
    epoch: int
    replica: str
    position: int


@dataclass(frozen=True, slots=True)
class Past:
    """A commit that a copy's state contains, with the squared norms that its server had reported of it."""

    commit: Commit
    squared_norms: tuple[float, ...]


UPDATE: Final = "update"
STATE: Final = "state"
GRADIENTS: Final = "gradients"


@dataclass(frozen=True, slots=True)
class Transfer:
    """What brings a replica to `position`; the arrays travel beside it.

    Attributes
    ----------
    server
        Name of the copy that sends it.
    number
        Counts the transfers of a server to this replica.
    kind
        ``update``: the mean gradient of `position`, scaled, to be applied with `rate` to the state after the position
        before.  ``state``: parameters and optimiser state after `position`.  ``gradients``: nothing; the replica, which
        stands at the position before, takes the gradients of `position` from the workers.
    applied
        Slot and last sequence applied, in pairs: the dedupe table after `position`, of which ``gradients`` tells only
        what is new.
    cut
        Number of the checkpoint that the state at `position` belongs to, or 0.
    past
        The commits that the state contains and the replica may not know of: it may be the last to know them.
    contributions, factor, updates
        For ``gradients``: those that the server applied, in its order, what it multiplied their mean with to clip, and
        the commit's updates.
    """

    server: str
    shard: int
    epoch: int
    number: int
    kind: str
    position: int
    version: int
    rate: float
    applied: tuple[tuple[int, int], ...]
    cut: int = 0
    past: tuple[Past, ...] = ()
    contributions: tuple[Contribution, ...] = ()
    factor: float = 1.0
    updates: int = 1


@dataclass(frozen=True, slots=True)
class Replicated:
    """The replica stands at `position` after transfer `number`; one below 0 says that it could not be carried out."""

    shard: int
    replica: str
    epoch: int
    number: int
    position: int


@dataclass(frozen=True, slots=True)
class Outdated:
    """A copy has heard of `epoch`, which is higher than that of the server it answers to."""

    shard: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Unreachable:
    """A gradient of `position` has gone: its worker has written the next one over it, or has died with it."""

    shard: int
    epoch: int
    position: int


@dataclass(frozen=True, slots=True)
class Moved:
    """The server of `shard` is now `copy`, under `epoch`."""

    term: int
    shard: int
    epoch: int
    copy: str
