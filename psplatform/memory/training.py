"""Real training in memory: every shard and every worker computes with tensors, in one thread.

Workers share nothing.  Each has a workspace of its own, pulls are copies, and an exposed gradient is a copy as well: it
can be gathered after its worker has died, and what a worker computes next cannot change it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from psplatform.core.protocol.effects import Archive, Compute, Seal
from psplatform.core.protocol.events import Computed, ComputeFailed, Evaluated, EvaluationFailed
from psplatform.core.protocol.messages import GRADIENTS, STATE, UPDATE, Bundle, Contribution, Transfer
from psplatform.core.protocol.names import first_server
from psplatform.jobs.compression import Compression
from psplatform.jobs.optimizers import Optimizer
from psplatform.memory.roles.evaluation import EVALUATOR
from psplatform.tasks.cancellation import Cancellation
from psplatform.tasks.data.batches import batch_of
from psplatform.tasks.flaws import find_flaw
from psplatform.tasks.foreign import describe
from psplatform.tasks.layouts import layout_of
from psplatform.tasks.opening import open_workspace
from psplatform.tasks.seam import Task, Workspace
from psplatform.tasks.supervised import SupervisedTask
from psplatform.tensors.compression import Compressor, packing_of
from psplatform.tensors.layout import Layout
from psplatform.tensors.norms import squared_norm
from psplatform.tensors.shard import Shard
from psplatform.tensors.sums import add_up
from psplatform.tensors.vectors import allocate, bytes_in, fill, named_views, shard_vectors, sizes

Vectors = dict[str, Tensor]

_KEPT: Final = 16
"""Exposed gradients kept per member where blocks are merged one by one: more than a server lets it run ahead
(`psplatform.core.shards.server.MOST_AHEAD`)."""


_KEPT_SUMS: Final = 256
"""Sums kept: more than commits can be under way at a time."""


@dataclass(frozen=True, slots=True)
class Bench:
    """One member's workspace and the vectors it is bound to."""

    workspace: Workspace
    values: Vectors
    updates: Vectors
    compressor: Compressor


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
    measures_steps
        Whether the norm of each step is measured, for the accounts of replicas.
    compression
        How workers compress gradients.

    Attributes
    ----------
    layout
        Where each tensor lies.
    samples, evaluates
        What the plan must say of the task.
    copies
        Every copy of a shard, by name.
    archives
        By number of a checkpoint and shard, the state and the steps that it has seen.
    saved
        The tensors by name that the run kept, empty before its end; `saved_version` is their version.
    best
        Those of the best version so far, of `best_version`, where the plan keeps it.

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
        measures_steps: bool = False,
        compression: Compression | None = None,
    ) -> None:
        self._task, self._seed, self._several = task, seed, per_block
        self._batch_size, self._micro_batches = batch_size, micro_batches
        self._compression = compression or Compression()
        workspace = self._open()
        self.layout = layout_of(workspace, optimizer, shards, block_elements)
        self.samples, self.evaluates = workspace.samples, workspace.evaluates
        self.saved: dict[str, Tensor] = {}
        self.archives: dict[int, dict[int, tuple[Vectors, int]]] = {}
        self.measures_steps = measures_steps
        self.saved_version = -1
        self.best: dict[str, Tensor] = {}
        self.best_version = -1
        self._benches = {EVALUATOR: self._bench(workspace)}
        self._exposed: dict[str, dict[int, Vectors]] = {}
        self._parts: dict[Bundle, dict[tuple[str, int], Vectors]] = {}
        self._sums: dict[Bundle, Vectors] = {}
        self._updates: dict[str, int] = {}
        self._optimizer, self._initial = optimizer, workspace.initial()
        self.copies: dict[str, Shard] = {}

    def open_copy(self, copy: str, shard: int) -> None:
        """Make a copy of a shard, in the state in which the run begins."""
        whole = allocate(self.layout)
        fill(self.layout, whole, self._initial)
        pieces = shard_vectors(self.layout, shard, whole)
        storage = allocate(self.layout, shard), allocate(self.layout, shard)
        self.copies[copy] = Shard(self.layout, shard, self._optimizer, pieces, storage)

    def compute(self, member: str, effect: Compute, seconds: float) -> Computed | ComputeFailed:
        """Compute a gradient on what `member` loaded last."""
        bench = self._bench_of(member)
        batch = batch_of(self._seed, effect.slot, effect.sequence, effect.assignment, self.samples, self._batch_size)
        try:
            done = bench.workspace.compute(batch, Cancellation(), self._micro_batches)
        except Exception as error:  # noqa: BLE001  the seam where whatever the user's code raises becomes an event
            return ComputeFailed(effect.sequence, *describe(error))
        squared = _squared_norm(self.layout, bench.updates)
        flaw = find_flaw(bench.workspace, batch, done.loss, squared)
        if flaw is None:
            squared = bench.compressor.compress(bench.updates, squared)
        return Computed(effect.sequence, done.samples, done.loss, squared, seconds, flaw)

    def expose(self, member: str, slot: int, sequence: int) -> None:
        """Let every shard reach the gradient just computed."""
        kept = self._exposed.setdefault(member, {})
        kept[sequence] = _copy(self._bench_of(member).updates)
        for old in list(kept)[: -_KEPT if self._several else -1]:
            del kept[old]

    def send_part(self, member: str, sequence: int, bundle: Bundle) -> bool:
        """Let the aggregator of a bundle have what `member` computed last, which is to be gradient `sequence`."""
        bench = self._benches.get(member)
        if bench is not None:
            self._parts.setdefault(bundle, {})[member, sequence] = _copy(bench.updates)
        return bench is not None

    def sum_up(self, bundle: Bundle, gradients: tuple[Contribution, ...]) -> None:
        """Sum what an aggregator has of a bundle, in this order, and let every shard reach that."""
        parts, total = self._parts[bundle], allocate(self.layout)
        add_up([parts[one.member, one.sequence] for one in gradients], total)
        self._sums[bundle] = total
        for old in list(self._sums)[:-_KEPT_SUMS]:  # of aggregators that are gone
            del self._sums[old]

    def forget_parts(self, bundle: Bundle) -> None:
        """Forget what an aggregator has of a bundle; a sum that shards can reach stays."""
        self._parts.pop(bundle, None)

    def forget_sum(self, bundle: Bundle) -> None:
        """Forget the sum of a bundle, which no shard needs any more."""
        self._sums.pop(bundle, None)

    def gather(
        self, copy: str, contributions: tuple[Contribution, ...], *, norms: bool, updates: int = 1
    ) -> tuple[float, ...] | None:
        """Average gradients; return the mean's squared norms per block if asked, or ``None`` if one of them is gone.

        With several `updates`, add them up instead.
        """
        held = self.copies[copy]
        if not self._gather(held, contributions, updates):
            return None
        self._updates[copy] = updates
        times = updates if held.adds_up else 1
        return tuple(square / (times * times) for square in held.squared_norms()) if norms else ()

    def _gather(self, held: Shard, contributions: tuple[Contribution, ...], updates: int) -> bool:
        sources = {one.source: self._vectors_of(one) for one in contributions}
        pieces = [shard_vectors(self.layout, held.index, one) for one in sources.values() if one is not None]
        if len(pieces) < len(sources):
            return False
        held.gather(pieces, gradients=len(contributions), added=updates > 1)
        return True

    def _vectors_of(self, one: Contribution) -> Vectors | None:
        if one.bundle is not None:
            return self._sums.get(one.bundle)
        return self._exposed.get(one.member, {}).get(one.sequence)

    def stage(self, copy: str, factor: float, rate: float) -> float:
        """Compute the next state beside the visible one; return the norm of the step."""
        held = self.copies[copy]
        if factor != 1.0:
            held.scale(factor)
        held.stage(held.rate_of(rate, self._updates[copy]))
        return held.displacement_norm() if self.measures_steps else 0.0

    def publish(self, copy: str, version: int) -> None:
        """Make the staged state visible."""
        self.copies[copy].publish(version)

    def skip(self, copy: str, version: int) -> None:
        """Let what is visible be `version`."""
        self.copies[copy].version = version

    def snapshot(self, copy: str) -> Vectors:
        """Return a copy of the visible content of a shard."""
        return _copy(dict(self.copies[copy].front))

    def capture(self, copy: str, transfer: Transfer) -> tuple[Any, int]:
        """Return what a transfer carries now, and how many bytes a replica gets by it, the workers' included."""
        held = self.copies[copy]
        if transfer.kind == GRADIENTS:
            sources = {one.source for one in transfer.contributions}
            one = packing_of(self._compression).size_bytes(sizes(self.layout, held.index))
            return ({}, 0), len(sources) * one
        vectors = _copy(dict(held.gathered if transfer.kind == UPDATE else held.state()))
        return (vectors, held.commits), bytes_in(vectors)

    def absorb(self, copy: str, transfer: Transfer, content: Any) -> bool:
        """Make what a transfer carried the state of a copy; return whether it could be read."""
        held, (vectors, commits) = self.copies[copy], content
        if transfer.kind == STATE:
            held.restore(vectors, version=transfer.version, commits=commits)
            return True
        if transfer.kind == UPDATE:
            held.gather([vectors])
        elif not self._gather(held, transfer.contributions, transfer.updates):
            return False
        if transfer.factor != 1.0:
            held.scale(transfer.factor)
        held.stage(held.rate_of(transfer.rate, transfer.updates))
        held.publish(max(transfer.version, held.version + 1))
        held.version = transfer.version
        return True

    def archive(self, copy: str, effect: Archive) -> dict[str, Any]:
        """Keep the newest state as a part of a checkpoint."""
        held = self.copies[copy]
        part = self.archives.setdefault(effect.number, {})
        part[held.index] = (_copy(held.state()), held.commits)
        return {"position": effect.position}

    def seal(self, effect: Seal) -> int:
        """Do nothing but count: the parts are kept in `archives`."""
        return sum(bytes_in(state) for state, _ in self.archives[effect.number].values())

    def discard(self, number: int) -> None:
        """Do nothing: there is no store that could be full."""

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
        if found is None:
            return Evaluated(version, None, None)
        return Evaluated(version, found.loss, found.accuracy, dict(found.metrics))

    def save(self, version: int) -> None:
        """Keep a copy of what the evaluator loaded last."""
        self.saved = named_views(self.layout, _copy(self._benches[EVALUATOR].values))
        self.saved_version = version

    def keep(self, version: int) -> None:
        """Keep a copy of what the evaluator loaded last as the best version's."""
        self.best = named_views(self.layout, _copy(self._benches[EVALUATOR].values))
        self.best_version = version

    def forget(self, member: str) -> None:
        """Close the member's workspace; the gradient it exposed last stays."""
        self._benches.pop(member, None)

    def visible(self) -> dict[str, Tensor]:
        """Return copies of the tensors that the first servers show now, by name."""
        whole = allocate(self.layout)
        for shard in range(self.layout.shards):
            state = self.copies[first_server(shard)]
            for key, piece in shard_vectors(self.layout, shard, whole).items():
                piece.copy_(state.front[key])
        return named_views(self.layout, whole)

    def _open(self) -> Workspace:
        return open_workspace(self._task, self._seed, torch.device("cpu"))

    def _bench(self, workspace: Workspace) -> Bench:
        bench = Bench(workspace, allocate(self.layout), allocate(self.layout), Compressor(self._compression))
        workspace.bind(self.layout, bench.values, bench.updates)
        return bench

    def _bench_of(self, member: str) -> Bench:
        if member not in self._benches:
            self._benches[member] = self._bench(self._open())
        return self._benches[member]


def _copy(vectors: Vectors) -> Vectors:
    return {key: vector.clone() for key, vector in vectors.items()}


def _squared_norm(layout: Layout, updates: Vectors) -> float:
    return squared_norm(updates[region.key] for region in layout.regions if region.kind == "parameter")
