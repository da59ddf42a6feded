"""What the roles say to each other.

Every message carries what fences it: the coordinator's are stamped with its *term*, the servers' with their *epoch*,
the workers' with their *incarnation* (the process in a slot).  A receiver ignores lower stamps than it has seen.

All messages are immutable and hold plain values only; arrays never travel inside a message.
"""

from __future__ import annotations

from typing import Any

from psplatform.core.protocol.member_messages import (
    ENDING,
    JOIN_AGAIN,
    PROCESS_ENDS,
    SLOTS_TAKEN,
    Abort,
    Aborted,
    Announce,
    Assemble,
    BatchAssignment,
    Bundle,
    Bundled,
    Carried,
    Contribution,
    Cut,
    Drop,
    Failed,
    Fetched,
    Flaw,
    Join,
    Label,
    Leave,
    NotWritten,
    Offer,
    Release,
    Route,
    Stop,
    Welcome,
    Written,
)
from psplatform.core.protocol.shard_messages import (
    GRADIENTS,
    STATE,
    UPDATE,
    Applied,
    Commit,
    Exclude,
    Gathered,
    HandedOver,
    HandOver,
    Include,
    InSync,
    Moved,
    Outdated,
    Past,
    Proceed,
    Promote,
    Promoted,
    Refused,
    Replicated,
    Retiring,
    Transfer,
    Unreachable,
)
from psplatform.core.protocol.values import dataclass

# Every message can be had from here.
__all__ = [
    "ENDING",
    "GRADIENTS",
    "JOIN_AGAIN",
    "PROCESS_ENDS",
    "SLOTS_TAKEN",
    "STATE",
    "UPDATE",
    "Abort",
    "Aborted",
    "Acknowledged",
    "Announce",
    "Applied",
    "Assemble",
    "BatchAssignment",
    "Beat",
    "Bundle",
    "Bundled",
    "Carried",
    "Commit",
    "Contribution",
    "Cut",
    "Drop",
    "Exclude",
    "Failed",
    "Fetched",
    "Flaw",
    "Gathered",
    "HandOver",
    "HandedOver",
    "InSync",
    "Include",
    "Join",
    "Label",
    "Lease",
    "Leave",
    "LogEntry",
    "Moved",
    "NotWritten",
    "Offer",
    "Outdated",
    "Past",
    "Proceed",
    "Promote",
    "Promoted",
    "Pull",
    "Pulled",
    "Refused",
    "Release",
    "Replicated",
    "Retiring",
    "Route",
    "ServerState",
    "StateRequest",
    "Stop",
    "Transfer",
    "Unreachable",
    "Welcome",
    "WorkerState",
    "Written",
]

# --- worker and server --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pull:
    """Send shard content of `version` or newer, as soon as it is visible.

    `epoch` is the highest that the member has heard of for this shard: a server of a lower one has been replaced.
    """

    member: str
    shard: int
    request: int
    version: int
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Pulled:
    """The answer to a pull: the shard's content stood at `version` under `epoch`.

    `decided_in` is the term of the coordinator that decided the commit which made this version, or a later term.  Under
    a release of a lower term nothing is computed on it: that release may have been granted on another commit.
    """

    shard: int
    request: int
    version: int
    epoch: int
    decided_in: int = 0


# --- leases and terms ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Beat:
    """`sender` lives and asks for a lease; `sent_at` is its own clock's.

    `longest_s` is a coordinator's promise to its standby: none of the leases that it has given lasts longer than that
    from now on, and none that it will give does before the standby has heard of a longer one.
    """

    sender: str
    sent_at: float
    longest_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Lease:
    """The sender of the beat of `sent_at` is not replaced for silence before `seconds` have passed since then."""

    term: int
    sent_at: float
    seconds: float


@dataclass(frozen=True, slots=True)
class StateRequest:
    """A coordinator has taken over: obey no lower term, and say where you stand.

    `position` is the last one it knows to be decided, for a copy; for a member it means nothing.
    """

    term: int
    position: int = 0


@dataclass(frozen=True, slots=True)
class ServerState:
    """Where a copy stands, with the commits after the position asked about that it knows of.

    `replicas` are those that a server waits for: of some of them perhaps only a coordinator knew that is gone.
    """

    shard: int
    copy: str
    term: int
    epoch: int
    serving: bool
    position: int
    commits: tuple[Commit, ...]
    replicas: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerState:
    """What a member was released for last: the coordinator that did may be gone.

    `announced` is what it said of its gradients since: all in one message, because of a release that overtakes them the
    coordinator would conclude that they are over.  `aborted` says that it has given up that gradient, as it was told.
    """

    term: int
    member: str
    sequence: int
    version: int
    assignment: BatchAssignment | None
    announced: tuple[Announce, ...] = ()
    aborted: bool = False


@dataclass(frozen=True, slots=True)
class LogEntry:
    """The `number`-th event that the coordinator has handled, at `now`."""

    term: int
    number: int
    now: float
    event: Any


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The standby has handled every event up to `number`."""

    standby: int
    number: int
