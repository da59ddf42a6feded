"""The control half of a shard's server: applies commits in order, once, and answers pulls when a version is visible.

States of a position: *pending* (known, waits for its turn) -> *gathering* (the mean is computed; under clipping the
server then waits for the factor) -> *staging* (the next state is computed beside the visible one) -> *staged* (held
back while a replica is too far away) -> *visible*.  One position is in hand at a time; positions are applied in the
coordinator's order whatever order they arrive in.  While a transfer is *captured*, nothing else is computed.

Guarantees: a gradient (slot, sequence) is applied at most once (S1); no version is visible from which a replica in sync
is further away than its account allows (S2); versions never go back; a server that has heard of a higher epoch of its
shard changes and answers nothing, and one whose lease is over, or that has handed over, answers nothing (S4); a message
of a lower term changes nothing (S10).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import (
    COORDINATOR,
    Archive,
    Effect,
    Gather,
    Publish,
    Role,
    Send,
    Serve,
    Skip,
    Stage,
)
from psplatform.core.protocol.events import (
    Archived,
    ArchiveFailed,
    Captured,
    GatherDone,
    GatherFailed,
    PullWithdrawn,
    StageDone,
)
from psplatform.core.protocol.messages import Applied, Commit, Contribution, Gathered, Proceed, Pull, Pulled, Refused
from psplatform.core.shards.links import Link, Links, MakeAccount, no_account
from psplatform.core.shards.sending import Newest, Sending, Step
from psplatform.core.shards.shown import Shown, WaitingPulls

MOST_AHEAD: Final = 8
"""Versions by which a pushed block may be ahead of what its server shows: a slow one's memory must not fill."""


