"""What a driver reports to a role beside the messages of other roles: clocks, arithmetic, losses, wishes."""

from __future__ import annotations

from dataclasses import dataclass

from psplatform.errors import PsplatformError


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
class ServerLost:
    """A shard's server died or fell silent."""

    shard: int
    peer: str
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
    """Somebody asked the run to end now."""

    reason: str


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Held-out loss and accuracy of one version; ``None`` where the task has none."""

    version: int
    loss: float | None
    accuracy: float | None


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
    """The gradient of `sequence` lies in the worker's slab."""

    sequence: int
    samples: int
    loss: float
    squared_norm: float
    seconds: float


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
class Reachable:
    """Every shard can reach the gradient of `sequence`; where each block is announced, those in `shards` can."""

    sequence: int
    shards: tuple[int, ...] = ()


# --- a server's own ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GatherDone:
    """The mean gradient of `position` is ready; squared norms per block where they were asked for."""

    position: int
    squared_norms: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class StageDone:
    """The state after `position` is computed but not yet visible."""

    position: int


@dataclass(frozen=True, slots=True)
class PullWithdrawn:
    """The puller no longer waits for `request`."""

    member: str
    request: int


