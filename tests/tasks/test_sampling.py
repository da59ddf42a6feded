"""The same key draws the same batch on every machine, with every version of NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psplatform.errors import InvariantViolation
from psplatform.tasks.data.sampling import batches_per_epoch, epoch_batch, gradient_seed, replacement

GOLDEN_REPLACEMENT = [229, 357, 18, 754, 85, 659]
GOLDEN_EPOCH = [8, 5, 3, 9, 6, 7, 1, 0, 2, 4]
GOLDEN_SEED = 8758404119789755851


def test_draws_with_replacement_are_fixed_for_ever() -> None:
    """Golden values: a change would break the restoration of stored runs."""
    assert replacement(seed=1, slot=2, sequence=3, samples=1000, batch=6).tolist() == GOLDEN_REPLACEMENT
    assert replacement(seed=1, slot=2, sequence=3, samples=1000, batch=6).dtype == np.int64


def test_the_permutation_of_an_epoch_is_fixed_for_ever() -> None:
    """Golden values, as above."""
    assert epoch_batch(seed=1, epoch=0, number=0, samples=10, batch=10).tolist() == GOLDEN_EPOCH


def test_the_seed_of_a_gradient_is_fixed_for_ever() -> None:
    """Golden values, as above."""
    assert gradient_seed(seed=1, slot=2, sequence=3) == GOLDEN_SEED


@settings(max_examples=50)
@given(st.integers(0, 2**40), st.integers(0, 100), st.integers(1, 300), st.integers(1, 64))
def test_every_sample_occurs_exactly_once_per_epoch(seed: int, epoch: int, samples: int, batch: int) -> None:
    """Together the batches are a permutation; none is too large, and their sizes differ by at most one."""
    numbers = range(batches_per_epoch(samples, batch))
    batches = [epoch_batch(seed, epoch, number, samples, batch) for number in numbers]
    assert sorted(np.concatenate(batches).tolist()) == list(range(samples))
    sizes = {len(one) for one in batches}
    assert max(sizes) <= batch
    assert max(sizes) - min(sizes) <= 1
    assert 1 <= len(batches[-1]) <= batch


def test_epochs_differ_from_each_other() -> None:
    """The permutation depends on the seed and the epoch."""
    orders = {tuple(epoch_batch(seed, epoch, 0, 50, 50)) for seed in range(3) for epoch in range(3)}
    assert len(orders) == 9


def test_every_part_of_a_key_matters() -> None:
    """Seed, slot and sequence each change the draw and the gradient's seed, and do not stand in for one another."""
    keys = [(seed, slot, sequence) for seed in range(4) for slot in range(4) for sequence in range(4)]
    assert len({tuple(replacement(*key, samples=10**6, batch=4)) for key in keys}) == len(keys)
    assert len({gradient_seed(*key) for key in keys}) == len(keys)
    assert all(0 <= gradient_seed(*key) < 2**63 for key in keys)


def test_draws_with_replacement_cover_all_samples_and_repeat() -> None:
    """2000 draws of 100 samples stay in range, hit each of them, and none far too often."""
    draws = np.concatenate([replacement(0, 0, sequence, samples=100, batch=20) for sequence in range(100)])
    counts = np.bincount(draws, minlength=100)
    assert len(counts) == 100
    assert 1 <= counts.min() <= counts.max() <= 50  # 20 expected, deviation 4.4


def test_a_batch_outside_the_epoch_is_a_bug() -> None:
    """No batch is ever empty without anyone noticing."""
    with pytest.raises(InvariantViolation, match="batch 2 lies outside"):
        epoch_batch(0, 0, 2, samples=20, batch=10)


def test_a_cached_permutation_cannot_be_spoilt() -> None:
    """Batches are read-only views: writing to one raises."""
    with pytest.raises(ValueError, match="read-only"):
        epoch_batch(0, 0, 0, samples=20, batch=10)[0] = 1
