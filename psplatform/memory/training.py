"""Real training in memory: every shard and every worker computes with tensors, in one thread.

Workers share nothing.  Each has a workspace of its own, pulls are copies, and an exposed gradient is a copy as well: it
can be gathered after its worker has died, and what a worker computes next cannot change it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from psplatform.core.effects import Compute
from psplatform.core.events import Computed, ComputeFailed, Evaluated, EvaluationFailed
from psplatform.core.messages import Contribution
from psplatform.errors import InvariantViolation
from psplatform.jobs.optimizers import Optimizer
from psplatform.memory.evaluator import EVALUATOR
from psplatform.tasks.batches import batch_of
from psplatform.tasks.cancellation import Cancellation
from psplatform.tasks.foreign import describe
from psplatform.tasks.layouts import layout_of
from psplatform.tasks.seam import Task, Workspace, open_workspace
from psplatform.tasks.supervised import SupervisedTask
from psplatform.tensors.layout import Layout
from psplatform.tensors.norms import norm, squared_norms
from psplatform.tensors.shard import Shard
from psplatform.tensors.vectors import allocate, fill, named_views, shard_vectors

Vectors = dict[str, Tensor]

_KEPT: Final = 16
"""Exposed gradients kept per member where blocks are merged one by one: more than a server lets it run ahead
(`psplatform.core.server.MOST_AHEAD`)."""


@dataclass(frozen=True, slots=True)
class Bench:
    """One member's workspace and the vectors it is bound to."""

    workspace: Workspace
    values: Vectors
    updates: Vectors


