"""Real arithmetic that keeps the true history of every copy beside it.

Nothing here asks a role what it believes.  Of every copy it is known which gradients its newest state is made of, at
which positions, and the digest of that state; of every server, the digest at each position of its epoch.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from psplatform.core.protocol.effects import (
    Archive,
    Compute,
    Effect,
    Gather,
    Publish,
    Seal,
    Serve,
    Skip,
    Stage,
    Transmit,
)
from psplatform.core.protocol.events import Computed, ComputeFailed
from psplatform.core.protocol.messages import GRADIENTS, STATE, BatchAssignment, Contribution, Transfer
from psplatform.memory.training import TensorArithmetic, Vectors
from psplatform.simulation.faults.checks.cuts import CheckpointCuts
from psplatform.simulation.faults.checks.histories import Base, Batches, Content, History, Identity, violated
from psplatform.simulation.faults.storage import Storage
from psplatform.tensors.vectors import shard_vectors

_MISSED: Final = 0.1
"""Share of the steps of which a replica cannot get the gradients: often enough for every trial to have some."""


class ReferenceModel(TensorArithmetic):
    """`psplatform.memory.arithmetic.Arithmetic` that checks S1, S3, S5, S6 (exact pulls), S7 and S9 as it goes.

    Attributes
    ----------
    histories
        What is true of every copy, by name.
    bases
        By shard and epoch, what its server began with.
    dirty
        The shards of which a state has changed since they were last looked at.
    settled
        For each takeover, the last version of each shard that its coordinator had learnt to be decided.
    exact
        Whether the policy wants gradients of the visible version only.
    assignments
        The part of an epoch that each gradient was computed on, ``None`` for one that was drawn.
    dealt
        The same of every gradient that was computed, applied or not; several where two workers were in one slot, on two
        sides of a cut.
    missed
        Share of the steps of which a replica cannot get the gradients from the workers.
    archived
        Names of copies and numbers of the checkpoints of which they were to write a part, and have tried to.
    transfers
        How many of each kind were loaded, and how many could not be read.
    """

    def __init__(self, *arguments: Any, exact: bool, storage: Storage, missed: float = _MISSED, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.histories: dict[str, History] = {}
        self.bases: dict[tuple[int, int], Base] = {}
        self.dirty: set[int] = set()
        self._cuts = CheckpointCuts(storage)
        self.exact, self.missed = exact, missed
        self.transfers: Counter[str] = Counter()
        self.archived: set[tuple[str, int]] = set()
        self._states: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        self._pulled: dict[str, dict[int, Content]] = defaultdict(dict)
        self.settled: list[Sequence[int]] = []
        self._versions: dict[tuple[str, int], tuple[int, int, int]] = {}
        self._bases_of: dict[tuple[str, int], dict[int, Content]] = {}
        self.assignments: dict[Identity, BatchAssignment | None] = {}
        self.dealt: dict[Identity, set[BatchAssignment]] = defaultdict(set)
        # By member: on a side that is cut off, a coordinator that was replaced may put another into the same slot.
        self._gradients: dict[tuple[str, int], Vectors] = {}
        self._assignments_of: dict[tuple[str, int], BatchAssignment | None] = {}
        self._parameter_keys = [region.key for region in self.layout.regions if region.kind == "parameter"]

    # --- what roles ask for, told before it is done ---

    def told(self, copy: str, effects: Iterable[Effect]) -> None:
        """Queue the positions of what a copy is about to do."""
        history = self.histories[copy]
        for effect in effects:
            if isinstance(effect, Gather):
                history.staging.clear()  # of one that failed, nothing was staged
            elif isinstance(effect, Stage):
                history.staging.append(effect.position)
            elif isinstance(effect, Publish):
                history.publishing.append(effect.position)
            elif isinstance(effect, Skip):
                history.skipping.append(effect.position)
            elif isinstance(effect, Serve):
                self._begin_epoch(copy, history, effect)
            elif isinstance(effect, Transmit) and effect.transfer.epoch > history.epoch:
                # It serves when its successors have this state.
                self._states[history.shard, effect.transfer.epoch][history.position] = history.digest

    def _begin_epoch(self, copy: str, history: History, effect: Serve) -> None:
        if effect.version != self.copies[copy].version:
            raise violated(
                "S5", f"{copy} says that it begins with {effect.version}, it has {self.copies[copy].version}"
            )
        history.epoch = effect.epoch
        history.visible, history.applied_visible = history.position, history.applied
        self._states[history.shard, effect.epoch][history.position] = history.digest
        self.bases[history.shard, effect.epoch] = Base(history.newest, history.applied, history.position)
        self.dirty.add(history.shard)

    # --- copies ---

    def open_copy(self, copy: str, shard: int) -> None:
        """Make a copy, and begin its history."""
        if copy in self.histories:
            raise violated("S12", f"{copy} is made a second time: what is meant for the one is taken by the other")
        super().open_copy(copy, shard)
        parameters = self._flat(self.copies[copy].front)
        history = self.histories[copy] = History(shard, 1, parameters, parameters, self._digest(copy))
        self._states[shard, 1].setdefault(0, history.digest)

    def gather(
        self, copy: str, contributions: tuple[Contribution, ...], *, norms: bool, updates: int = 1
    ) -> tuple[float, ...] | None:
        """Average, and see that it is what the workers computed, in the order of their slots."""
        history = self.histories[copy]
        history.gathered = contributions
        if [one.slot for one in contributions] != sorted(one.slot for one in contributions):
            raise violated("S8", f"{copy} sums gradients in another order than that of the slots: {contributions}")
        found = super().gather(copy, contributions, norms=norms, updates=updates)
        if found is not None:
            self._check_gathered(copy, contributions, updates)
        if self.exact:
            self._check_exact(copy, history, contributions)
        return found

    def _check_gathered(self, copy: str, contributions: tuple[Contribution, ...], updates: int) -> None:
        held = self.copies[copy]
        sources: dict[Any, list[Mapping[str, torch.Tensor]]] = defaultdict(list)
        for one in contributions:
            vectors = shard_vectors(self.layout, held.index, self._gradients[one.member, one.sequence])
            sources[one.source].append(vectors)
        for key in self._parameter_keys:
            total = _sum([_sum([part[key] for part in parts]) for parts in sources.values()])
            divided = len(contributions) > 1 and not (updates > 1 and held.adds_up)
            if not torch.equal(total.div_(len(contributions)) if divided else total, held.gathered[key]):
                raise violated("S1", f"{copy} averaged something else than the gradients {contributions}")

    def _check_exact(self, copy: str, history: History, contributions: tuple[Contribution, ...]) -> None:
        front = hash(history.front.tobytes())
        for one in contributions:
            content = self._bases_of.get((one.member, one.sequence), {}).get(history.shard)
            # What was computed under an epoch that has ended may have been decided before it did.
            if content is not None and content.epoch == history.epoch and content.digest != front:
                raise violated("S6", f"gradient {one.slot, one.sequence} was not computed on what {copy} shows")

    def stage(self, copy: str, factor: float, rate: float) -> float:
        """Step, and note what the new state is made of."""
        step = super().stage(copy, factor, rate)
        history = self.histories[copy]
        position = history.staging.popleft()
        self._apply(copy, history, position, history.gathered)
        self._states[history.shard, history.epoch][position] = history.digest
        return step

    def _apply(self, copy: str, history: History, position: int, gradients: Sequence[Contribution]) -> None:
        lineage, batches = dict(history.lineage), dict(history.batches)
        for one in gradients:
            identity = one.slot, one.sequence
            if identity in lineage:
                raise violated("S1", f"{copy} applies gradient {identity} at {position} and at {lineage[identity]}")
            lineage[identity] = position
            self._use(copy, batches, identity, self._assignments_of.get((one.member, one.sequence)))
        history.lineage, history.batches = lineage, batches
        history.position = position
        history.applied += 1
        self._renew(copy, history)

    def _use(self, copy: str, batches: Batches, identity: Identity, assignment: BatchAssignment | None) -> None:
        self.assignments[identity] = assignment
        if assignment is None:
            return
        place = assignment.epoch, assignment.number
        # Block by block, one that was dealt twice around a takeover may count twice.
        if place in batches and not self._several:
            raise violated("S1", f"{copy} applies batch {place} as gradient {batches[place]} and as {identity}")
        batches[place] = identity

    def _renew(self, copy: str, history: History) -> None:
        held = self.copies[copy]
        history.newest = self._flat(held.back if held.staged else held.front)
        history.digest = self._digest(copy)
        self.dirty.add(history.shard)

    def publish(self, copy: str, version: int) -> None:
        """Show the staged state."""
        super().publish(copy, version)
        history = self.histories[copy]
        history.visible, history.version = history.publishing.popleft(), version
        history.front, history.applied_visible = history.newest, history.applied
        self.dirty.add(history.shard)

    def skip(self, copy: str, version: int) -> None:
        """Show the same state under another version, and note where that stands."""
        super().skip(copy, version)
        history = self.histories[copy]
        history.version, history.front = version, history.newest
        if history.skipping:
            history.position = history.visible = history.skipping.popleft()
            self._states[history.shard, history.epoch][history.position] = history.digest
        self.dirty.add(history.shard)

    def capture(self, copy: str, transfer: Transfer) -> tuple[Any, int]:
        """Return the arrays with what they are made of."""
        content, size_bytes = super().capture(copy, transfer)
        history = self.histories[copy]
        lineage = {key: at for key, at in history.lineage.items() if at <= transfer.position}
        batches = {place: key for place, key in history.batches.items() if key in lineage}
        return (content, lineage, batches, history.applied), size_bytes

    def absorb(self, copy: str, transfer: Transfer, content: Any) -> bool:
        """Load, and see that the state is the server's at that position, bit for bit."""
        arrays, lineage, batches, applied = content
        history = self.histories[copy]
        if (transfer.kind == GRADIENTS and self._is_missed(copy, transfer)) or not super().absorb(
            copy, transfer, arrays
        ):
            self.transfers["could not be read"] += 1
            return False
        self.transfers[transfer.kind] += 1
        added = len(lineage.keys() - history.lineage.keys())
        if transfer.kind != STATE and any(
            history.lineage.get(key) != at for key, at in lineage.items() if at < transfer.position
        ):
            raise violated("S3", f"{copy} applies an update to another state than its server's")
        applied = history.applied + 1 if transfer.kind == GRADIENTS else applied  # the server may be further
        history.lineage, history.batches = lineage, batches
        history.applied, history.epoch = applied, transfer.epoch
        history.position = history.visible = transfer.position
        self._renew(copy, history)
        history.front, history.applied_visible = history.newest, applied
        wanted = self._states[history.shard, transfer.epoch].get(transfer.position)
        if wanted != history.digest:
            raise violated(
                "S3", f"{copy} at position {transfer.position} differs from its server, {added} gradients on"
            )
        return True

    def _is_missed(self, copy: str, transfer: Transfer) -> bool:
        # A replica may not see a slab, and what is pushed to it may not come.
        chance = random.Random(f"missed {self._seed} {copy} {transfer.epoch} {transfer.number}").random()
        return chance < self.missed

    # --- workers ---

    def snapshot(self, copy: str) -> Content:
        """Return what is visible with where it comes from."""
        content, history = Content(super().snapshot(copy)), self.histories[copy]
        content.shard, content.version, content.epoch = history.shard, self.copies[copy].version, history.epoch
        content.digest, content.takeovers = hash(self._flat(content).tobytes()), len(self.settled)
        return content

    def load(self, member: str, shard: int, content: Vectors) -> None:
        """Load, and see that no version goes back."""
        super().load(member, shard, content)
        if isinstance(content, Content):
            before, epoch, takeovers = self._versions.get((member, shard), (0, 1, 0))
            # What a coordinator and a server showed that were lost together, nobody may know: its number comes again,
            # after the last that is known.
            least = before
            if content.epoch > epoch:
                least = min([before, *(one[shard] for one in self.settled[takeovers:])])
            if content.version < least:
                raise violated("order", f"{member} pulled version {content.version} of shard {shard} after {before}")
            self._versions[member, shard] = content.version, content.epoch, content.takeovers
            self._pulled[member][shard] = content

    def compute(self, member: str, effect: Compute, seconds: float) -> Computed | ComputeFailed:
        """Compute, and note on what."""
        if (member, effect.sequence) in self._gradients:
            raise violated("S1", f"{member} computes gradient {effect.sequence} a second time")
        self._check_pulled(member, effect)
        if effect.assignment is not None:
            self.dealt[effect.slot, effect.sequence].add(effect.assignment)
        self._bases_of[member, effect.sequence] = dict(self._pulled[member])
        self._assignments_of[member, effect.sequence] = effect.assignment
        found = super().compute(member, effect, seconds)
        self._gradients[member, effect.sequence] = {
            key: vector.clone() for key, vector in self._bench_of(member).updates.items()
        }
        return found

    def _check_pulled(self, member: str, effect: Compute) -> None:
        versions = {content.version for content in self._pulled[member].values()}
        if self.exact and len(versions) > 1:
            raise violated("S6", f"{member} computes gradient {effect.sequence} on versions {sorted(versions)}")

    # --- checkpoints ---

    def archive(self, copy: str, effect: Archive) -> dict[str, Any]:
        """Write a part, and see that it is the state at its position."""
        history = self.histories[copy]
        self.archived.add((copy, effect.number))
        wanted = self._states[history.shard, history.epoch].get(effect.position)
        if wanted != history.digest or effect.position != history.position:
            raise violated(
                "S7",
                f"{copy} at {history.position} writes a part of checkpoint {effect.number} as of {effect.position}",
            )
        return self._cuts.write_part(effect, history)

    def seal(self, effect: Seal) -> int:
        """Write the manifest, and see that the checkpoint is one cut."""
        self._cuts.seal(effect, shards=self.layout.shards)
        return 1

    def discard(self, number: int) -> None:
        """Remove what is there of a checkpoint that was given up."""
        self._cuts.discard(number)

    # --- small things ---

    def _flat(self, vectors: Any) -> NDArray[np.float64]:
        return np.concatenate([vectors[key].numpy() for key in self._parameter_keys]).astype(np.float64)

    def _digest(self, copy: str) -> int:
        held = self.copies[copy]
        state = held.state()
        return hash((held.commits, *(state[name].numpy().tobytes() for name in sorted(state))))


def _sum(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    total = parts[0].clone()
    for part in parts[1:]:
        total.add_(part)
    return total