class _Hand(Enum):
    """What is being done about the position in hand."""

    NOTHING = "nothing"
    COMPUTING = "computing"
    STAGED = "staged"


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
    name
        Of this copy.
    make_account
        Makes the account of what a replica lacks.
    applied
        By slot, the last sequence applied before: the dedupe table.
    replicas
        Those that stand where this server does from the beginning.
    archives_itself
        Whether it writes its part of checkpoints although it has replicas: those in the store cannot.
    from_workers
        Whether replicas take gradients from the workers.

    Attributes
    ----------
    newest
        Last staged commit, visible or not.
    entitled_until
        When its lease is over: from then on, it answers nothing until it is renewed.
    fenced
        Whether it has heard that it was replaced.
    """

    shard: int
    epoch: int = 1
    term: int = 0
    position: int = 0
    version: int = 0
    name: str = ""
    make_account: MakeAccount = no_account
    applied: dict[int, int] = field(default_factory=dict)
    replicas: tuple[str, ...] = ()
    archives_itself: bool = False
    from_workers: bool = False
    entitled_until: float = math.inf
    fenced: bool = False
    _pending: dict[int, Commit] = field(default_factory=dict)
    _in_hand: Commit | None = None
    _hand: _Hand = _Hand.NOTHING
    _contributions: tuple[Contribution, ...] = ()
    _norms: tuple[float, ...] | None = None
    _factors: dict[int, float] = field(default_factory=dict)
    _shown: Shown = field(default_factory=Shown)
    _pulls: WaitingPulls = field(default_factory=WaitingPulls)
    _cut: int = 0
    _step: float = 0.0
    _now: float = 0.0
    _yielding: bool = False
    _successor: str = ""
    _rising: msg.Promote | None = None
    _floor: float = 0

    def __post_init__(self) -> None:
        self.newest = self.position
        self.links = Links(self.make_account)
        self._sending = Sending(self.name, self.shard, self.epoch, self.links, self._shown, self.from_workers)
        self._began_at = self.position, self.version
        self._decided_in = self.term  # or before
        for replica in self.replicas:
            self.links.begin(replica, self.position)

    def handle(self, event: Any, now: float) -> list[Effect]:
        """Return what to do about `event`."""
        self._now = now
        return [] if self.fenced else _HANDLERS[type(event)](self, event)

    def applied_sequences(self) -> dict[int, int]:
        """Return for each slot the last sequence applied: the dedupe table, part of the shard's newest state."""
        return dict(self.applied)

    def has_room_for(self, counter: int) -> bool:
        """Whether a pushed block for the version after `counter` is taken now; who waits has pushed those before."""
        return counter <= self.version + MOST_AHEAD

    @property
    def under_way(self) -> frozenset[str]:
        """What it is doing, in words: none, or several at once."""
        staged = self._hand is _Hand.STAGED
        doing = {
            "gathering or staging": self._hand is _Hand.COMPUTING,
            "staged and held back": staged and not self.links.within,
            "waiting for the clipping factor": self._norms is not None and not staged,
            "transfer in flight": self.links.flying,
            "capturing": self._sending.capturing > 0,
        }
        return frozenset(words for words, holds in doing.items() if holds)

    # --- commits ---

    def _on_commit(self, commit: Commit) -> list[Effect]:
        if commit.term < self.term or commit.epoch != self.epoch:
            return [self._refusal()]
        self.term = commit.term
        if commit.position <= self.position:
            return [self._confirmation(commit)]
        if self._in_hand is not None and commit.position == self._in_hand.position:
            return self._again(self._in_hand, commit)
        self._pending[commit.position] = commit
        return self._go_on()

    def _again(self, in_hand: Commit, commit: Commit) -> list[Effect]:
        if self._hand is not _Hand.NOTHING:
            return self._report_norms(in_hand)
        # Its gradients were not to be had.  A successor is told again; without gradients the position is given up.
        if commit.contributions:
            return self._on_gather_failed(GatherFailed(commit.position)) if commit.again else []
        self._pending[commit.position] = commit
        self._in_hand = None
        return self._go_on()

    def _go_on(self) -> list[Effect]:
        """Publish, transmit and begin whatever can be now."""
        effects: list[Effect] = []
        while not self._sending.capturing and self._hand is not _Hand.COMPUTING:
            if not (more := self._end_step() or self._take_next()):
                break
            effects += more
        return effects

    def _end_step(self) -> list[Effect]:
        if not (self.links.by_replica or self._cut or self._yielding):
            return self._publish_if_within()
        # Named before the version is shown: then workers go on, and write over their gradients.
        return self._name_gradients() + self._publish_if_within() + self._transmit()

    def _take_next(self) -> list[Effect]:
        if self._cut or self._yielding or self._rising or self._in_hand is not None or not self._pending:
            return []
        if (following := self._following()) is None:
            return []
        commit = self._in_hand = self._pending.pop(following)
        contributions = self._contributions = self._unapplied(commit.contributions)
        if not contributions:
            return self._skip(commit)
        if len(contributions) < len(commit.contributions) and _splits_bundle(commit.contributions, contributions):
            return self._on_gather_failed(GatherFailed(commit.position))
        self._hand = _Hand.COMPUTING
        gather = Gather(commit.position, contributions, commit.norms or commit.clip, commit.again, commit.updates)
        return [gather] if commit.clip else [gather, Stage(commit.position, 1.0, commit.rate)]

    def _following(self) -> int | None:
        if self.newest + 1 in self._pending:
            return self.newest + 1
        # One without contributions says that everything up to it is lost on this shard.
        return min((position for position, one in self._pending.items() if not one.contributions), default=None)

    def _unapplied(self, contributions: tuple[Contribution, ...]) -> tuple[Contribution, ...]:
        return tuple([one for one in contributions if one.sequence > self.applied.get(one.slot, 0)])

    def _skip(self, commit: Commit) -> list[Effect]:
        self._cut = self._cut or commit.cut
        self.newest, self._step = commit.position, 0.0
        self._pending = {position: one for position, one in self._pending.items() if position > commit.position}
        return [Skip(commit.position, commit.version), *self._show(commit)]

    def _on_gather_done(self, event: GatherDone) -> list[Effect]:
        commit = self._in_hand
        if commit is None or event.position != commit.position or self._norms is not None:
            return []
        self._norms = event.squared_norms
        return self._step_on(commit) if commit.clip and event.position in self._factors else self._report_norms(commit)

    def _on_gather_failed(self, event: GatherFailed) -> list[Effect]:
        commit = self._in_hand
        if commit is None or event.position != commit.position:
            return []
        self._hand = _Hand.NOTHING
        return [Send(COORDINATOR, msg.Unreachable(self.shard, self.epoch, event.position))]

    def _report_norms(self, commit: Commit) -> list[Effect]:
        if not commit.clip or self._norms is None or commit.position in self._factors:
            return []
        return [Send(COORDINATOR, Gathered(self.shard, self.epoch, commit.position, self._norms))]

    def _on_proceed(self, message: Proceed) -> list[Effect]:
        if message.term < self.term or message.position <= self.newest:
            return []
        self.term = message.term
        already, commit = message.position in self._factors, self._in_hand
        self._factors[message.position] = message.factor
        if already or commit is None or commit.position != message.position or self._norms is None:
            return []
        return self._step_on(commit)

    def _step_on(self, commit: Commit) -> list[Effect]:
        return [Stage(commit.position, self._factors[commit.position], commit.rate)]

    def _on_stage_done(self, event: StageDone) -> list[Effect]:
        commit = self._in_hand
        if commit is None or event.position != commit.position or self._hand is not _Hand.COMPUTING:
            return []
        for one in commit.contributions:
            self.applied[one.slot] = max(one.sequence, self.applied.get(one.slot, 0))
        self.newest, self._step = commit.position, event.step
        self._cut = self._cut or commit.cut
        self.links.add(commit.position, event.step, commit.updates)
        self._sending.note(self._step_of(commit))
        self._hand = _Hand.STAGED
        return self._go_on()

    def _publish_if_within(self) -> list[Effect]:
        commit = self._staged
        if commit is None or not self.links.within:
            return []
        return [Publish(commit.position, commit.version), *self._show(commit)]

    def _show(self, commit: Commit) -> list[Effect]:
        self.position, self.version, self._decided_in = commit.position, commit.version, commit.term
        self._shown.note(commit, self._applied_message(commit, self._norms or ()))
        self._in_hand = self._norms = None
        self._hand = _Hand.NOTHING
        self._factors.pop(commit.position, None)
        return [self._confirmation(commit), *self._answers()]

    def _confirmation(self, commit: Commit) -> Send:
        # A repetition may overtake the first confirmation, so it says the same.
        return Send(COORDINATOR, self._shown.said(commit.position) or self._applied_message(commit, ()))

    def _applied_message(self, commit: Commit, norms: tuple[float, ...]) -> Applied:
        figures = self._step, self.links.distance, self.links.lag, self._sending.replicated_bytes
        return Applied(self.shard, self.epoch, commit.position, commit.version, norms, *figures)

    # --- replicas ---

    def _name_gradients(self) -> list[Effect]:
        return [] if self._cut or self._yielding else self._sending.name_gradients(self.newest)

    def _transmit(self) -> list[Effect]:
        if self._cut:
            # One that joins is served all the same: it may be what makes the cut possible.
            return self._transmit_cut() or self._transmit_newest()
        if self._yielding:
            return self._yield_on()
        return self._transmit_newest()

    def _transmit_newest(self) -> list[Effect]:
        link = self._sending.wanting(self.newest)
        return self._sending.to(link, self._newest) if link is not None else []

    def _transmit_cut(self) -> list[Effect]:
        # Nothing is staged before the state of the cut has been captured.
        alone = self.archives_itself or not self.links.in_sync
        link = None if alone else self.links.archiving()
        if link is None and not alone:
            return []
        number, self._cut = self._cut, 0
        newest = self._newest
        if link is None:
            return [Archive(number, newest.position, newest.version, newest.applied)]
        return self._sending.to(link, newest, number)

    def _on_hand_over(self, message: msg.HandOver) -> list[Effect]:
        if not self._obeys(message):
            return [self._refusal()]
        self._yielding, self._successor = True, ""  # the one told before may be gone
        return self._go_on()

    def _on_cut(self, message: msg.Cut) -> list[Effect]:
        if not self._obeys(message):
            return [self._refusal()]
        if self.position != message.position or self.newest != message.position:
            return []  # the coordinator gives it up when it hears what is known here
        self._cut = message.number
        return self._go_on()

    def _yield_on(self) -> list[Effect]:
        level = self.links.level_with(self.newest)
        if level is None:
            link = self.links.archiving()
            # With none in sync, one that joins is what it may hand over to.
            return self._sending.to(link, self._newest) if link is not None else self._transmit_newest()
        if self._in_hand is not None or self._successor:
            return []
        self._successor = level.replica
        return [Send(COORDINATOR, msg.HandedOver(self.shard, self.epoch, level.replica))]

    @property
    def _staged(self) -> Commit | None:
        """The commit that is staged and not yet visible."""
        return self._in_hand if self._hand is _Hand.STAGED else None

    @property
    def _newest(self) -> Newest:
        staged, applied = self._staged, tuple(sorted(self.applied.items()))
        version, step = (self.version, None) if staged is None else (staged.version, self._step_of(staged))
        return Newest(self.newest, version, applied, step)

    def _step_of(self, staged: Commit) -> Step:
        return Step(staged, self._contributions, self._factors.get(staged.position, 1.0), self._norms or ())

    def _on_captured(self, event: Captured) -> list[Effect]:
        self._sending.captured(event)
        return self._go_on()

    def _on_replicated(self, message: msg.Replicated) -> list[Effect]:
        if message.epoch != self.epoch:
            return []
        link = self._sending.replicated(message)
        in_sync = [self._in_sync(link)] if link is not None and self._rising is None else []
        return in_sync + self._serve_if_level() + self._go_on()

    def _on_include(self, message: msg.Include) -> list[Effect]:
        if not self._obeys(message):
            return [self._refusal()]
        link = self.links.include(message.replica)
        return [self._in_sync(link)] if link is not None and link.in_sync else self._go_on()

    def _in_sync(self, link: Link) -> Send:
        return Send(COORDINATOR, msg.InSync(self.shard, self.epoch, link.replica, link.position))

    def _on_exclude(self, message: msg.Exclude) -> list[Effect]:
        if not self._obeys(message):
            return [self._refusal()]
        self.links.exclude(message.replica)
        self._successor = "" if message.replica == self._successor else self._successor
        return self._go_on() + self._answers()

    def _refusal(self) -> Send:
        return Send(COORDINATOR, Refused(self.shard, self.epoch, self.term))

    def _obeys(self, message: msg.Include | msg.Exclude | msg.Promote | msg.HandOver | msg.Cut) -> bool:
        if message.term < self.term or message.epoch != self.epoch:
            return False
        self.term = message.term
        return True

    def _on_archived(self, event: Archived) -> list[Effect]:
        return [Send(COORDINATOR, msg.Written(self.shard, event.number, event.position, event.part))]

    def _on_archive_failed(self, event: ArchiveFailed) -> list[Effect]:
        return [Send(COORDINATOR, msg.NotWritten(self.shard, event.number, event.text))]

    # --- who is in charge ---

    def began(self, order: msg.Promote, past: tuple[msg.Past, ...]) -> list[Effect]:
        """Return what a copy does that has just become the server, with a state that contains those commits."""
        for one in past:
            self._shown.note(one.commit, self._applied_message(one.commit, one.squared_norms))
        self._rising = order
        for successor in order.successors:
            self.links.include(successor)
        return self._serve_if_level() or self._go_on()

    def _serve_if_level(self) -> list[Effect]:
        """Begin to serve if every replica that could be promoted in this one's place stands where it does."""
        order = self._rising
        if order is None or not set(order.successors) <= set(self.links.in_sync):
            return []
        # The server before it may have shown whatever was decided: who pulled that must not be answered less.
        self._rising, self._floor = None, order.position if order.settled else math.inf
        return [Serve(self.epoch, self.version), self._promoted(self._known_after(order.position)), *self._answers()]

    def _promoted(self, known: tuple[Commit, ...]) -> Send:
        return Send(COORDINATOR, msg.Promoted(self.shard, self.name, self.epoch, *self._began_at, self.term, known))

    def _known_after(self, position: int) -> tuple[Commit, ...]:
        known = {**self._shown.after(position), **self._pending}
        if self._in_hand is not None:
            known[self._in_hand.position] = self._in_hand
        return tuple(known[at] for at in sorted(known) if at > position)

    def _follow(self, term: int) -> None:
        """Obey a coordinator that was just told what is known here: what it adopts of that, it sends again."""
        self.term = term
        self._pending = {position: one for position, one in self._pending.items() if one.term >= term}

    def _on_promote(self, message: msg.Promote) -> list[Effect]:
        if message.term < self.term or message.epoch != self.epoch:
            return [self._refusal()]
        commits = self._known_after(message.position)
        self._follow(message.term)
        if self._rising is None:
            if message.settled:
                self._floor = min(self._floor, message.position)
            return [self._promoted(commits), *self._answers()]
        if message.replaces(self._rising):
            for lost in set(self._rising.successors) - set(message.successors):
                self.links.exclude(lost)
            self._rising = message
        return self._serve_if_level() + self._go_on()

    def _on_outdated(self, message: msg.Outdated) -> list[Effect]:
        self.fenced = message.epoch > self.epoch
        return []

    def _on_transfer(self, transfer: msg.Transfer) -> list[Effect]:
        # Sent to the replica that this copy was before it was promoted, or by a server promoted after it.
        if transfer.epoch > self.epoch:
            self.fenced = True
            return []
        return [Send(Role.copy(transfer.server), msg.Outdated(self.shard, self.epoch))]

    def _on_state_request(self, message: msg.StateRequest) -> list[Effect]:
        if message.term < self.term:
            return [self._refusal()]
        commits = self._known_after(message.position)
        self._follow(message.term)
        serving = self._rising is None
        standing = self.shard, self.name, self.term, self.epoch, serving, self.position, commits
        return [Send(COORDINATOR, msg.ServerState(*standing, self.links.replicas))]

    # --- pulls ---

    def _answers(self) -> list[Effect]:
        if self._now > self.entitled_until or self._successor or self._rising or self.position < self._floor:
            return []
        due, stands_at = self._pulls.due(self.version), (self.version, self.epoch, self._decided_in)
        return [Send(Role.member(one.member), Pulled(self.shard, one.request, *stands_at)) for one in due]

    def _on_pull(self, pull: Pull) -> list[Effect]:
        if pull.epoch > self.epoch:
            self.fenced = True
            return []
        self._pulls.take(pull)
        return self._answers()

    def _on_withdrawn(self, event: PullWithdrawn) -> list[Effect]:
        self._pulls.withdraw(event.member, event.request)
        return []

    def renew(self, until: float, now: float) -> list[Effect]:
        """Extend the lease until then; return the answers that were held back for it."""
        self._now = now
        self.entitled_until = max(self.entitled_until, until)
        return [] if self.fenced else self._answers()


