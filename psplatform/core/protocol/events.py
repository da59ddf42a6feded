"""What a driver reports to a role beside the messages of other roles: clocks, arithmetic, losses, wishes."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from psplatform.core.protocol.member_messages import Bundle, Flaw
from psplatform.core.protocol.values import dataclass
from psplatform.errors import ProcessDied, PsplatformError


@dataclass(frozen=True, slots=True)
class Begin:
    """The run begins; the first event a coordinator gets."""


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The timer set under `tag` is due."""

    tag: str


@dataclass(frozen=True, slots=True)
class MemberLost:
    """A worker's process died, fell silent or was cut off."""

    member: str
    reason: str


@dataclass(frozen=True, slots=True)
class MemberDied:
    """The process of a worker that was lost before has ended, and nobody asked it to: `error` says of what."""

    member: str
    error: ProcessDied


@dataclass(frozen=True, slots=True)
class EvaluatorDied:
    """The same of an evaluator; `opened` says whether it had opened the task by then."""

    error: ProcessDied
    opened: bool = True


@dataclass(frozen=True, slots=True)
class CopyLost:
    """A copy of a shard died or fell silent; `silence_s` seconds after its last sign of life."""

    copy: str
    peer: str
    reason: str
    silence_s: float = 0.0


@dataclass(frozen=True, slots=True)
class CopyReady:
    """A new copy of a shard waits to be brought in sync."""

    shard: int
    copy: str
    process: str


@dataclass(frozen=True, slots=True)
class CopyAwake:
    """A copy that was in the store until it was promoted is a process now, and can be ordered to serve."""

    shard: int
    copy: str
    process: str


@dataclass(frozen=True, slots=True)
class CopyMisplaced:
    """A replica in sync would be better elsewhere: another is to be made there, and this one is to go after that."""

    copy: str
    reason: str


@dataclass(frozen=True, slots=True)
class ProcessesChanged:
    """There are other processes than before: what could not be made may be possible now."""


@dataclass(frozen=True, slots=True)
class NoCopy:
    """No new copy of `shard` can be made, because of `reason`; when that changes, it will be."""

    shard: int
    reason: str


@dataclass(frozen=True, slots=True)
class RunFailed:
    """Something outside the protocol makes it pointless to go on."""

    error: PsplatformError


@dataclass(frozen=True, slots=True)
class RunBroken:
    """The run cannot even be brought to its end in good order."""

    error: PsplatformError


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The run was asked to end now."""

    reason: str


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What one version was found to be on held-out data.

    Attributes
    ----------
    loss, accuracy
        ``None`` where the task has none.
    metrics
        What the job measures beside them, by name.
    kept
        Whether its model was saved, as the best so far.
    trouble
        Why it could not be saved, if it should have been.
    """

    version: int
    loss: float | None
    accuracy: float | None
    metrics: dict[str, float] = field(default_factory=dict)
    kept: bool = False
    trouble: str = ""

    @property
    def values(self) -> dict[str, float]:
        """All that was measured, by name."""
        always = {"loss": self.loss, "accuracy": self.accuracy}
        return {**self.metrics, **{name: value for name, value in always.items() if value is not None}}


@dataclass(frozen=True, slots=True)
class EvaluationLost:
    """The evaluator died before it answered; a new one can be asked."""

    reason: str


@dataclass(frozen=True, slots=True)
class EvaluationFailed:
    """The user's code raised during an evaluation."""

    kind: str
    text: str
    traceback: str


@dataclass(frozen=True, slots=True)
class ModelSaved:
    """The parameters of `version` are in the store."""

    version: int


@dataclass(frozen=True, slots=True)
class SaveFailed:
    """The parameters could not be saved in `store`, because of `text`."""

    text: str
    store: str


# --- a worker's own ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Computed:
    """The gradient of `sequence` lies in the worker's slab; `flaw` says what is not finite, where it is not."""

    sequence: int
    samples: int
    loss: float
    squared_norm: float
    seconds: float
    flaw: Flaw | None = None


@dataclass(frozen=True, slots=True)
class ComputeAborted:
    """The computation of `sequence` ended without a gradient, as asked."""

    sequence: int


@dataclass(frozen=True, slots=True)
class ComputeFailed:
    """The user's code raised while computing `sequence`."""

    sequence: int
    kind: str
    text: str
    traceback: str


@dataclass(frozen=True, slots=True)
class Overwritten:
    """What the gradient of `sequence` was computed on was no version to the end: there is no gradient of it."""

    sequence: int


@dataclass(frozen=True, slots=True)
class Reachable:
    """Every shard can reach the gradient of `sequence`; where each block is announced, those in `shards` can."""

    sequence: int
    shards: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PartArrived:
    """A gradient that is to be summed has come from its worker."""

    bundle: Bundle
    member: str
    sequence: int


@dataclass(frozen=True, slots=True)
class SumReachable:
    """Every server can reach the sum of `bundle`, which took `push_s` seconds to send."""

    bundle: Bundle
    push_s: float


# --- a server's own ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GatherDone:
    """The mean gradient of `position` is ready; squared norms per block where they were asked for."""

    position: int
    squared_norms: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class GatherFailed:
    """A gradient of `position` can no longer be read."""

    position: int


@dataclass(frozen=True, slots=True)
class StageDone:
    """The state after `position` is computed but not yet visible; it is `step` away from the one before."""

    position: int
    step: float = 0.0


@dataclass(frozen=True, slots=True)
class Captured:
    """What transfer `number` to `replica` carries, so many bytes, lies where no later step can spoil it."""

    replica: str
    number: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PullWithdrawn:
    """The puller no longer waits for `request`."""

    member: str
    request: int


@dataclass(frozen=True, slots=True)
class Archived:
    """The copy's part of checkpoint `number` is in the store; `part` is what the manifest must say of it."""

    number: int
    position: int
    part: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ArchiveFailed:
    """The copy's part of checkpoint `number` could not be written, because of `text`."""

    number: int
    text: str


# --- a replica's own -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Loaded:
    """What transfer `number` carried is this copy's state now; or, where it could not be read, is not."""

    number: int
    whole: bool = True


# --- leases and terms ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: renew leases, and see whose are over."""


@dataclass(frozen=True, slots=True)
class StandbyLost:
    """The standby of that number died or fell silent."""

    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class CoordinatorLost:
    """The coordinator died or fell silent."""

    reason: str
    silence_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Claimed:
    """Whether `number` was claimed for this side, where it can be claimed only once."""

    number: int
    granted: bool


@dataclass(frozen=True, slots=True)
class Consulted:
    """The scheduler has answered question `number`: this side is not cut off from it."""

    number: int


@dataclass(frozen=True, slots=True)
class CheckpointSealed:
    """Checkpoint `number` is complete: so many bytes in the store."""

    number: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CheckpointFailed:
    """The manifest of checkpoint `number` could not be written, because of `text`."""

    number: int
    text: str
