"""Which batch a gradient is computed on: a ticket's part of an epoch, or a draw with replacement."""

from __future__ import annotations

from psplatform.core.protocol.messages import Ticket
from psplatform.tasks.data.sampling import epoch_batch, gradient_seed, replacement
from psplatform.tasks.seam import BatchRef


def batch_of(seed: int, slot: int, sequence: int, ticket: Ticket | None, samples: int, batch_size: int) -> BatchRef:
    """Return the batch of gradient (`slot`, `sequence`) in a run of this seed.

    Parameters
    ----------
    ticket
        The part of an epoch that was dealt for it; without one, samples are drawn with replacement.
    """
    if ticket is None:
        indices = replacement(seed, slot, sequence, samples, batch_size)
    else:
        # A copy, because the epoch's permutation is shared and read-only, at which `torch.from_numpy` warns.
        indices = epoch_batch(seed, ticket.epoch, ticket.number, samples, batch_size).copy()
    return BatchRef(indices, gradient_seed(seed, slot, sequence))
