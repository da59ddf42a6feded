"""The control half of a shard's server: applies commits in order, once, and answers pulls when a version is visible.

What becomes of a position until it is *staged* is in `applying`; a staged one is held back while a replica is too far
away, then *visible*.  What replicas are sent is in `sending`.

Guarantees: no version is visible from which a replica in sync is further away than its account allows (S2); versions
never go back; a server that has heard of a higher epoch of its shard changes and answers nothing, and one whose lease
is over, or that has handed over, answers nothing (S4); a message of a lower term changes nothing (S10).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Effect, Publish, Send, Serve, Skip
from psplatform.core.protocol.events import (
    Archived,
    ArchiveFailed,
    Captured,
    GatherDone,
    GatherFailed,
    PullWithdrawn,
    StageDone,
)
from psplatform.core.protocol.messages import Applied, Commit, Proceed, Pull, Pulled, Refused
from psplatform.core.protocol.names import COORDINATOR, Role
from psplatform.core.shards.applying import Applying
from psplatform.core.shards.links import Links, MakeAccount, no_account
from psplatform.core.shards.promotion import Promotion
from psplatform.core.shards.sending import Sending, not_written, written
from psplatform.core.shards.shown import Shown, WaitingPulls

MOST_AHEAD: Final = 8
"""Versions by which a pushed block may be ahead of what its server shows: a slow one's memory must not fill."""


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
        By slot, the last sequence applied: the dedupe table.
    replicas
        Those that stand where this server does from the beginning.
    archives_itself
        Whether it writes its part of checkpoints although it has replicas: those in the store cannot.
    from_workers
        Whether replicas take gradients from the workers.

    Attributes
    ----------
    links
        Its replicas.
    entitled_until
        When its lease is over: from then on, it answers nothing until it is renewed.
    fenced
        Whether it has heard that it was replaced.
    decided_in
        The highest term in which the visible version may have been decided.
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
    _shown: Shown = field(default_factory=Shown)
    _pulls: WaitingPulls = field(default_factory=WaitingPulls)
    _now: float = 0.0

    def __post_init__(self) -> None:
        self.links = Links(self.make_account)
        self._applying = Applying(self.shard, self.epoch, self.position, self.applied, self._shown)
        own = self.name, self.shard, self.epoch, self.links, self._applying
        self._sending = Sending(*own, self.archives_itself, self.from_workers)
        self._promotion = Promotion(self.shard, self.name, self.epoch, self.position, self.version)
        self.decided_in = self.term  # or before
        for replica in self.replicas:
            self.links.begin(replica, self.position)

    def handle(self, event: Any, now: float) -> list[Effect]:
        """Return what to do about `event`."""
        self._now = now
        return [] if self.fenced else _HANDLERS[type(event)](self, event)

    @property
    def newest(self) -> int:
        """The last staged commit, visible or not."""
        return self._applying.newest

    def has_room_for(self, counter: int) -> bool:
        """Whether a pushed block for the version after `counter` is taken now; who waits has pushed those before."""
        return counter <= self.version + MOST_AHEAD

    @property
    def under_way(self) -> frozenset[str]:
        """What it is doing, in words: none, or several at once."""
        staged = self._applying.staged is not None
        doing = {
            "gathering or staging": self._applying.computing,
            "staged and held back": staged and not self.links.within,
            "waiting for the clipping factor": self._applying.norms is not None and not staged,
            "transfer in flight": self.links.flying,
            "capturing": self._sending.capturing > 0,
        }
        return frozenset(words for words, holds in doing.items() if holds)

    # --- commits ---

    def _on_commit(self, commit: Commit) -> list[Effect]:
        if commit.term < self.term or commit.epoch != self.epoch:
            return self._refuse(commit.term, commit.epoch)
        self.term = commit.term
        if commit.position <= self.position:
            # A repetition may overtake the first confirmation, so it says the same.
            return [Send(COORDINATOR, self._shown.said(commit.position) or self._applied_message(commit, ()))]
        said = self._applying.learn(commit)
        return self._go_on() if said is None else said

    def _go_on(self) -> list[Effect]:
        """Publish, transmit and begin whatever can be now."""
        effects: list[Effect] = []
        while not self._sending.capturing and not self._applying.computing:
            if not (more := self._end_step() or self._take_next()):
                break
            effects += more
        return effects

    def _end_step(self) -> list[Effect]:
        sending, staged = self._sending, self._applying.staged
        alone = not (self.links.by_replica or sending.cut or sending.yielding)
        # Named before the version is shown: then workers go on, and write over their gradients.
        effects = [] if alone else sending.name_gradients()
        if staged is not None and self.links.within:
            effects += [Publish(staged.position, staged.version), *self._show(staged)]
        return effects if alone else effects + sending.transmit(self.version)

    def _take_next(self) -> list[Effect]:
        if self._sending.cut or self._sending.yielding or self._promotion.order:
            return []
        commit = self._applying.take_next()
        if commit is None:
            return []
        if self._applying.contributions:
            return self._applying.begin(commit)
        self._sending.cut = self._sending.cut or commit.cut
        self._applying.skip(commit)
        return [Skip(commit.position, commit.version), *self._show(commit)]

    def _on_proceed(self, message: Proceed) -> list[Effect]:
        if message.term < self.term or message.position <= self.newest:
            return []
        self.term = message.term
        return self._applying.proceed(message.position, message.factor)

    def _on_stage_done(self, event: StageDone) -> list[Effect]:
        commit = self._applying.stage_done(event)
        if commit is None:
            return []
        self._sending.add(commit, event.step)
        return self._go_on()

    def _show(self, commit: Commit) -> list[Effect]:
        self.position, self.version, self.decided_in = commit.position, commit.version, commit.term
        applied = self._applied_message(commit, self._applying.norms or ())
        self._shown.note(commit, applied)
        self._applying.put_down(commit)
        return [Send(COORDINATOR, applied), *self._answers()]

    def _applied_message(self, commit: Commit, norms: tuple[float, ...]) -> Applied:
        figures = self._applying.step, self.links.distance, self.links.lag, self._sending.replicated_bytes
        return Applied(self.shard, self.epoch, commit.position, commit.version, norms, *figures)

    # --- replicas ---

    def _on_hand_over(self, message: msg.HandOver) -> list[Effect]:
        if refusal := self._refuse(message.term, message.epoch):
            return refusal
        self._sending.hand_over()
        return self._go_on()

    def _on_cut(self, message: msg.Cut) -> list[Effect]:
        if refusal := self._refuse(message.term, message.epoch):
            return refusal
        if self.position != message.position or self.newest != message.position:
            return []  # the coordinator gives it up when it hears what is known here
        self._sending.cut = message.number
        return self._go_on()

    def _on_captured(self, event: Captured) -> list[Effect]:
        self._sending.captured(event)
        return self._go_on()

    def _on_replicated(self, message: msg.Replicated) -> list[Effect]:
        if message.epoch != self.epoch:
            return []
        link = self._sending.replicated(message)
        in_sync = [self._sending.in_sync(link)] if link is not None and self._promotion.order is None else []
        return in_sync + self._serve_if_level() + self._go_on()

    def _on_include(self, message: msg.Include) -> list[Effect]:
        if refusal := self._refuse(message.term, message.epoch):
            return refusal
        link = self.links.include(message.replica)
        return [self._sending.in_sync(link)] if link is not None and link.in_sync else self._go_on()

    def _on_exclude(self, message: msg.Exclude) -> list[Effect]:
        if refusal := self._refuse(message.term, message.epoch):
            return refusal
        self._sending.exclude(message.replica)
        return self._go_on() + self._answers()

    # --- who is in charge ---

    def _refuse(self, term: int, epoch: int) -> list[Effect]:
        """Return the refusal of what is said in a lower term or to another epoch; nothing, and obey, otherwise."""
        if term < self.term or epoch != self.epoch:
            return [Send(COORDINATOR, Refused(self.shard, self.epoch, self.term))]
        self.term = term
        return []

    def began(self, order: msg.Promote, past: tuple[msg.Past, ...]) -> list[Effect]:
        """Return what a copy does that has just become the server, with a state that contains those commits."""
        for one in past:
            self._shown.note(one.commit, self._applied_message(one.commit, one.squared_norms))
        self._promotion.order = order
        for successor in order.successors:
            self.links.include(successor)
        return self._serve_if_level() or self._go_on()

    def _serve_if_level(self) -> list[Effect]:
        """Begin to serve if every replica that could be promoted in this one's place stands where it does."""
        if self._promotion.order is None or (order := self._promotion.end(self.links.in_sync)) is None:
            return []
        known = self._applying.known_after(order.position)
        return [Serve(self.epoch, self.version), self._promotion.report(self.term, known), *self._answers()]

    def _on_promote(self, message: msg.Promote) -> list[Effect]:
        if refusal := self._refuse(message.term, message.epoch):
            return refusal
        commits = self._applying.known_after(message.position)
        self._applying.forget_before(message.term)
        for lost in self._promotion.repeat(message):
            self.links.exclude(lost)
        if self._promotion.order is None:
            return [self._promotion.report(self.term, commits), *self._answers()]
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
        if refusal := self._refuse(message.term, self.epoch):
            return refusal
        commits = self._applying.known_after(message.position)
        self._applying.forget_before(message.term)
        serving = self._promotion.order is None
        standing = self.shard, self.name, self.term, self.epoch, serving, self.position, commits
        return [Send(COORDINATOR, msg.ServerState(*standing, self.links.replicas))]

    # --- pulls ---

    @property
    def answers_until(self) -> float:
        """When it stops answering pulls unless its lease is renewed; minus infinity while it answers none."""
        promotion, handed_over = self._promotion, self._sending.successor
        if self.fenced or handed_over or promotion.order or self.position < promotion.floor:
            return -math.inf
        return self.entitled_until

    def _answers(self) -> list[Effect]:
        if self._now > self.answers_until:
            return []
        due, stands_at = self._pulls.due(self.version), (self.version, self.epoch, self.decided_in)
        return [Send(Role.member(one.member), Pulled(self.shard, one.request, *stands_at)) for one in due]

    def _on_pull(self, pull: Pull) -> list[Effect]:
        if pull.epoch > self.epoch:
            self.fenced = True
            return []
        self._pulls.take(pull)
        return self._answers()

    def renew(self, until: float, now: float) -> list[Effect]:
        """Extend the lease until then; return the answers that were held back for it."""
        self._now = now
        self.entitled_until = max(self.entitled_until, until)
        return [] if self.fenced else self._answers()


def _withdraw(server: Server, event: PullWithdrawn) -> list[Effect]:
    server._pulls.withdraw(event.member, event.request)
    return []


_HANDLERS: dict[type, Callable[[Server, Any], list[Effect]]] = {
    Commit: Server._on_commit,
    Proceed: Server._on_proceed,
    GatherDone: lambda server, event: server._applying.gather_done(event),
    GatherFailed: lambda server, event: server._applying.gather_failed(event) + server._go_on(),
    StageDone: Server._on_stage_done,
    Captured: Server._on_captured,
    Archived: lambda server, event: written(server.shard, event),
    ArchiveFailed: lambda server, event: not_written(server.shard, event),
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
    PullWithdrawn: _withdraw,
}
