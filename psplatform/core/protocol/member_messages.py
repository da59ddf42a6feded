"""What gradient workers and the coordinator say to each other, and what copies say of checkpoints.

`psplatform.core.protocol.messages` has them all.
"""

from __future__ import annotations

from typing import Any, Final

from psplatform.core.protocol.values import dataclass


@dataclass(frozen=True, slots=True)
class Label:
    """The versions a gradient was computed on.

    Attributes
    ----------
    versions, epochs
        One entry per shard: the version pulled from it and the epoch of the server that answered.
    """

    versions: tuple[int, ...]
    epochs: tuple[int, ...]

    @property
    def version(self) -> int:
        """The oldest version among the shards: what staleness is counted from."""
        return min(self.versions)


@dataclass(frozen=True, slots=True)
class BatchAssignment:
    """One batch of one pass over the data, dealt by the coordinator under epoch sampling."""

    epoch: int
    number: int


MOST_NAMED: Final = 16
"""Samples that a flaw names: enough to find what is wrong with the data, few enough for a sentence."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """What is not finite in a gradient, and in which samples.

    Attributes
    ----------
    tensor
        In words: the input, the target, the loss, or the gradient of a parameter.
    samples
        Indices in the data set, the first `MOST_NAMED`: of the samples that show it, or, where none does by itself, of
        the whole batch.
    count
        How many there are.
    alone
        Whether each of the samples shows it by itself.
    of_data
        Whether the samples themselves are not finite: no model can make anything of them.
    """

    tensor: str
    samples: tuple[int, ...]
    count: int
    alone: bool = True
    of_data: bool = False

    @property
    def named(self) -> str:
        """The samples in words."""
        more = ", ..." if self.count > len(self.samples) else ""
        listed = ", ".join(map(str, self.samples)) + more
        return f"sample {listed}" if self.count == 1 else f"{self.count} samples ({listed})"

    def __str__(self) -> str:
        where = f"of {self.named}" if self.alone else f"in a batch of {self.named}"
        return f"{self.tensor} {where} is not finite"


# --- worker and coordinator ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Join:
    """A process offers itself as a gradient worker under a name of its own that is never used again.

    `host` is where it is, by the name that the planner of transfers has for it; empty where there is none.
    """

    member: str
    process: str
    host: str = ""


@dataclass(frozen=True, slots=True)
class Welcome:
    """The joiner's slot, and the incarnation number of the process in that slot."""

    term: int
    slot: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class Release:
    """Compute gradient `sequence` of your slot on `version` or newer.

    With a `relay`, get the parameters from the process of that member; if it has not answered after `patience_s`
    seconds, from the servers.  With `tell`, say when they are there.  Repeated under a higher term it says that it
    stands: what was decided under that term may be computed on.
    """

    term: int
    sequence: int
    version: int
    assignment: BatchAssignment | None
    relay: str = ""
    patience_s: float = 0.0
    tell: bool = False


@dataclass(frozen=True, slots=True)
class Abort:
    """Interrupt gradient `sequence`: the model has moved on."""

    term: int
    sequence: int


JOIN_AGAIN: Final = "declared lost; join again"
"""Why a worker is told to stop whose process may offer itself anew, under another name."""

SLOTS_TAKEN: Final = "every slot is taken"
ENDING: Final = "the run is ending"
"""Why a worker is told to stop that the run does not need."""

PROCESS_ENDS: Final = "its process ends"
"""Why a worker leaves whose process is about to end: nothing is placed there any more."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Leave: the run ends, or goes on without this worker.  `reason` says why."""

    term: int
    reason: str


@dataclass(frozen=True, slots=True)
class Announce:
    """A gradient is ready and every shard can reach it; where a policy decides block by block, those in `shards` can.

    Attributes
    ----------
    squared_norm
        Squared Euclidean norm of the whole gradient; not finite where the gradient is not.
    loss
        Mean loss over the batch.
    compute_s, pull_s, push_s, wait_s
        Seconds spent computing, fetching parameters, sending, and waiting: for the release before that, and for being
        sent where transfers are planned.
    shards
        The shards that can reach it now, where a policy decides block by block; else empty.
    counter
        The version that its worker was released on, -1 where nobody says: block by block the label does not tell it.
    flaw
        What is not finite, where the gradient is not.
    assignment
        The batch that it was computed on, under epoch sampling.
    """

    member: str
    sequence: int
    label: Label
    samples: int
    loss: float
    squared_norm: float
    compute_s: float
    pull_s: float
    push_s: float
    wait_s: float
    shards: tuple[int, ...] = ()
    counter: int = -1
    flaw: Flaw | None = None
    assignment: BatchAssignment | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """A gradient is computed and lies at its worker, which asks whether to send it.

    Attributes
    ----------
    announce
        What will be announced once every shard can reach it, the seconds of sending aside.
    host
        Where it lies.
    """

    announce: Announce
    host: str


