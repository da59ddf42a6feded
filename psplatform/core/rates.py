"""Learning-rate rules: the factor that a commit puts on the job's learning rate.

The job's learning rate is the rate for a round of all n workers.  The rules multiply it; the job's schedule (decay,
warm-up) is multiplied on top and knows nothing of them.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, Final, Protocol

RULES: Final = ("constant", "proportional", "delay-adaptive")
FACTOR: Final = "a finite number, 0 or more"
"""What `is_factor` accepts, in words."""


def is_factor(answer: Any) -> bool:
    """Whether a policy or a schedule may answer this as a factor on the learning rate."""
    if not isinstance(answer, Real) or isinstance(answer, bool):
        return False
    try:
        factor = float(answer)
    except OverflowError:  # an integer that no float can hold
        return False
    return math.isfinite(factor) and factor >= 0


def proportional(accepted: int, workers: int) -> float:
    """Return accepted / workers: the linear scaling rule for a round that averages only some of the gradients.

    Source: C. Xu, G. Neglia, N. Sebastianelli, "Dynamic backup workers for parallel machine learning", 2020, where a
    static k of n trains with a rate proportional to k.
    """
    return accepted / workers


def delay_adaptive(updates: float, staleness: float, damping: float) -> float:
    """Return 1 / (1 + damping * sqrt(updates + staleness)).

    With base rate 1/L and damping c/L this is the rate 1 / (L + c sqrt(t + tau)) of AdaDelay: S. Sra, A. W. Yu,
    M. Li, A. J. Smola, "AdaDelay: delay adaptive distributed stochastic optimization", AISTATS 2016.

    Parameters
    ----------
    updates
        The t of the paper: version before the commit; for several gradients, the mean of the versions before each.
    staleness
        The tau of the paper: versions since the gradient's label; for several gradients, their mean.
    damping
        c divided by L.
    """
    return 1.0 / (1.0 + damping * math.sqrt(updates + staleness))


class Schedule(Protocol):
    """A learning-rate schedule of the job."""

    def factor(self, updates: int, epochs: float) -> float:
        """Return the factor on the learning rate after `updates` updates and `epochs` passes over the data."""
