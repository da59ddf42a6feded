"""Which samples a gradient is computed on, and the seed of everything random in it.

Every draw is a pure function of its key, so that a worker restarted elsewhere computes the same gradient.  Only seed
sequences and raw Philox words are used: NumPy promises their streams for ever, which it does not for the methods of
``Generator``.  The streams of different purposes and keys are independent.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from psplatform.errors import InvariantViolation

# First element of a spawn key: keeps the streams of the three purposes apart.
_REPLACEMENT, _EPOCH, _GRADIENT = 1, 2, 3

# An epoch's permutation serves all its batches; runs that share a process and neighbouring epochs fit in here.
_CACHED_EPOCHS = 8


def replacement(seed: int, slot: int, sequence: int, samples: int, batch: int) -> NDArray[np.int64]:
    """Draw `batch` indices below `samples`, independently and with replacement: ``int64[batch]``.

    The bias of the modulus is below ``samples / 2**64``.
    """
    words = _philox(seed, _REPLACEMENT, slot, sequence).random_raw(batch)
    return (words % np.uint64(samples)).astype(np.int64)


def batches_per_epoch(samples: int, batch: int) -> int:
    """Count the batches in which every sample occurs once."""
    return -(-samples // batch)


def epoch_batch(seed: int, epoch: int, number: int, samples: int, batch: int) -> NDArray[np.int64]:
    """Return batch `number` of the epoch's permutation: ``int64[<= batch]``.

    Where the batch size does not divide the samples, the batches of an epoch differ by at most one sample: a last
    batch of a few would weigh as much as the others, and one of a single sample breaks batch norm.
    """
    batches = batches_per_epoch(samples, batch)
    if not 0 <= number < batches:
        raise InvariantViolation(f"batch {number} lies outside an epoch of {samples} samples in batches of {batch}")
    start, stop = number * samples // batches, (number + 1) * samples // batches
    return _permutation(seed, epoch, samples)[start:stop]


def gradient_seed(seed: int, slot: int, sequence: int) -> int:
    """Return the seed of all other randomness in a gradient (dropout, augmentation): 63 bits."""
    return int(_key(seed, _GRADIENT, slot, sequence).generate_state(1, np.uint64)[0] >> np.uint64(1))


@lru_cache(maxsize=_CACHED_EPOCHS)
def _permutation(seed: int, epoch: int, samples: int) -> NDArray[np.int64]:
    words = _philox(seed, _EPOCH, epoch).random_raw(samples)
    order = np.argsort(words, kind="stable").astype(np.int64)
    order.flags.writeable = False  # shared by every caller of the cache
    return order


def _philox(seed: int, *key: int) -> np.random.Philox:
    return np.random.Philox(_key(seed, *key))


def _key(seed: int, *key: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=key)
