"""The interface of a synchronisation policy: four questions, and one hook to learn from commits.

A policy decides when gradients are applied and when workers go on.  It sees ids, versions, times, norms and losses,
never arrays; it has no clock, no randomness of its own and does no I/O, so the same object runs on a cluster, in
memory and in a simulator.  The coordinator does all bookkeeping and asks:

``admit(gradient, view)``
    Apply this gradient at once, pool it for the round, hold it until the next one, or drop it, and why?
``latest(gradient, view)``
    Up to which version would it be applied?  Asked only where transfers are planned, before it is sent.
``pool_ready(view)``
    Commit the pool now, not yet, or at a given time?  Asked only while the pool holds something.
``may_start(worker, view)``
    May this waiting worker go on?  With the newest version, unless ``wanted(worker, view)`` names another.
``step_scale(commit, view)``
    Factor on the learning rate of this commit.
``on_commit(commit, view)``
    Learn from what was committed and plan the next round.

Policies are found by the entry-point group ``psplatform.policies`` and declare their parameters as dataclass fields
(`psplatform.core.parameters`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Protocol

from psplatform.core.parameters import settle
from psplatform.core.protocol.messages import BatchAssignment, Bundle, Flaw, Label
from psplatform.core.reasons import Reason
from psplatform.core.traits import Change, Scope, Traits
from psplatform.errors import ConfigurationError

__all__ = [
    "APPLY",
    "HOLD",
    "POOL",
    "Answer",
    "Change",
    "Committed",
    "Fate",
    "Gradient",
    "Label",
    "Policy",
    "Scope",
    "Traits",
    "Verdict",
    "View",
    "Worker",
    "at",
    "drop",
    "not_yet",
    "yes",
]


class Fate(Enum):
    """What becomes of an admitted gradient."""

    APPLY = "apply"
    POOL = "pool"
    HOLD = "hold"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to `Policy.admit`."""

    fate: Fate
    reason: Reason | None = None


APPLY = Verdict(Fate.APPLY)
POOL = Verdict(Fate.POOL)
HOLD = Verdict(Fate.HOLD)
"""Ask again after the block's next commit; only where the policy decides block by block.

A held gradient is given up when its worker is lost, and so is one that a later gradient of its slot has overtaken.
"""


def drop(reason: Reason) -> Verdict:
    """Return the verdict to drop a gradient because of `reason`."""
    return Verdict(Fate.DROP, reason)


@dataclass(frozen=True, slots=True)
class Answer:
    """Yes, not yet, or at a given time, with the reason in words.

    Attributes
    ----------
    at
        Time from which the answer is yes; minus infinity is now, ``None`` is not before something changes.
    """

    at: float | None
    reason: str


def yes(reason: str) -> Answer:
    """Return the answer "now"."""
    return Answer(float("-inf"), reason)


def not_yet(reason: str) -> Answer:
    """Return the answer "not before something changes"."""
    return Answer(None, reason)


def at(time: float, reason: str) -> Answer:
    """Return the answer "at `time`, unless something changes before"."""
    return Answer(time, reason)


@dataclass(frozen=True, slots=True)
class Gradient:
    """What a policy sees of a gradient that all shards can reach.

    Attributes
    ----------
    slot, sequence
        Its identity; all randomness in it comes from these and the run's seed.
    label
        Versions and epochs it was computed on.
    squared_norm, loss, compute_s
        Squared Euclidean norm, mean loss over its batch, seconds of computing.
    arrived_at
        Time at which the coordinator heard of it.
    counter
        The version its worker was released for (`Policy.wanted`).
    flaw
        What is not finite in it, as far as its worker can tell.
    assignment
        The batch it was computed on, under epoch sampling.
    bundle
        What it was summed with on the way to the servers, which do not have it alone then.
    ahead
        Gradients of its bundle that are applied right before it: so much older than now the model is for it.
    """

    member: str
    slot: int
    sequence: int
    label: Label
    samples: int
    loss: float
    squared_norm: float
    compute_s: float
    arrived_at: float
    counter: int = 0
    flaw: Flaw | None = None
    assignment: BatchAssignment | None = None
    bundle: Bundle | None = None
    ahead: int = 0

    @property
    def finite(self) -> bool:
        """Whether it can be applied."""
        return math.isfinite(self.squared_norm) and math.isfinite(self.loss)


@dataclass(frozen=True, slots=True)
class Committed:
    """What a policy sees of a commit.

    Attributes
    ----------
    position
        Index in the total order of commits, from 1.
    version
        Version that exists since; one more than before, or as many more as updates were summed on the way.
    gradients
        The accepted gradients in the order of their slots.
    staleness
        For each gradient, the version right before it minus its label: that before the commit, but in a sum of
        several updates, where each makes a version.
    mean_squared_norm
        Squared norm of the mean gradient, or ``None`` where `Traits.mean_norm` did not ask for it.
    """

    position: int
    version: int
    gradients: tuple[Gradient, ...]
    staleness: tuple[int, ...]
    mean_squared_norm: float | None = None

    @property
    def loss(self) -> float:
        """Mean loss over the accepted gradients."""
        return sum(one.loss for one in self.gradients) / len(self.gradients)


