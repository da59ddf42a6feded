"""The control half of a shard's server: applies commits in order, once, and answers pulls when a version is visible.

States of a position: *pending* (known, waits for its turn) -> *gathering* (the mean is computed; under clipping the
server then waits for the factor) -> *staging* (the next state is computed beside the visible one) -> *visible*.  One
position is in hand at a time; positions are applied in the coordinator's order whatever order they arrive in.

Guarantees: a gradient (slot, sequence) is applied at most once (S1); versions never go back; a message of a lower term
changes nothing (S10).  Publication is a step of its own so that a replication account can hold a staged state back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from psplatform.core.effects import COORDINATOR, Effect, Gather, Publish, Role, Send, Stage
from psplatform.core.events import GatherDone, PullWithdrawn, StageDone
from psplatform.core.messages import Applied, Commit, Contribution, Gathered, Proceed, Pull, Pulled, Refused

_CONFIRMATIONS_KEPT: Final = 256
"""More than the commits that are under way at a time: an older one is not asked about again."""

MOST_AHEAD: Final = 8
"""Versions by which a block that is pushed may be ahead of what its server shows: partial pulls let workers run away
from a slow server, whose memory must not fill with what they push."""


@dataclass
class Server:
    """One shard's server.

    Parameters
    ----------
    shard
        Index of the shard.
    epoch
        Fencing number of this server among those the shard has had.
    term
        Highest term of a coordinator heard so far.
    position, version
        Last visible commit, and the version it made.
    """

    shard: int
    epoch: int = 1
    term: int = 0
    position: int = 0
    version: int = 0
    _pending: dict[int, Commit] = field(default_factory=dict)
    _in_hand: Commit | None = None
    _norms: tuple[float, ...] | None = None
    _factors: dict[int, float] = field(default_factory=dict)
    _applied: dict[int, int] = field(default_factory=dict)
    _confirmed: dict[int, Applied] = field(default_factory=dict)
    _pulls: dict[str, Pull] = field(default_factory=dict)

    def handle(self, event: Any, now: float) -> list[Effect]:
        """Return what to do about `event`; the time is not used by a server."""
        return _HANDLERS[type(event)](self, event)

    def applied_sequences(self) -> dict[int, int]:
        """Return for each slot the last sequence applied: the dedupe table, part of the shard's state."""
        return dict(self._applied)

    def has_room_for(self, counter: int) -> bool:
        """Whether a pushed block that contributes to the version after `counter` is taken now, or must wait.

        Who waits has pushed everything before, so that nothing this server waits for is kept from it.
        """
        return counter <= self.version + MOST_AHEAD

    def _on_commit(self, commit: Commit) -> list[Effect]:
        if commit.term < self.term or commit.epoch != self.epoch:
            return [Send(COORDINATOR, Refused(self.shard, self.epoch, self.term))]
        self.term = commit.term
        if commit.position <= self.position:
            return [self._confirmation(commit)]
        if self._in_hand is not None and commit.position == self._in_hand.position:
            return self._report_norms(self._in_hand)
        self._pending[commit.position] = commit
        return self._take_next()

    def _take_next(self) -> list[Effect]:
        if self._in_hand is not None or self.position + 1 not in self._pending:
            return []
        commit = self._in_hand = self._pending.pop(self.position + 1)
        gather = Gather(commit.position, self._unapplied(commit.contributions), commit.norms or commit.clip)
        if commit.clip:
            return [gather]
        return [gather, Stage(commit.position, 1.0, commit.rate)]

    def _unapplied(self, contributions: tuple[Contribution, ...]) -> tuple[Contribution, ...]:
        return tuple(one for one in contributions if one.sequence > self._applied.get(one.slot, 0))

    def _on_gather_done(self, event: GatherDone) -> list[Effect]:
        commit = self._in_hand
        if commit is None or event.position != commit.position or self._norms is not None:
            return []
        self._norms = event.squared_norms
        return self._step(commit) if commit.clip and event.position in self._factors else self._report_norms(commit)

    def _report_norms(self, commit: Commit) -> list[Effect]:
        if not commit.clip or self._norms is None or commit.position in self._factors:
            return []
        return [Send(COORDINATOR, Gathered(self.shard, self.epoch, commit.position, self._norms))]

    def _on_proceed(self, message: Proceed) -> list[Effect]:
        if message.term < self.term or message.position <= self.position:
            return []
        self.term = message.term
        already = message.position in self._factors
        self._factors[message.position] = message.factor
        commit = self._in_hand
        if already or commit is None or commit.position != message.position or self._norms is None:
            return []
        return self._step(commit)

    def _step(self, commit: Commit) -> list[Effect]:
        return [Stage(commit.position, self._factors[commit.position], commit.rate)]

    def _on_stage_done(self, event: StageDone) -> list[Effect]:
        commit = self._in_hand
        if commit is None or event.position != commit.position:
            return []
        for one in commit.contributions:
            self._applied[one.slot] = max(one.sequence, self._applied.get(one.slot, 0))
        self.position, self.version = commit.position, commit.version
        self._confirmed[commit.position] = self._applied_message(commit, self._norms or ())
        self._confirmed.pop(commit.position - _CONFIRMATIONS_KEPT, None)
        effects: list[Effect] = [Publish(commit.position, commit.version), self._confirmation(commit)]
        effects += self._answers()
        self._in_hand = self._norms = None
        self._factors.pop(commit.position, None)
        return effects + self._take_next()

    def _confirmation(self, commit: Commit) -> Send:
        # A repetition may overtake the first confirmation, so it says the same.
        kept = self._confirmed.get(commit.position)
        return Send(COORDINATOR, kept or self._applied_message(commit, ()))

    def _applied_message(self, commit: Commit, norms: tuple[float, ...]) -> Applied:
        return Applied(self.shard, self.epoch, commit.position, commit.version, norms)

    def _answers(self) -> list[Send]:
        due = [member for member, pull in self._pulls.items() if pull.version <= self.version]
        return [self._answer(self._pulls.pop(member)) for member in due]

    def _answer(self, pull: Pull) -> Send:
        return Send(Role.member(pull.member), Pulled(self.shard, pull.request, self.version, self.epoch))

    def _on_pull(self, pull: Pull) -> list[Effect]:
        if pull.version <= self.version:
            return [self._answer(pull)]
        # A member's next pull makes the one before void: partial pulls would leave more and more of them here.
        kept = self._pulls.get(pull.member)
        if kept is None or kept.request < pull.request:
            self._pulls[pull.member] = pull
        return []

    def _on_withdrawn(self, event: PullWithdrawn) -> list[Effect]:
        kept = self._pulls.get(event.member)
        if kept is not None and kept.request == event.request:
            del self._pulls[event.member]
        return []


_HANDLERS: dict[type, Callable[[Server, Any], list[Effect]]] = {
    Commit: Server._on_commit,
    Proceed: Server._on_proceed,
    GatherDone: Server._on_gather_done,
    StageDone: Server._on_stage_done,
    Pull: Server._on_pull,
    PullWithdrawn: Server._on_withdrawn,
}
