"""The seam between the platform and what is trained.

A `Task` is what a user hands in: light, picklable, written without knowledge of the platform.  A `Workspace` is its
heavy form inside one process, bound to the flat vectors the platform moves; `psplatform.tasks.opening` makes the one of
the other.  This module loads no torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from psplatform.core.protocol.messages import Flaw

if TYPE_CHECKING:
    from torch import Tensor, nn

    from psplatform.tasks.cancellation import Cancellation
    from psplatform.tensors.layout import Layout, TensorSpec


Batch = Any  # whatever the task's own `load` returns


@dataclass(frozen=True, slots=True)
class Update:
    """What a task's computation yields.

    Attributes
    ----------
    tensors
        By parameter name, a gradient or any other additive change, shaped like the parameter; a name left out
        stands for zeros.
    loss
        The loss on the batch, for the record and for policies that look at it.
    """

    tensors: Mapping[str, Tensor]
    loss: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Quality of one version on held-out data.

    Attributes
    ----------
    accuracy
        A share in [0, 1], or None where it has no meaning.
    metrics
        Whatever else was measured, by name.
    """

    loss: float
    accuracy: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Computed:
    """Record of a finished computation whose update lies in the bound vectors."""

    loss: float
    samples: int


@dataclass(frozen=True, slots=True)
class BatchRef:
    """Names a batch: its samples (``int64[batch]``) and the seed of everything random in its gradient."""

    indices: NDArray[np.int64]
    seed: int


class Task(ABC):
    """What a worker computes, as functions of plain tensors; the base for everything but model + loss + data.

    An update need not be a gradient: under the additive rule it is simply added, as topic counts or sums for
    k-means are.  Parameters handed to a task are shared with the platform: read them, never write them.

    Attributes
    ----------
    samples
        Number of samples; batches are indices below it.
    """

    samples: int

    @abstractmethod
    def initial(self) -> Mapping[str, Tensor]:
        """Return the floating-point parameters to start from; torch's generator is seeded with the run's seed."""

    @abstractmethod
    def compute(self, parameters: Mapping[str, Tensor], batch: Batch, rng: np.random.Generator) -> Update:
        """Return the update that `batch` asks for; all its randomness comes from `rng` or torch's generator.

        The parameters of the next call may be other tensors: what is kept of these shows another version then.

        Where that takes long, `psplatform.tasks.cancellation.check` lets it end early once nobody wants it any more.
        """

    def write_to(self, updates: Mapping[str, Tensor]) -> None:
        """Take where updates are wanted, by parameter name, before the first is computed.

        A `compute` that writes an update there, and returns these tensors, saves a copy of each.  What they hold in
        between is the update before, compressed where the job says so.
        """

    def load(self, indices: NDArray[np.int64]) -> Batch:
        """Return the batch to compute on; by default the indices themselves."""
        return indices

    def evaluate(self, parameters: Mapping[str, Tensor]) -> Evaluation | None:
        """Return the quality of `parameters` on held-out data, or None where there is no such measure."""
        return None


class Workspace(Protocol):
    """A task opened in one process.

    It is used by one thread at a time.  A computation that does not finish leaves the bound `values` as they were.

    Attributes
    ----------
    samples
        Number of samples to train on.
    evaluates
        Whether there are held-out data, so that `evaluate` has something to say.
    specs
        The tensors that training moves, in parameter group 0.
    """

    samples: int
    evaluates: bool
    specs: list[TensorSpec]

    def initial(self) -> dict[str, Tensor]:
        """Return the tensors to start from, on the CPU: the same in every process that has the seed."""

    def bind(
        self,
        layout: Layout,
        values: Mapping[str, Tensor],
        updates: Mapping[str, Tensor] | None,
        ready: Callable[[str], None] | None = None,
    ) -> None:
        """Compute from `values` and into `updates` from now on: by region, flat vectors on the workspace's device.

        Parameters
        ----------
        updates
            ``None`` where nothing is computed but evaluations.
        ready
            May be called while an update is computed, with the name of a parameter whose part of it is there, and again
            if that changes.
        """

    def compute_from(self, values: Mapping[str, Tensor], *, alone: bool = False) -> None:
        """Compute from those vectors from now on, whose buffers are the ones before; mostly from two in turn.

        If `alone`, keep nothing of those before.
        """

    def compute(self, batch: BatchRef, cancel: Cancellation, micro_batches: int = 1) -> Computed:
        """Write the batch's update into the bound `updates`; raise `Cancelled` soon after `cancel` is raised."""

    def examine(self, batch: BatchRef) -> Flaw | None:
        """Return what is not finite in the update of the batch that was computed last, None where that is not known."""

    def evaluate(self, cancel: Cancellation) -> Evaluation | None:
        """Return the quality of the bound `values` on held-out data, or None where the task has none."""

    def try_evaluating(self, most: int) -> None:
        """Measure the loss of up to `most` held-out samples, where they are at hand: mistakes in them show here."""

    def module(self) -> nn.Module | None:
        """Return the model whose parameters are the bound `values`, or None where the task is no module."""
