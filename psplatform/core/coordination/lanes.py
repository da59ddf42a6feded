"""One order of commits: of the whole model, or of a single block where the policy decides block by block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from psplatform.core.ledger import Ledger
from psplatform.core.plan import Plan
from psplatform.core.policy import Committed, Gradient
from psplatform.core.pool import Pool
from psplatform.core.roster import Member, Roster


class RunFacts(Protocol):
    """What a lane reads of the run that it belongs to.

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


class Lane:
    """The commits of some shards, in their order; also the `psplatform.core.policy.View` of who decides about them.

    A policy of scope ``model`` has a single lane with all shards.  One of scope ``block`` has a lane for every shard,
    each with versions, a pool and a round of its own.

    Parameters
    ----------
    run
        What is the same for all lanes.

    Attributes
    ----------
    block
        Number of the lane, from 0.
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

    @property
    def timer(self) -> str:
        """Tag of the timer at which the pool is looked at again."""
        return f"pool:{self.block}"

    def move(self, commit: Committed, now: float) -> None:
        """Note that `commit` is decided: a new round begins."""
        self.position, self.version, self.round_started_at = commit.position, commit.version, now
        self.loss = commit.loss if commit.gradients else self.loss
        self.unfit.clear()
        for one in commit.gradients:
            self.newest[one.slot] = one.sequence

    def version_at(self, position: int) -> int:
        """Return the version after a position that no open commit comes before but it."""
        following = self.ledger.get(position + 1)
        return self.version if following is None else following.before

    def give_up_held(self, member: str) -> list[Gradient]:
        """Take out and return what is held of a member: nothing more is decided about it."""
        given_up = [one for one in self.held if one.member == member]
        if given_up:
            self.held = [one for one in self.held if one.member != member]
        return given_up

    def label_of(self, gradient: Gradient) -> int:
        """Return the oldest version that the gradient was computed on, among this lane's shards."""
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
        """Number of gradients in this lane's pool."""
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