def _splits_bundle(whole: tuple[Contribution, ...], rest: tuple[Contribution, ...]) -> bool:
    """Whether of a bundle a part is left, which is not to be had without the others."""
    left = set(rest)
    gone = {one.bundle for one in whole if one.bundle is not None and one not in left}
    return bool(gone) and any(one.bundle in gone for one in rest)


_HANDLERS: dict[type, Callable[[Server, Any], list[Effect]]] = {
    Commit: Server._on_commit,
    Proceed: Server._on_proceed,
    GatherDone: Server._on_gather_done,
    GatherFailed: Server._on_gather_failed,
    StageDone: Server._on_stage_done,
    Captured: Server._on_captured,
    Archived: Server._on_archived,
    ArchiveFailed: Server._on_archive_failed,
    msg.Replicated: Server._on_replicated,
    msg.Include: Server._on_include,
    msg.Exclude: Server._on_exclude,
    msg.HandOver: Server._on_hand_over,
    msg.Cut: Server._on_cut,
    msg.Promote: Server._on_promote,
    msg.Outdated: Server._on_outdated,
    msg.Transfer: Server._on_transfer,
    msg.StateRequest: Server._on_state_request,
    Pull: Server._on_pull,
    PullWithdrawn: Server._on_withdrawn,
}
