"""The serial loop that a run of exact versions must equal, bit for bit, whatever has failed (S8).

The loop knows nothing of workers, shards, copies and time.  From the log it takes which batches a round is made of, in
the order of the slots, and at what rate it steps; it computes their gradients itself, one after the other, on what it
has reached, and steps.  Where no process was lost and none came late, these are the rounds of a run without faults, so
that the result is that of such a run.  Where one was, the batches are others than without the loss: a batch drawn with
replacement goes with its slot and number, and one that was dealt goes to the next worker that asks.

Takeovers, promotions, hand-overs and lost workers all leave the equality as it is, as long as nothing was lost with a
server.  A run that has lost rounds on some shard is not compared: a round that was decided before the loss is known is
applied all the same, on a state that its gradients were not computed on, and no serial loop ever does that.  Neither is
one under a policy that computes on versions other than the visible one: on which, depends on time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from psplatform.core.coordination.order.commit_logs import clipping_factor
from psplatform.core.protocol.effects import Compute
from psplatform.core.protocol.messages import Bundle, Contribution
from psplatform.core.protocol.names import first_server
from psplatform.memory import MemoryRun
from psplatform.memory.training import TensorArithmetic
from psplatform.simulation.faults.checks.histories import Record, by_position, violated
from psplatform.simulation.faults.checks.reference_model import ReferenceModel
from psplatform.tensors.layout import Layout
from psplatform.tensors.shard import Shard
from psplatform.tensors.vectors import allocate, named_views, shard_vectors

_WORKER = "the only one"


class SerialLoop:
    """Trains on one shard, with one worker.

    Parameters
    ----------
    arithmetic
        With a single shard, which keeps every gradient of a round.
    clip
        Largest norm of a mean gradient, or ``None``.
    """

    def __init__(self, arithmetic: TensorArithmetic, clip: float | None) -> None:
        self._arithmetic = arithmetic
        self._clip = clip
        self._copy = first_server(0)
        self._computed = 0
        arithmetic.open_copy(self._copy, 0)

    @property
    def state(self) -> dict[str, Tensor]:
        """What has been reached, the optimiser's state included, by name."""
        return _state_of(self._arithmetic.layout, [self._arithmetic.copies[self._copy]])

    def step(self, round_: Record, reference: ReferenceModel) -> None:
        """Do what a commit of the run did, on the batches that its gradients had."""
        arithmetic, contributions = self._arithmetic, []
        arithmetic.load(_WORKER, 0, arithmetic.snapshot(self._copy))
        identities = list(zip(round_["slots"], round_["sequences"], strict=True))
        numbers = round_.get("bundles") or [0] * len(identities)
        for (slot, sequence), number in zip(identities, numbers, strict=True):
            arithmetic.compute(_WORKER, Compute(slot, sequence, reference.assignments[slot, sequence]), 0.0)
            self._computed += 1
            bundle = Bundle(_WORKER, round_["position"], number) if number else None
            contributions.append(Contribution(_WORKER, slot, self._computed, bundle=bundle))
            if bundle is None:
                arithmetic.expose(_WORKER, slot, self._computed)
            else:
                arithmetic.send_part(_WORKER, self._computed, bundle)
        self._sum_up(contributions)
        squares = arithmetic.gather(self._copy, tuple(contributions), norms=self._clip is not None)
        factor = 1.0 if self._clip is None else clipping_factor(math.fsum(squares or ()), self._clip)
        arithmetic.stage(self._copy, factor, round_["rate"])
        arithmetic.publish(self._copy, round_["version"])

    def _sum_up(self, contributions: Sequence[Contribution]) -> None:
        """Sum what the run summed on the way: floating-point numbers depend on what is added first."""
        for bundle in dict.fromkeys(one.bundle for one in contributions if one.bundle is not None):
            self._arithmetic.sum_up(bundle, tuple(one for one in contributions if one.bundle == bundle))
            self._arithmetic.forget_parts(bundle)


def check_serial(run: MemoryRun, reference: ReferenceModel, loop: SerialLoop) -> bool:
    """Raise unless the run ended where the serial loop does; return whether it could be compared."""
    if run.finish is None or run.finish.outcome != "updates":
        return False
    rounds = {one["position"]: one for one in run.records if one["kind"] == "commit"}
    applied = _applied_by_all(run, reference)
    if applied != rounds.keys():
        return False
    for position in sorted(rounds):
        loop.step(rounds[position], reference)
    servers = [reference.copies[one.server] for one in run.coordinator.state.shards]
    reached, wanted = _state_of(reference.layout, servers), loop.state
    different = [name for name, tensor in wanted.items() if not torch.equal(tensor, reached[name])]
    if different:
        raise violated("S8", f"{different} differ from what a serial loop over the same {len(rounds)} rounds reaches")
    return True


def _applied_by_all(run: MemoryRun, reference: ReferenceModel) -> set[int] | None:
    """Return the positions that the servers' states are made of, or ``None`` where these are not the same for all."""
    if any(one.promoting for one in run.coordinator.state.shards):
        return None
    found = {frozenset(by_position(reference.histories[one.server].lineage)) for one in run.coordinator.state.shards}
    return set(found.pop()) if len(found) == 1 else None


def _state_of(layout: Layout, servers: Iterable[Shard]) -> dict[str, Tensor]:
    """Return the tensors that lie on these servers, one of each shard, by name, and those of the optimiser."""
    wholes: dict[str, dict[str, Tensor]] = {}
    for held in servers:
        state = held.state()
        for slot in ("", *held.slot_names):
            whole = wholes.setdefault(slot, allocate(layout))
            for key, piece in shard_vectors(layout, held.index, whole).items():
                piece.copy_(state.get(f"{slot}.{key}" if slot else key, held.front[key]))
    views = {slot: named_views(layout, whole, None if not slot else "parameter") for slot, whole in wholes.items()}
    return {f"{slot} {name}".strip(): tensor for slot, found in views.items() for name, tensor in found.items()}
