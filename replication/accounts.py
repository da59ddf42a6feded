"""How far a replica may be behind its server: the accounts of the three modes.

Every staged step has a norm, so the distance is bounded by the sum of the norms of the steps that the replica lacks
(the triangle inequality), whatever the optimiser.  Keeping the sum costs O(1) per step.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from psplatform.jobs.replication import Replication

_SLACK: Final = 1e-6
"""By which part a norm is taken for more than measured, so that rounding never puts the estimate below the truth."""


def account_factory(replication: Replication, shards: int) -> Callable[[], Account]:
    """Return what makes the accounts of one shard's replicas under `replication`, of so many shards."""
    bound = replication.shard_bound(shards)
    if bound is None:
        return Account
    if replication.unit == "norm":
        return partial(Account, most_distance=bound)
    return partial(Account, most_updates=bound)


@dataclass
class Account:
    """What one replica lacks.

    Parameters
    ----------
    most_distance
        Largest distance of the parameters at a visible version; infinity for no such limit.
    most_updates
        Most updates lacking at a visible version; infinity for no such limit.  Both 0: chain replication.
    """

    most_distance: float = math.inf
    most_updates: float = math.inf
    _steps: deque[tuple[int, float]] = field(default_factory=deque)
    _total: float = 0.0

    @property
    def distance(self) -> float:
        """The Euclidean distance of the parameters, or more; 0 exactly where nothing is lacking."""
        return self._total

    @property
    def updates(self) -> int:
        """Number of updates that are lacking."""
        return len(self._steps)

    @property
    def within(self) -> bool:
        """Whether the newest state may be visible."""
        return not self._steps or (self._total <= self.most_distance and len(self._steps) <= self.most_updates)

    @property
    def due(self) -> bool:
        """Whether half of what may be lacking is."""
        near = 2 * len(self._steps) >= self.most_updates or 2 * self._total >= self.most_distance
        return near and bool(self._steps)

    def add(self, position: int, step: float) -> None:
        """Note that `position` is staged, which moves the parameters by `step`, a Euclidean norm."""
        step *= 1.0 + _SLACK
        self._steps.append((position, step))
        self._total += step

    def settle(self, position: int) -> None:
        """Note that the replica stands at `position`."""
        settled = False
        while self._steps and self._steps[0][0] <= position:
            self._steps.popleft()
            settled = True
        if settled:
            # Added up anew, because differences of sums drift: once per transfer, over what it did not carry.
            self._total = math.fsum(step for _, step in self._steps)
