"""One order of commits: of the whole model, or of a single block where the policy decides block by block."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, Protocol

from psplatform.core.coordination.members.roster import Member, Roster
from psplatform.core.plan import Plan
from psplatform.core.policy import Committed, Gradient
from psplatform.core.protocol.messages import Applied, Gathered

_SUMS_KEPT: Final = 4096
"""Commits of several updates that are remembered: more than a bound ever holds back."""


@dataclass(slots=True)
class _Parts:
    open: int
    applied: bool = False


@dataclass
class BlockOutcomes:
    """Counts the blocks of every gradient until all are applied or dropped.

    Parameters
    ----------
    blocks
        Blocks that a gradient consists of.
    """

    blocks: int
    _parts: dict[tuple[int, int], _Parts] = field(default_factory=dict)

    @property
    def open(self) -> set[tuple[int, int]]:
        """The gradients of which a part is decided, and another is not."""
        return set(self._parts)

    def apply(self, slot: int, sequence: int) -> bool:
        """Count a block of the gradient as applied; return whether it was the first."""
        if self.blocks == 1:
            return True
        parts = self._settle(slot, sequence)
        first, parts.applied = not parts.applied, True
        return first

    def drop(self, slot: int, sequence: int) -> bool:
        """Count a block of the gradient as dropped; return whether it was the last, and none was applied."""
        if self.blocks == 1:
            return True
        parts = self._settle(slot, sequence)
        return not parts.open and not parts.applied

    def miss(self, slot: int, sequence: int, blocks: int) -> bool:
        """Count so many blocks of the gradient as lost; return whether all of it is."""
        if blocks == self.blocks:
            return True
        parts = self._settle(slot, sequence, blocks)
        return not parts.open and not parts.applied

    def _settle(self, slot: int, sequence: int, blocks: int = 1) -> _Parts:
        parts = self._parts.setdefault((slot, sequence), _Parts(self.blocks))
        parts.open -= blocks
        if not parts.open:
            del self._parts[slot, sequence]
        return parts


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

    @property
    def updates(self) -> int:
        """Versions that it makes."""
        return self.commit.version - self.before


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
        """Add a shard's norms; return the squared norm of the whole mean gradient once all shards are in."""
        entry = self._open.get(message.position)
        if entry is None:
            return None
        entry.gathered[message.shard] = message.squared_norms
        return _total(entry.gathered) if len(entry.gathered) == self.shards else None

    def give_up(self, shard: int, position: int) -> float | None:
        """Expect no norms of a shard, which has no part of a commit; return those of the rest once all are in."""
        return self.gathered(Gathered(shard, 0, position, ()))

    def applied(self, message: Applied) -> list[tuple[Entry, float]]:
        """Count a commit as shown by a shard; close and return, in their order, what all shards show, with its norm.

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
    return math.fsum(chain.from_iterable(parts.values()))


@dataclass
class Pool:
    """The gradients of the current round, at most one per (slot, sequence)."""

    _gradients: dict[tuple[int, int], Gradient] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._gradients)

    def __iter__(self) -> Iterator[Gradient]:
        return iter(self._gradients.values())

    def holds(self, slot: int, sequence: int) -> bool:
        """Whether that gradient is in."""
        return (slot, sequence) in self._gradients

    def holds_any_of(self, slot: int) -> bool:
        """Whether a gradient of that slot is in."""
        return any(key[0] == slot for key in self._gradients)

    def add(self, gradient: Gradient) -> None:
        """Put a gradient in; the same one twice is one."""
        self._gradients[gradient.slot, gradient.sequence] = gradient

    def take(self, slot: int, sequence: int) -> Gradient | None:
        """Take that gradient out."""
        return self._gradients.pop((slot, sequence), None)

    def drain(self) -> tuple[Gradient, ...]:
        """Take all gradients out, in the order of their slots: sums never depend on the order of arrival."""
        gradients = tuple(self._gradients[key] for key in sorted(self._gradients))
        self._gradients.clear()
        return gradients


class RunFacts(Protocol):
    """What a commit log reads of the run that it belongs to.

    Attributes
    ----------
    plan
        How much is trained, and by how many workers.
    roster
        The live workers.
    now
        Time of the event at hand.
    """

    plan: Plan
    roster: Roster
    now: float


class CommitLog:
    """The commits of some shards, in their order; also the `psplatform.core.policy.View` of who decides about them.

    A policy of scope ``model`` has a single commit log with all shards.  One of scope ``block`` has a commit log for
    every shard, each with versions, a pool and a round of its own.

    Parameters
    ----------
    run
        What is the same for all commit logs.

    Attributes
    ----------
    block
        Number of the commit log, from 0.
    shards
        The shards that apply these commits.
    version, position
        After the last *decided* commit.
    round_started_at
        Time of the last decided commit, or of the run's start.
    loss
        Of the last decided commit.
    held
        Gradients that the policy wants to be asked about again after the next commit.
    unfit
        The gradients refused since the last commit because they were not finite, by the worker, while it lives.
    newest
        By slot, the highest sequence decided: a server never applies a lower one after it.
    """

    def __init__(self, run: RunFacts, block: int, shards: tuple[int, ...]) -> None:
        self._run = run
        self.block = block
        self.shards = shards
        self.version = 0
        self.position = 0
        self.round_started_at = 0.0
        self.loss = 0.0
        self.pool = Pool()
        self.held: list[Gradient] = []
        self.unfit: dict[str, Gradient] = {}
        self.newest: dict[int, int] = {}
        self.ledger = Ledger(len(shards))
        self._sums: dict[int, int] = {}

    @property
    def timer(self) -> str:
        """Tag of the timer at which the pool is looked at again."""
        return f"pool:{self.block}"

    def move(self, commit: Committed, now: float) -> None:
        """Move on to `commit`, which is decided: a new round begins."""
        self.position, self.version, self.round_started_at = commit.position, commit.version, now
        self.loss = commit.loss if commit.gradients else self.loss
        self.unfit.clear()
        for one in commit.gradients:
            self.newest[one.slot] = one.sequence

    def note_sum(self, position: int, updates: int) -> None:
        """Remember that a commit is made of several updates."""
        self._sums[position] = updates
        while len(self._sums) > _SUMS_KEPT:
            del self._sums[next(iter(self._sums))]

    def updates_at(self, positions: Iterable[int]) -> int:
        """Return of how many updates the commits at `positions` are made."""
        return sum(self._sums.get(position, 1) for position in positions)

    def version_at(self, position: int) -> int:
        """Return the version after a position that no open commit comes before but it."""
        following = self.ledger.get(position + 1)
        return self.version if following is None else following.before

    def undecided_or_open(self) -> Iterator[Gradient]:
        """Return the gradients that wait to be decided, and those of commits that some shard may not show yet."""
        yield from self.pool
        yield from self.held
        for entry in self.ledger.entries():
            yield from entry.commit.gradients

    def give_up_held(self, member: str) -> list[Gradient]:
        """Take out and return what is held of a member: nothing more is decided about it."""
        given_up = [one for one in self.held if one.member == member]
        if given_up:
            self.held = [one for one in self.held if one.member != member]
        return given_up

    def label_of(self, gradient: Gradient) -> int:
        """Return the oldest version that the gradient was computed on, among this commit log's shards."""
        if len(self.shards) == len(gradient.label.versions):
            return gradient.label.version
        return min(gradient.label.versions[shard] for shard in self.shards)

    # --- what policies may read beside the attributes ---

    @property
    def now(self) -> float:
        """Time of the event at hand."""
        return self._run.now

    @property
    def workers(self) -> int:
        """Number of workers the job was given."""
        return self._run.plan.workers

    @property
    def live(self) -> int:
        """Number of live workers."""
        return len(self._run.roster)

    @property
    def busy(self) -> int:
        """Number of live workers that fetch or compute."""
        return self._run.roster.busy

    @property
    def pooled(self) -> int:
        """Number of gradients in this commit log's pool."""
        return len(self.pool)

    @property
    def refused(self) -> int:
        """Number of live workers whose gradient was refused since the last commit, because it was not finite."""
        return len(self.unfit)

    @property
    def minimum_clock(self) -> int:
        """Smallest clock among the live workers."""
        return self._run.roster.minimum_clock

    def members(self) -> Sequence[Member]:
        """Return the live workers in the order of their slots."""
        return self._run.roster.members()
