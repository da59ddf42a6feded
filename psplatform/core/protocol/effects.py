"""What a role asks its driver to do.  Their results come back as events."""

from __future__ import annotations

from typing import Any

from psplatform.core.protocol.messages import BatchAssignment, Bundle, Contribution, Pulled, Transfer
from psplatform.core.protocol.names import Role
from psplatform.core.protocol.values import dataclass
from psplatform.errors import PsplatformError


@dataclass(frozen=True, slots=True)
class Send:
    """Deliver `message`; the driver retries until it is answered or the addressee is declared lost."""

    to: Role
    message: Any


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Report `TimerFired(tag)` at time `at`; a timer of the same tag is replaced."""

    tag: str
    at: float


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Forget the timer set under `tag`, if any."""

    tag: str


@dataclass(frozen=True, slots=True)
class Log:
    """Append a record to the run's event log."""

    record: dict[str, Any]


# --- the coordinator's own -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Fetch the newest version, at least `version`, and measure it on held-out data; answer with `Evaluated`.

    Without `measure` it is only fetched, and loss and accuracy are ``None``.  `best` is the best value so far of what
    the plan watches: where the plan keeps the best version, one that is better is saved before the answer.
    """

    version: int
    measure: bool
    best: float | None = None


@dataclass(frozen=True, slots=True)
class SaveModel:
    """Put the parameters last evaluated, of `version`, into the store; answer with `ModelSaved`."""

    version: int


@dataclass(frozen=True, slots=True)
class Recruit:
    """Make another copy of `shard`, away from the others; answer with `CopyReady`, or `NoCopy`."""

    shard: int


@dataclass(frozen=True, slots=True)
class Retire:
    """A copy is out: whatever it sends from now on is void."""

    copy: str
    reason: str


@dataclass(frozen=True, slots=True)
class Redirect:
    """The evaluator, which is no member, finds the server of `shard` in `copy`, under `epoch`."""

    shard: int
    epoch: int
    copy: str


@dataclass(frozen=True, slots=True)
class Seal:
    """Write the manifest of checkpoint `number`; answer with `CheckpointSealed` or `CheckpointFailed`.

    Attributes
    ----------
    parts
        By shard, what the copies said of what they wrote.
    state
        The coordinator's own part, plain values.
    """

    number: int
    version: int
    parts: tuple[dict[str, Any], ...]
    state: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Discard:
    """Remove what was written of checkpoint `number`, which was given up, unless it was sealed all the same."""

    number: int


@dataclass(frozen=True, slots=True)
class Appoint:
    """Make a standby of that number, away from this coordinator."""

    number: int


@dataclass(frozen=True, slots=True)
class Claim:
    """Claim `number` where it can be claimed once; answer with `Claimed`.

    Attributes
    ----------
    out
        Whether a standby claims it in the name of the coordinator that is lost, so that the standby of that number,
        which may be lost as well, cannot take over any more.
    after_s
        Seconds to wait before: that standby may be about to.
    """

    number: int
    out: bool = False
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Consult:
    """Ask the scheduler anything, until it answers; answer with `Consulted` of the same number then."""

    number: int


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Make the standby the coordinator from now on, under its number as term."""

    term: int


@dataclass(frozen=True, slots=True)
class Dismiss:
    """A member is out: whatever it sends from now on is void."""

    member: str
    reason: str


@dataclass(frozen=True, slots=True)
class Forget:
    """Let every copy drop what a member that was dismissed has exposed: nothing of it waits to be decided any more."""

    member: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The run is over.

    Attributes
    ----------
    outcome
        ``reached target``, ``updates``, ``epochs``, ``seconds``, ``patience``, ``stopped`` or ``failed``.
    failure
        For ``failed``: what the waiting program gets raised.
    """

    outcome: str
    detail: str
    failure: PsplatformError | None = None


# --- a worker's own ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Compute:
    """Compute the gradient `sequence` of `slot` on the parameters just pulled."""

    slot: int
    sequence: int
    assignment: BatchAssignment | None


@dataclass(frozen=True, slots=True)
class CancelCompute:
    """Interrupt the computation of `sequence`."""

    sequence: int


@dataclass(frozen=True, slots=True)
class Expose:
    """Let every shard reach the gradient of `sequence`; answer with `Reachable`."""

    slot: int
    sequence: int


@dataclass(frozen=True, slots=True)
class SendPart:
    """Send the gradient of `sequence` to the aggregator of `bundle`, to be summed there; nothing answers."""

    slot: int
    sequence: int
    bundle: Bundle


@dataclass(frozen=True, slots=True)
class SumUp:
    """Sum these gradients, whose parts are here, in this order, and send the sum to every server.

    `SumReachable` answers.  Only the sum is needed from then on.
    """

    bundle: Bundle
    gradients: tuple[Contribution, ...]


@dataclass(frozen=True, slots=True)
class HandOn:
    """Send what is held of a shard to a worker, with this answer to its pull."""

    member: str
    answer: Pulled


@dataclass(frozen=True, slots=True)
class ForgetParts:
    """Forget the parts that have come of this bundle, which is summed or given up."""

    bundle: Bundle


@dataclass(frozen=True, slots=True)
class ForgetSum:
    """Forget the sum of this bundle, and send it to no server any more: it is over."""

    bundle: Bundle


@dataclass(frozen=True, slots=True)
class Depart:
    """The session is over."""

    reason: str


# --- a server's own ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gather:
    """Average these gradients, in this order, into scratch; answer with `GatherDone` or `GatherFailed`.

    Of a commit with several `updates` the sum may be wanted instead; for a bundle stands its sum, once.
    With `careful` their workers may be writing over them: what is read must be whole or refused.
    """

    position: int
    contributions: tuple[Contribution, ...]
    norms: bool
    careful: bool = False
    updates: int = 1


@dataclass(frozen=True, slots=True)
class Stage:
    """Compute the state after `position` beside the visible one."""

    position: int
    factor: float
    rate: float


@dataclass(frozen=True, slots=True)
class Publish:
    """Make the staged state visible as `version`."""

    position: int
    version: int


@dataclass(frozen=True, slots=True)
class Skip:
    """Show what is visible under `version`, too: position `position` is lost on this shard."""

    position: int
    version: int


@dataclass(frozen=True, slots=True)
class Transmit:
    """Capture what `transfer` is to carry before anything else is computed, and send it; answer with `Captured`."""

    replica: str
    transfer: Transfer


@dataclass(frozen=True, slots=True)
class Archive:
    """Copy the newest state before anything else is computed, and write it as a part of checkpoint `number`.

    Answer with `Archived` or `ArchiveFailed`.
    """

    number: int
    position: int
    version: int
    applied: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Serve:
    """Answer pulls from now on, under `epoch`: this copy is its shard's server."""

    epoch: int
    version: int


# --- a replica's own -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Load:
    """Make what came with `transfer` this copy's state; answer with `Loaded`."""

    transfer: Transfer


Effect = (
    Send
    | SetTimer
    | CancelTimer
    | Log
    | Evaluate
    | SaveModel
    | Dismiss
    | Forget
    | Finish
    | Compute
    | CancelCompute
    | Expose
    | SendPart
    | SumUp
    | ForgetParts
    | ForgetSum
    | HandOn
    | Depart
    | Gather
    | Stage
    | Publish
    | Recruit
    | Retire
    | Redirect
    | Seal
    | Discard
    | Appoint
    | Claim
    | Consult
    | TakeOver
    | Skip
    | Transmit
    | Archive
    | Serve
    | Load
)
