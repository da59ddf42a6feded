"""Commits that were decided and are not yet visible on every shard."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from psplatform.core.messages import Applied, Gathered
from psplatform.core.policy import Committed


@dataclass(slots=True)
class Entry:
    """One decided commit and what the shards have reported of it.

    Attributes
    ----------
    rate, cut
        As the shards were told.
    before
        Version before it.
    factor
        By which the shards were told to clip it, if they were.
    """

    commit: Committed
    decided_at: float
    rate: float = 1.0
    cut: int = 0
    before: int = 0
    factor: float | None = None
    gathered: dict[int, tuple[float, ...]] = field(default_factory=dict)
    applied: dict[int, tuple[float, ...]] = field(default_factory=dict)


@dataclass
class Ledger:
    """The open commits by position, the first decided first.

    Norms are added with `math.fsum` over fixed blocks: the sum is correctly rounded whatever the order, so it does not
    depend on how many shards the blocks lie on.
    """

    shards: int
    _open: dict[int, Entry] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._open)

    def open(self, entry: Entry) -> None:
        """Enter a commit that was just decided."""
        self._open[entry.commit.position] = entry

    def get(self, position: int) -> Entry | None:
        """Return the open commit at that position."""
        return self._open.get(position)

    def entries(self) -> list[Entry]:
        """Return the open commits in their order."""
        return list(self._open.values())

    @property
    def oldest(self) -> Entry | None:
        """The first commit that is open."""
        return next(iter(self._open.values()), None)

    def gathered(self, message: Gathered) -> float | None:
        """Note a shard's norms; return the squared norm of the whole mean gradient once all shards are in."""
        entry = self._open.get(message.position)
        if entry is None:
            return None
        entry.gathered[message.shard] = message.squared_norms
        return _total(entry.gathered) if len(entry.gathered) == self.shards else None

    def give_up(self, shard: int, position: int) -> float | None:
        """Note that a shard has no part of a commit; return the norm of the rest once all others are in."""
        return self.gathered(Gathered(shard, 0, position, ()))

    def applied(self, message: Applied) -> list[tuple[Entry, float]]:
        """Note that a shard shows a commit; close and return, in their order, what all shards show, with its norm.

        A commit that all shards show stays open while one before it does not, because its report may have been
        overtaken: policies learn from commits in the order in which they were made.
        """
        entry = self._open.get(message.position)
        if entry is None:
            return []
        entry.applied[message.shard] = message.squared_norms
        closed = []
        while self._open:
            position, first = next(iter(self._open.items()))
            if len(first.applied) < self.shards:
                break
            del self._open[position]
            closed.append((first, _total(first.applied)))
        return closed


def clipping_factor(squared_norm: float, limit: float) -> float:
    """Return the factor that brings a gradient down to norm `limit`, as `torch.nn.utils.clip_grad_norm_` does."""
    return min(1.0, limit / (math.sqrt(squared_norm) + 1e-6))


def _total(parts: dict[int, tuple[float, ...]]) -> float:
    return math.fsum(norm for shard in sorted(parts) for norm in parts[shard])
