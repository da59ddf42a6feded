"""Dynamic backup workers (DBW): how many gradients a round waits for is chosen anew before every round."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Any, ClassVar

from psplatform.core.parameters import parameter
from psplatform.core.policy import Committed, Traits
from psplatform.policies.chosen_count import ChosenCount
from psplatform.policies.estimates.gradient_statistics import GradientStatistics, gain_of

_SOURCE = (
    'C. Xu, G. Neglia, N. Sebastianelli, "Dynamic backup workers for parallel machine learning", '
    "IFIP Networking 2020, arXiv:2004.14696"
)

_WINDOWS_WITHOUT_VARIANCE = 4
"""Windows of rounds of a single gradient after which the variance counts as out of date."""


def has_risen(loss: float, before: float, tolerance: float) -> bool:
    """Return whether `loss` is above `tolerance` times `before`; for a negative loss the margin is as large."""
    return loss - before > (tolerance - 1.0) * abs(before)


@dataclass
class DynamicBackup(ChosenCount):
    """Wait in each round for the k gradients that promise the largest decrease of the loss per second.

    The gain of k gradients is a lower bound of the expected decrease, (eta / 2) (N - V / k), with the squared norm N
    of the true gradient and the variance V of a worker's estimated from the norms of the last rounds.  Its time is
    T(h, k), learned from arrivals, where h is how many the round before waited for.  While the gradient is large,
    few do; as noise takes over, k rises to n.

    Guarantee: a round averages exactly the k chosen when its version became visible, all computed on that version.
    Fewer only when no other live worker can contribute; more only when more were in before all shards were seen to
    show the version.

    The learning rate is the job's, whatever k is: scaled with k, small k would gain nothing.  The gain presumes that it
    is near 1 / L; where it is far below, noise is overrated and k drifts to n: lower `curvature` then.

    Differences from the paper
        The paper's long version was not at hand.  Reconstructed are the estimation of T (`RoundTimes`), what a round
        of one gradient tells (`GradientStatistics`), a round of two once the variance is out of date, waiting for all
        where no gain is positive, and the safeguard: the paper says only that the average loss is used as well.  Here
        k is at least one more than before when the loss has risen.  Ties go to the largest k.  `curvature` is an
        extension; its default gives the gain of the paper.
    """

    window: int = parameter(5, minimum=1, maximum=10_000, help="rounds that V and N are averaged over (D)")
    curvature: float = parameter(1.0, minimum=0.0, maximum=2.0, help="L times the learning rate, in the gain")
    safeguard: bool = parameter(True, help="wait for one more than before when the loss has risen")
    tolerance: float = parameter(1.01, minimum=1.0, help="factor by which the loss may rise before (beta)")

    source: ClassVar[str] = _SOURCE

    def __post_init__(self) -> None:
        """Check the parameters and start with nothing learned."""
        super().__post_init__()
        self._statistics = GradientStatistics(self.window)
        self._losses: deque[float] = deque(maxlen=2)

    @property
    def traits(self) -> Traits:
        """Exactly one version per round; late workers finish; the norm of the mean gradient is needed."""
        return Traits(exact=True, mean_norm=True)

    def learn(self, commit: Committed) -> None:
        """Update V and N from the norms, and note the loss."""
        if commit.mean_squared_norm is not None:
            squares = math.fsum(one.squared_norm for one in commit.gradients)
            self._statistics.add(len(commit.gradients), squares, commit.mean_squared_norm)
        self._losses.append(commit.loss)

    def gains(self, workers: int) -> list[float] | None:
        """Return the expected decrease of the loss divided by eta, eq. (12), or eq. (8) with `curvature`."""
        if not self._statistics.known:
            return None
        squared_norm, variance = self._statistics.squared_norm, self._statistics.variance
        return [gain_of(k, squared_norm, variance, self.curvature) for k in range(1, workers + 1)]

    def at_least(self, workers: int) -> tuple[int, str]:
        """Return one more than before when the loss has risen, and two when the variance is out of date."""
        if self.safeguard and len(self._losses) == 2 and has_risen(self._losses[1], self._losses[0], self.tolerance):
            return min((self._before or 0) + 1, workers), "one more than before because the loss has risen"
        if self._statistics.rounds_since_variance >= _WINDOWS_WITHOUT_VARIANCE * self.window:
            return min(2, workers), "two because one tells nothing of the variance"
        return 1, ""

    def state(self) -> dict[str, Any]:
        """Return all that was learned."""
        return {**super().state(), "statistics": self._statistics.state(), "losses": list(self._losses)}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        super().restore(state)
        self._statistics = GradientStatistics(self.window)
        self._statistics.restore(state["statistics"])
        self._losses = deque(state["losses"], maxlen=2)


@dataclass
class BlindDynamicBackup(ChosenCount):
    """Wait in each round for the k that give the most gradients per second (B-DBW).

    It is `DynamicBackup` with k itself for the gain: blind to what the gradients say, and cheaper by their norms.

    Guarantee: a round averages exactly the k chosen when it began, all computed on its version; fewer only when no
    other live worker can contribute.  The learning rate is the job's, whatever k is.

    Differences from the paper
        The estimation of T is a reconstruction (`RoundTimes`).
    """

    source: ClassVar[str] = _SOURCE

    def gains(self, workers: int) -> list[float]:
        """Return k."""
        return [float(k) for k in range(1, workers + 1)]