class Worker(Protocol):
    """What a policy sees of a worker."""

    @property
    def slot(self) -> int:
        """The worker's slot."""

    @property
    def sequence(self) -> int:
        """Number of the gradient its slot was last released for; they count from 1."""

    @property
    def version(self) -> int:
        """Newest version the worker was released on or has worked on; -1 if none that is left, as before its first."""

    @property
    def counter(self) -> int:
        """Version its last release asked for (`Policy.wanted`); -1 before its first release."""

    @property
    def clock(self) -> int:
        """Gradients of this slot that were applied, never below the minimum at the time of joining."""


class View(Protocol):
    """What a policy sees of the run; every answer costs O(1), but for `members`."""

    @property
    def now(self) -> float:
        """Time of the event at hand, seconds."""

    @property
    def block(self) -> int:
        """Number of the block this is about; 0 where the policy decides about the whole model."""

    @property
    def version(self) -> int:
        """Version after the last decided commit."""

    @property
    def round_started_at(self) -> float:
        """Time of the last decided commit."""

    @property
    def workers(self) -> int:
        """Number of workers the job was given: the n of every rule that names one."""

    @property
    def live(self) -> int:
        """Number of live workers."""

    @property
    def busy(self) -> int:
        """Number of live workers that are computing or fetching, on whatever version."""

    @property
    def pooled(self) -> int:
        """Number of gradients in the pool."""

    @property
    def refused(self) -> int:
        """Number of live workers whose gradient was refused since the last commit, because it was not finite."""

    @property
    def minimum_clock(self) -> int:
        """Smallest clock among the live workers."""

    def members(self) -> Sequence[Worker]:
        """Return the live workers in the order of their slots, in O(n log n): not for every event."""


@dataclass
class Policy(ABC):
    """A synchronisation policy.  Subclasses are dataclasses whose fields are their parameters."""

    source: ClassVar[str] = ""
    """Authors, title and year of the work it implements."""

    def __post_init__(self) -> None:
        """Check the parameters, however the policy was made."""
        settle(self, texts=True)

    def load(self, read: Callable[[str], bytes]) -> None:
        """Fetch what parameters name by path, once and before anything is started; `read` returns a file's bytes."""

    def foresee(self, compute_s: Callable[[int, int], float]) -> None:
        """Take what only a simulator knows, before `check`: ``compute_s(slot, sequence)``, seconds of any gradient.

        For policies that others are measured by; by default it is not listened to.
        """

    @property
    @abstractmethod
    def traits(self) -> Traits:
        """What the engine must know beforehand; constant over a run."""

    def check(self, workers: int) -> None:
        """Raise `ConfigurationError` if the parameters do not fit a job of `workers` workers."""

    @abstractmethod
    def admit(self, gradient: Gradient, view: View) -> Verdict:
        """Say whether `gradient` is applied at once, pooled, held or dropped.

        With `Traits.sums`, it is asked again about one whose sum could not be used.
        """

    def latest(self, gradient: Gradient, view: View) -> int | None:
        """Return the last version before a commit at which `admit` would still apply a gradient that was not sent yet.

        Where transfers are planned, what cannot be there by then is not sent, nor what would hold up others.  A planner
        takes each gradient for a version of its own: so only policies that apply one by one answer; ``None`` sets no
        limit.  Asked any number of times of a gradient that waits: it must be cheap, and change nothing.
        """
        return None

    def pool_ready(self, view: View) -> Answer:
        """Say whether the pool is committed now."""
        raise ConfigurationError(f"{type(self).__name__} pools gradients but never says when the pool is ready")

    @abstractmethod
    def may_start(self, worker: Worker, view: View) -> Answer:
        """Say whether `worker`, which waits, may go on; of several blocks, `view` is that of the oldest."""

    def wanted(self, worker: Worker, view: View) -> int:
        """Return the least version that `worker`, which goes on, must pull; by default the newest decided.

        Less than that is allowed only where the policy decides block by block: else a pull of the newest proves that
        every shard has read the worker's last gradient, which the next one is written over.
        """
        return view.version

    def step_scale(self, commit: Committed, view: View) -> float:
        """Return the factor on the learning rate of `commit`."""
        return 1.0

    def decision(self, view: View) -> Mapping[str, float]:
        """Return the figures that were decided for the commit at hand, by name, such as ``{"k": 5}``: for the log.

        Asked at every commit, before the view has its version: O(1).  Fixed parameters that hold for all commits count
        as well, so that a page can draw what was in force beside what came of it.
        """
        return {}

    def staleness_bound(self, workers: int) -> int | None:
        """Return the staleness that no applied gradient exceeds while `workers` neither join nor leave.

        ``None`` where the policy promises nothing.  By default that is so unless `Traits.exact` allows one version.
        """
        return 0 if self.traits.exact else None

    def on_commit(self, commit: Committed, view: View) -> None:
        """Learn from `commit`."""

    def state(self) -> dict[str, Any]:
        """Return what the policy has learned as plain values; part of every checkpoint."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
