"""Which batch a gradient is computed on: a batch assignment's part of an epoch, or a draw with replacement."""

from __future__ import annotations

from psplatform.core.protocol.messages import BatchAssignment
from psplatform.tasks.data.sampling import epoch_batch, gradient_seed, replacement
from psplatform.tasks.seam import BatchRef


def batch_of(
    seed: int, slot: int, sequence: int, assignment: BatchAssignment | None, samples: int, batch_size: int
) -> BatchRef:
    """Return the batch of gradient (`slot`, `sequence`) in a run of this seed.

    Parameters
    ----------
    assignment
        The part of an epoch that was dealt for it; without one, samples are drawn with replacement.
    """
    if assignment is None:
        indices = replacement(seed, slot, sequence, samples, batch_size)
    else:
        # A copy, because the epoch's permutation is shared and read-only, at which `torch.from_numpy` warns.
        indices = epoch_batch(seed, assignment.epoch, assignment.number, samples, batch_size).copy()
    return BatchRef(indices, gradient_seed(seed, slot, sequence))
