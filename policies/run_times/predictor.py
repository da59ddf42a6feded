"""The interface of a predictor of run times, and the rule that turns predicted times into a cutoff.

A predictor is asked before a round for the number c of gradients to wait for, and afterwards told the run times of the
c fastest workers and that the others took longer.  Workers are known by their slots.  It draws random numbers only
from streams that are keyed by seed, purpose and round, so that its state needs none, and no two draws ever depend on
each other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.random import Generator, SeedSequence
from numpy.typing import NDArray

Slots = NDArray[np.int64]
Times = NDArray[np.float64]

RATIO_OF_MEANS: Final = "ratio of means"
MEAN_OF_RATIOS: Final = "mean of ratios"


class Stream(IntEnum):
    """Independent streams of random numbers for one and the same seed and round."""

    SAMPLES = 1
    IMPUTATION = 2
    TRAINING = 3
    WEIGHTS = 4
    STATES = 5
    EXPLORATION = 6


def random_stream(seed: int, purpose: Stream, number: int = 0) -> Generator:
    """Return the generator of this seed, purpose and round."""
    return np.random.default_rng(SeedSequence(seed, spawn_key=(purpose, number)))


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """What is known of the run times of a round.

    A live worker that is missing here, because it joined in mid-round or its gradient was not finite, is unknown and
    not slow.

    Attributes
    ----------
    slots
        ``int64[m]``, ascending: the slots whose workers took part from the beginning.
    times
        ``float64[m]``, seconds of computing; meaningless where censored.
    censored
        ``bool[m]``: was told to abort at the cutoff, so that its run time is above `cutoff_time` and not known.
    cutoff_time
        x_(c), the largest observed run time.
    """

    slots: Slots
    times: Times
    censored: NDArray[np.bool_]
    cutoff_time: float


@dataclass(frozen=True, slots=True)
class Choice:
    """How many of the live workers a round waits for, and why."""

    cutoff: int
    reason: str


class Predictor(ABC):
    """Chooses the cutoff of the next round from the run times of earlier ones.

    Attributes
    ----------
    full_rounds
        Rounds of all workers that it wants to see before it is relied on.
    """

    full_rounds: int = 0

    @abstractmethod
    def choose(self, slots: Slots) -> Choice:
        """Return the cutoff of the coming round of the workers in `slots`, ``int64[n]``, n at least 1.

        It is asked once before each round that is not full, and may be asked again: the answer is the same.
        """

    @abstractmethod
    def observe(self, seen: Observation) -> None:
        """Learn from the round that was chosen for last; called for every round, full ones included."""

    def welcome(self, slot: int) -> None:
        """Forget the times of `slot`, which another process has taken."""

    def state(self) -> dict[str, Any]:
        """Return what was learned as plain values."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what `state` returned."""


def best_cutoff(expected: Times, *, floor: float = 0.0, least: int = 1) -> int:
    """Return the c that maximises c / x_(c) for expected sorted run times, ``float64[n]``; the largest on a tie.

    Parameters
    ----------
    floor
        Shorter times are raised to it: a model whose left tail reaches below what any worker ever needed would
        promise an infinite rate for c = 1.
    least
        Smaller cutoffs are not considered.
    """
    times = np.maximum(expected, max(floor, np.finfo(np.float64).tiny))
    rates = np.arange(least, len(times) + 1) / times[least - 1 :]
    return len(times) - int(np.argmax(rates[::-1]))


def cutoff_of_samples(samples: NDArray[Any], *, floor: float, score: str = RATIO_OF_MEANS) -> int:
    """Return the best cutoff for samples of a round's run times.

    Parameters
    ----------
    samples
        ``float[K, n]``, K rounds as they may come.
    score
        `RATIO_OF_MEANS` maximises j / mean_m x_(j), the paper's; `MEAN_OF_RATIOS` maximises mean_m (j / x_(j)), which
        differs slightly by Jensen's inequality.
    """
    ordered = np.maximum(np.sort(samples, axis=1), floor)
    if score == MEAN_OF_RATIOS:
        # The harmonic mean of the times is the time whose rate is the mean of the rates.
        return best_cutoff(np.asarray(1.0 / np.mean(1.0 / ordered, axis=0, dtype=np.float64)))
    return best_cutoff(np.asarray(np.mean(ordered, axis=0, dtype=np.float64)))
