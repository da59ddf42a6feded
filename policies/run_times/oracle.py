"""What nobody can know: the true run times of the coming round.  The bound that predictors are measured by."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from psplatform.policies.run_times.predictor import Choice, Observation, Predictor, Slots, best_cutoff

TrueTimes = Callable[[int, Slots], Sequence[float]]


class Oracle(Predictor):
    """Choose the cutoff that is the best for the times to come.

    Parameters
    ----------
    true_times
        Given the number of the round, from 0, and ``int64[n]`` slots, their n run times in it.
    begun
        Number of the first round asked about.
    """

    def __init__(self, true_times: TrueTimes, begun: int = 0) -> None:
        self._true_times = true_times
        self._round = begun

    def choose(self, slots: Slots) -> Choice:
        """Return the c that maximises c / x_(c)."""
        times = np.asarray(self._true_times(self._round, slots), dtype=np.float64)
        return Choice(best_cutoff(np.sort(times)), "as the true run times say")

    def observe(self, seen: Observation) -> None:
        """Go on to the next round."""
        self._round += 1

    def state(self) -> dict[str, int]:
        """Return the number of the round."""
        return {"round": self._round}

    def restore(self, state: dict[str, int]) -> None:
        """Continue with that round."""
        self._round = state["round"]