class TensorArithmetic:
    """`psplatform.memory.arithmetic.Arithmetic` with real tensors on the CPU.

    Parameters
    ----------
    task
        What is trained.
    optimizer
        What the servers do with mean gradients.
    shards, batch_size
        As in the run's plan.
    block_elements, micro_batches, seed
        As in a job.
    per_block
        Whether blocks are merged one by one, so that a member may expose a gradient before the last is consumed.

    Attributes
    ----------
    layout
        Where each tensor lies.
    samples, evaluates
        What the plan must say of the task.
    saved
        The tensors by name that the run kept, empty before its end; `saved_version` is their version.

    Raises
    ------
    ConfigurationError
        If the task cannot be trained.
    """

    def __init__(
        self,
        task: Task | SupervisedTask,
        optimizer: Optimizer,
        *,
        shards: int = 1,
        batch_size: int = 32,
        block_elements: int = 65536,
        micro_batches: int = 1,
        seed: int = 0,
        per_block: bool = False,
    ) -> None:
        self._task, self._seed, self._several = task, seed, per_block
        self._batch_size, self._micro_batches = batch_size, micro_batches
        workspace = self._open()
        self.layout = layout_of(workspace, optimizer, shards, block_elements)
        self.samples, self.evaluates = workspace.samples, workspace.evaluates
        self.saved: dict[str, Tensor] = {}
        self.saved_version = -1
        self._benches = {EVALUATOR: self._bench(workspace)}
        self._exposed: dict[str, dict[int, Vectors]] = {}
        self._shards = _shards(self.layout, optimizer, workspace.initial())

    def compute(self, member: str, effect: Compute, seconds: float) -> Computed | ComputeFailed:
        """Compute a gradient on what `member` loaded last."""
        bench = self._bench_of(member)
        batch = batch_of(self._seed, effect.slot, effect.sequence, effect.ticket, self.samples, self._batch_size)
        try:
            done = bench.workspace.compute(batch, Cancellation(), self._micro_batches)
        except Exception as error:  # noqa: BLE001  the seam where whatever the user's code raises becomes an event
            return ComputeFailed(effect.sequence, *describe(error))
        return Computed(effect.sequence, done.samples, done.loss, _squared_norm(self.layout, bench.updates), seconds)

    def expose(self, member: str, slot: int, sequence: int) -> None:
        """Let every shard reach the gradient just computed."""
        kept = self._exposed.setdefault(member, {})
        kept[sequence] = _copy(self._bench_of(member).updates)
        for old in list(kept)[: -_KEPT if self._several else -1]:
            del kept[old]

    def gather(self, shard: int, contributions: tuple[Contribution, ...], *, norms: bool) -> tuple[float, ...]:
        """Average gradients; return squared norms per block if asked."""
        pieces = [shard_vectors(self.layout, shard, self._exposure(one)) for one in contributions]
        self._shards[shard].gather(pieces)
        return tuple(self._shards[shard].squared_norms()) if norms else ()

    def stage(self, shard: int, factor: float, rate: float) -> None:
        """Compute the next state beside the visible one."""
        if factor != 1.0:
            self._shards[shard].scale(factor)
        self._shards[shard].stage(rate)

    def publish(self, shard: int, version: int) -> None:
        """Make the staged state visible."""
        self._shards[shard].publish(version)

    def snapshot(self, shard: int) -> Vectors:
        """Return a copy of the visible content of a shard."""
        return _copy(dict(self._shards[shard].front))

    def load(self, member: str, shard: int, content: Vectors) -> None:
        """Put a shard's content into the member's parameters."""
        for key, piece in shard_vectors(self.layout, shard, self._bench_of(member).values).items():
            piece.copy_(content[key])

    def evaluate(self, version: int) -> Evaluated | EvaluationFailed:
        """Measure what the evaluator loaded last."""
        try:
            found = self._benches[EVALUATOR].workspace.evaluate(Cancellation())
        except Exception as error:  # noqa: BLE001  the seam where whatever the user's code raises becomes an event
            return EvaluationFailed(*describe(error))
        return Evaluated(version, found.loss, found.accuracy) if found else Evaluated(version, None, None)

    def save(self, version: int) -> None:
        """Keep a copy of what the evaluator loaded last."""
        self.saved = named_views(self.layout, _copy(self._benches[EVALUATOR].values))
        self.saved_version = version

    def forget(self, member: str) -> None:
        """Close the member's workspace; the gradient it exposed last stays."""
        self._benches.pop(member, None)

    def visible(self) -> dict[str, Tensor]:
        """Return copies of the tensors that the shards show now, by name."""
        whole = allocate(self.layout)
        for shard, state in enumerate(self._shards):
            for key, piece in shard_vectors(self.layout, shard, whole).items():
                piece.copy_(state.front[key])
        return named_views(self.layout, whole)

    def _open(self) -> Workspace:
        return open_workspace(self._task, self._seed, torch.device("cpu"))

    def _bench(self, workspace: Workspace) -> Bench:
        bench = Bench(workspace, allocate(self.layout), allocate(self.layout))
        workspace.bind(self.layout, bench.values, bench.updates)
        return bench

    def _bench_of(self, member: str) -> Bench:
        if member not in self._benches:
            self._benches[member] = self._bench(self._open())
        return self._benches[member]

    def _exposure(self, one: Contribution) -> Vectors:
        kept = self._exposed.get(one.member, {})
        if one.sequence not in kept:
            newest = max(kept, default=0)
            raise InvariantViolation(
                f"gradient {one.sequence} of {one.member} is committed, but gradient {newest} took its place"
            )
        return kept[one.sequence]


def _shards(layout: Layout, optimizer: Optimizer, initial: dict[str, Tensor]) -> list[Shard]:
    whole = allocate(layout)
    fill(layout, whole, initial)
    return [
        Shard(
            layout,
            shard,
            optimizer,
            shard_vectors(layout, shard, whole),
            (allocate(layout, shard), allocate(layout, shard)),
        )
        for shard in range(layout.shards)
    ]


def _copy(vectors: Vectors) -> Vectors:
    return {key: vector.clone() for key, vector in vectors.items()}


def _squared_norm(layout: Layout, updates: Vectors) -> float:
    keys = [region.key for region in layout.regions if region.kind == "parameter"]
    return norm(square for key in keys for square in squared_norms(updates[key], layout.block_size(key))) ** 2
