"""The commits of one shard, from when its server knows them until they are staged.

States of a position: *pending* (known, waits for its turn) -> *gathering* (the mean is computed; under clipping the
server then waits for the factor) -> *staging* (the next state is computed beside the visible one) -> *staged*.  One
position is in hand at a time, until its server shows it; positions are taken in the coordinator's order whatever order
they arrive in.

Guarantees: a gradient (slot, sequence) is applied at most once (S1).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Effect, Gather, Send, Stage
from psplatform.core.protocol.events import GatherDone, GatherFailed, StageDone
from psplatform.core.protocol.messages import Commit, Contribution
from psplatform.core.protocol.names import COORDINATOR
from psplatform.core.shards.shown import Shown


@dataclass(frozen=True, slots=True)
class Step:
    """A commit as the server staged it.

    Attributes
    ----------
    contributions, factor, squared_norms
        What the server itself applied, by what it clipped that, and what it reported of it.
    """

    commit: Commit
    contributions: tuple[Contribution, ...]
    factor: float = 1.0
    squared_norms: tuple[float, ...] = ()

    @property
    def past(self) -> msg.Past:
        """The commit as a transfer tells of it."""
        return msg.Past(self.commit, self.squared_norms)


@dataclass(frozen=True, slots=True)
class Newest:
    """A server's newest state as a transfer names it.

    Attributes
    ----------
    applied
        The dedupe table.
    staged
        The step that made it, unless that is visible already.
    """

    position: int
    version: int
    applied: tuple[tuple[int, int], ...]
    staged: Step | None = None


@dataclass
class Applying:
    """The commits that one server knows and does not show yet, and what it has applied.

    Parameters
    ----------
    newest
        Last staged commit, visible or not.
    applied
        By slot, the last sequence applied: the dedupe table.
    shown
        The commits that the server has shown.

    Attributes
    ----------
    in_hand
        The commit that was taken, until it is shown; nothing is computed of it while its gradients are not to be had.
    computing
        Whether it is being gathered or staged.
    staged
        The commit in hand, once it is staged.
    contributions
        What of the commit in hand was not applied before.
    norms
        What was gathered of it, if that is done.
    step
        How long the last step was.
    """

    shard: int
    epoch: int
    newest: int
    applied: dict[int, int]
    shown: Shown
    in_hand: Commit | None = None
    computing: bool = False
    staged: Commit | None = None
    contributions: tuple[Contribution, ...] = ()
    norms: tuple[float, ...] | None = None
    step: float = 0.0
    _pending: dict[int, Commit] = field(default_factory=dict)
    _factors: dict[int, float] = field(default_factory=dict)

    def learn(self, commit: Commit) -> list[Effect] | None:
        """Return what is said of a commit that is in hand; let any other one wait for its turn, and return ``None``."""
        in_hand = self.in_hand
        if in_hand is not None and commit.position == in_hand.position:
            if self.computing or self.staged is not None:
                return self._report_norms(in_hand)
            # Its gradients were not to be had.  A successor is told again; without gradients the position is given up.
            if commit.contributions:
                return self._unreachable(commit) if commit.again else []
            self.in_hand = None
        before = self._pending.get(commit.position)
        if before is None or before.term != commit.term or _came_to(before) <= _came_to(commit):  # else it is late
            self._pending[commit.position] = commit
        return None

    def take_next(self) -> Commit | None:
        """Take the next position in hand, if it is known and none is; without `contributions`, it is to be skipped."""
        if self.in_hand is not None or not self._pending:
            return None
        following: int | None = self.newest + 1
        if following not in self._pending:
            # One without contributions says that everything up to it is lost on this shard.
            following = min((at for at, one in self._pending.items() if not one.contributions), default=None)
        if following is None:
            return None
        commit = self.in_hand = self._pending.pop(following)
        self.contributions = self._unapplied(commit.contributions)
        return commit

    def _unapplied(self, contributions: tuple[Contribution, ...]) -> tuple[Contribution, ...]:
        return tuple([one for one in contributions if one.sequence > self.applied.get(one.slot, 0)])

    def begin(self, commit: Commit) -> list[Effect]:
        """Begin to gather the commit in hand, and to stage it where that needs no factor."""
        contributions = self.contributions
        if len(contributions) < len(commit.contributions) and _splits_bundle(commit.contributions, contributions):
            return self._unreachable(commit)
        self.computing = True
        gather = Gather(commit.position, contributions, commit.norms or commit.clip, commit.again, commit.updates)
        return [gather] if commit.clip else [gather, Stage(commit.position, 1.0, commit.rate)]

    def skip(self, commit: Commit) -> None:
        """Pass over the commit in hand, and over all before it: nothing of them is applied."""
        self.newest, self.step = commit.position, 0.0
        self._pending = {position: one for position, one in self._pending.items() if position > commit.position}

    def gather_done(self, event: GatherDone) -> list[Effect]:
        """Go on with what is gathered: step where the factor is known, else report the norms."""
        commit = self.in_hand
        if commit is None or event.position != commit.position or self.norms is not None:
            return []
        self.norms = event.squared_norms
        return self._step_on(commit) if commit.clip and event.position in self._factors else self._report_norms(commit)

    def gather_failed(self, event: GatherFailed) -> list[Effect]:
        """Report that the gradients of the commit in hand are not to be had."""
        commit = self.in_hand
        return [] if commit is None or event.position != commit.position else self._unreachable(commit)

    def _unreachable(self, commit: Commit) -> list[Effect]:
        self.computing, self.staged = False, None
        return [Send(COORDINATOR, msg.Unreachable(self.shard, self.epoch, commit.position))]

    def _report_norms(self, commit: Commit) -> list[Effect]:
        if not commit.clip or self.norms is None or commit.position in self._factors:
            return []
        return [Send(COORDINATOR, msg.Gathered(self.shard, self.epoch, commit.position, self.norms))]

    def proceed(self, position: int, factor: float) -> list[Effect]:
        """Keep the factor of a position that is not staged; step where only that is missing."""
        already, commit = position in self._factors, self.in_hand
        self._factors[position] = factor
        if already or commit is None or commit.position != position or self.norms is None:
            return []
        return self._step_on(commit)

    def _step_on(self, commit: Commit) -> list[Effect]:
        return [Stage(commit.position, self._factors[commit.position], commit.rate)]

    def stage_done(self, event: StageDone) -> Commit | None:
        """Count the commit in hand as staged, and return it; ``None`` where it was another one."""
        commit = self.in_hand
        if commit is None or event.position != commit.position or not self.computing:
            return None
        for one in commit.contributions:
            self.applied[one.slot] = max(one.sequence, self.applied.get(one.slot, 0))
        self.newest, self.step = commit.position, event.step
        self.computing, self.staged = False, commit
        return commit

    def put_down(self, commit: Commit) -> None:
        """Let go of the commit in hand, which is shown."""
        self.in_hand = self.staged = self.norms = None
        self._factors.pop(commit.position, None)

    def step_of(self, staged: Commit) -> Step:
        """Return the step that the staged commit is."""
        return Step(staged, self.contributions, self._factors.get(staged.position, 1.0), self.norms or ())

    def newest_state(self, version: int) -> Newest:
        """Return how transfers name the newest state, while `version` is shown."""
        staged, applied = self.staged, tuple(sorted(self.applied.items()))
        if staged is None:
            return Newest(self.newest, version, applied)
        return Newest(self.newest, staged.version, applied, self.step_of(staged))

    def known_after(self, position: int) -> tuple[Commit, ...]:
        """Return all commits that are known after that position, shown or not."""
        known = {**self.shown.after(position), **self._pending}
        if self.in_hand is not None:
            known[self.in_hand.position] = self.in_hand
        return tuple(known[at] for at in sorted(known) if at > position)

    def forget_before(self, term: int) -> None:
        """Forget what waits and was decided in lower terms: a successor sends again what it adopts of that."""
        self._pending = {position: one for position, one in self._pending.items() if one.term >= term}


def _came_to(commit: Commit) -> tuple[bool, bool]:
    """How far a position has come with its coordinator: told, told again because a server was lost, given up."""
    return not commit.contributions, commit.again


def _splits_bundle(whole: tuple[Contribution, ...], rest: tuple[Contribution, ...]) -> bool:
    """Whether of a bundle a part is left, which is not to be had without the others."""
    left = set(rest)
    gone = {one.bundle for one in whole if one.bundle is not None and one not in left}
    return bool(gone) and any(one.bundle in gone for one in rest)