@dataclass(frozen=True, slots=True)
class Bundle:
    """Gradients that are summed on their way to the servers; no two bundles of a run have the same name.

    Attributes
    ----------
    aggregator
        The member whose process sums them.
    term, number
        Of the coordinator that grants it, and of the grant.
    """

    aggregator: str
    term: int
    number: int


@dataclass(frozen=True, slots=True)
class Contribution:
    """One gradient of a commit: which member holds or held it, its identity (slot, sequence), and its batch.

    Under epoch sampling the assignment tells a coordinator that takes over, and may never have heard of the gradient,
    that the batch is used.  With a bundle, servers have only the sum of all gradients of that.
    """

    member: str
    slot: int
    sequence: int
    assignment: BatchAssignment | None = None
    bundle: Bundle | None = None

    @property
    def source(self) -> Bundle | tuple[str, int]:
        """What names the vector that servers have it in: all of a bundle have the same."""
        return self.bundle or (self.member, self.sequence)


@dataclass(frozen=True, slots=True)
class Route:
    """Send gradient `sequence`, which you have offered, now.

    Attributes
    ----------
    number
        Of the grant: the worker obeys none below one that it has obeyed.
    aggregator
        The member whose process sums it with others as bundle `number`; empty for straight to the servers.  What is
        sent to be summed may have to be sent again: it must stay as it is until the next release, or until it is sent
        straight.
    """

    term: int
    sequence: int
    number: int = 0
    aggregator: str = ""


@dataclass(frozen=True, slots=True)
class Assemble:
    """Sum these gradients, in this order, as soon as all are there, and send the sum to every server.

    Without gradients: the bundle is given up; under the number 0, only what is over is told.

    Attributes
    ----------
    oldest, oldest_term
        The first bundle of this aggregator that is not over, and its term: of those before, all servers show what
        became of them, so that what is left of them can be forgotten, the sums included.
    """

    term: int
    number: int
    gradients: tuple[Contribution, ...]
    oldest: int = 0
    oldest_term: int = 0


@dataclass(frozen=True, slots=True)
class Bundled:
    """The sum of a bundle is at every server.

    Attributes
    ----------
    push_s
        Seconds that it took to send the sum.
    ages_s
        Of each part, in the order in which they were summed, the seconds since it came.
    """

    bundle: Bundle
    push_s: float
    ages_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Drop:
    """Drop gradient `sequence`, which you have offered, where it lies, and wait for a release."""

    term: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """A worker has the parameters for gradient `sequence`, `pull_s` seconds after it asked; if it is to say so."""

    member: str
    sequence: int
    pull_s: float


@dataclass(frozen=True, slots=True)
class Carried:
    """What the interface of a host has carried lately: consecutive samples, each after the last one said before.

    Attributes
    ----------
    source
        Who counts: a member, or the coordinator itself.
    host
        Whose interface it is, by the name that the planner of transfers has for it.
    seconds, out, into
        Of each sample, how long it took, and how many bytes went out of the host and came in.
    waiting
        How many bytes waited to go out at the end of each, because the interface let no more pass; empty where that is
        not known.
    """

    source: str
    host: str
    seconds: tuple[float, ...]
    out: tuple[int, ...]
    into: tuple[int, ...]
    waiting: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Aborted:
    """The computation of `sequence` really stopped, `latency_s` seconds after the abort reached the worker."""

    member: str
    sequence: int
    latency_s: float


@dataclass(frozen=True, slots=True)
class Failed:
    """The user's code raised on this worker."""

    member: str
    sequence: int
    kind: str
    text: str
    traceback: str


@dataclass(frozen=True, slots=True)
class Leave:
    """The member goes away in good order."""

    member: str
    reason: str


@dataclass(frozen=True, slots=True)
class Cut:
    """The state at `position`, after which no commit follows, belongs to checkpoint `number`."""

    term: int
    epoch: int
    number: int
    position: int


@dataclass(frozen=True, slots=True)
class Written:
    """A copy has written its part of checkpoint `number`: what the manifest must say of it, as plain values."""

    shard: int
    number: int
    position: int
    part: dict[str, Any]


@dataclass(frozen=True, slots=True)
class NotWritten:
    """A copy could not write its part of checkpoint `number`, because of `text`."""

    shard: int
    number: int
    text: str
