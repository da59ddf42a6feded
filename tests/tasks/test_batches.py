"""Which batch a gradient is computed on."""

from __future__ import annotations

import numpy as np
import torch

from psplatform.core.protocol.messages import BatchAssignment
from psplatform.tasks.data.batches import batch_of
from psplatform.tasks.data.sampling import epoch_batch, gradient_seed, replacement


def test_without_a_ticket_samples_are_drawn_with_replacement_for_slot_and_sequence() -> None:
    batch = batch_of(7, 2, 5, None, samples=100, batch_size=8)
    assert np.array_equal(batch.indices, replacement(7, 2, 5, 100, 8))
    assert batch.seed == gradient_seed(7, 2, 5)


def test_a_ticket_names_the_samples_and_slot_and_sequence_everything_else_that_is_random() -> None:
    batch = batch_of(7, 2, 5, BatchAssignment(1, 3), samples=30, batch_size=8)
    assert np.array_equal(batch.indices, epoch_batch(7, 1, 3, 30, 8))
    assert len(batch.indices) == 8
    assert batch.seed == gradient_seed(7, 2, 5)


def test_a_batch_may_be_written_to_without_changing_the_epoch() -> None:
    batch = batch_of(7, 0, 1, BatchAssignment(0, 0), samples=30, batch_size=8)
    torch.from_numpy(batch.indices).zero_()
    assert np.array_equal(
        batch_of(7, 0, 2, BatchAssignment(0, 0), samples=30, batch_size=8).indices, epoch_batch(7, 0, 0, 30, 8)
    )
