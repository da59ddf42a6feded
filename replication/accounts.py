"""How far a replica may be behind its server: the accounts of the three modes.

Every staged step has a norm, so the distance is bounded by the sum of the norms of the steps that the replica lacks
(the triangle inequality), whatever the optimiser.  Keeping the sum costs O(1) per step.

The later a transfer begins, the more it merges; one that arrives too late holds the next version back.  What a replica
still lacks when a transfer has arrived is what was staged meanwhile, which is how an account knows when one is due.
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

_RECENT: Final = 8
"""Transfers that tell how much is staged while one is under way."""

_MARGIN: Final = 2
"""Times the most of that for which room is left within the bound."""

_UNKNOWN: Final = (math.inf, math.inf)


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
    # Position, norm and updates of each step.
    _steps: deque[tuple[int, float, int]] = field(default_factory=deque)
    _total: float = 0.0
    _updates: int = 0
    # What the replica still lacked when each of the last transfers had arrived: updates, and distance.
    _meanwhile: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=_RECENT))
    # The most of each.
    _most_meanwhile: tuple[float, float] = _UNKNOWN

    @property
    def distance(self) -> float:
        """The Euclidean distance of the parameters, or more; 0 exactly where nothing is lacking."""
        return self._total

    @property
    def updates(self) -> int:
        """Number of updates that are lacking."""
        return self._updates

    @property
    def within(self) -> bool:
        """Whether the newest state may be visible."""
        return not self._steps or (self._total <= self.most_distance and self._updates <= self.most_updates)

    @property
    def due(self) -> bool:
        """Whether a transfer should begin.

        Not before half of what may be lacking is, and then as late as leaves room for what is staged until it arrives,
        going by the last transfers, and for one step more.
        """
        if not self._steps:
            return False
        updates, distance = self._most_meanwhile
        _, step, of_step = self._steps[-1]
        return _is_near(self._updates, _MARGIN * updates + of_step, self.most_updates) or _is_near(
            self._total, _MARGIN * distance + step, self.most_distance
        )

    def add(self, position: int, step: float, updates: int = 1) -> None:
        """Add a step of the Euclidean norm `step`, which leads to `position` and is made of so many updates."""
        step *= 1.0 + _SLACK
        self._steps.append((position, step, updates))
        self._total += step
        self._updates += updates

    def settle(self, position: int) -> None:
        """Drop the steps up to `position`, where the replica stands."""
        settled = False
        while self._steps and self._steps[0][0] <= position:
            self._updates -= self._steps.popleft()[2]
            settled = True
        if settled:
            # Added up anew, because differences of sums drift: once per transfer, over what it did not carry.
            self._total = math.fsum(step for _, step, _ in self._steps)
            self._meanwhile.append((self._updates, self._total))
            updates, distances = zip(*self._meanwhile, strict=True)
            self._most_meanwhile = max(updates), max(distances)


def _is_near(found: float, room: float, most: float) -> bool:
    return 2 * found >= most and found + room >= most
