"""Learning a model during the run: full rounds for a start, then a few steps now and then."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from psplatform.policies.run_times.fitted_model import FittedModel
from psplatform.policies.run_times.state_space import Shape

if TYPE_CHECKING:
    from psplatform.policies.run_times.training import Fitting

# Steps after each full round from the end of the first window to that of the second, spread so that no round waits
# long for them.
_STEPS_AT_FIRST: Final = 10
# Afterwards one small step after every second round.
_ROUNDS_PER_STEP: Final = 2
# Windows per step: fewer than a fit takes, because every step delays a commit.
_WINDOWS: Final = 8
# Rounds that are remembered to learn from.
_LONGEST_MEMORY: Final = 400


class Learning:
    """Fits a model to the rounds of this run.

    From the end of the first window to that of the second, whose rounds are full as well, it takes ten steps after
    each, and from then on one after every second round, over windows drawn from the last 400 rounds; what was censored
    in them is what was drawn for it.  A step looks at 8 windows of 20 rounds, which takes about 12 ms for 158 workers
    and 25 ms for 2175, so that no round costs more than ten times that.

    Parameters
    ----------
    seed
        Of the first weights and of the windows drawn.
    model
        A model to go on from, with small steps.
    """

    def __init__(self, shape: Shape, seed: int, model: FittedModel | None = None) -> None:
        self._shape = shape
        self._seed = seed
        self._begin = model
        self._fitting: Fitting | None = None
        self._rounds: deque[NDArray[Any]] = deque(maxlen=_LONGEST_MEMORY)
        self._seen = 0
        self.model = model

    @property
    def is_empty(self) -> bool:
        """Whether no round was observed yet."""
        return not self._rounds

    def observe(self, rounds: Iterable[NDArray[Any]]) -> None:
        """Add completed rounds, scaled ``float[n]`` each, and learn a little; the first call brings a whole window."""
        for one in rounds:
            self._rounds.append(one)
            self._seen += 1
        early = self._begin is None and self._seen <= 2 * self._shape.window
        if early or self._seen % _ROUNDS_PER_STEP == 0:
            self._learn(_STEPS_AT_FIRST if early else 1)

    def _learn(self, steps: int) -> None:
        scaled = np.array(self._rounds, dtype=np.float64)
        fitting = self._fitting = self._fitting or self._new(scaled)
        for _ in range(steps):
            fitting.step(scaled, windows=_WINDOWS)
        if self._begin is not None or self._seen >= 2 * self._shape.window:
            self.model = fitting.model()

    def _new(self, scaled: NDArray[np.float64]) -> Fitting:
        from psplatform.policies.run_times.training import Fitting  # noqa: PLC0415  torch is needed only to learn

        steps = 0 if self._begin is not None else _STEPS_AT_FIRST * (self._shape.window + 1)
        return Fitting(self._shape, self._begin or scaled, seed=self._seed, steps=steps)
