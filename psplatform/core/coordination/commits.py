"""Order: deciding commits, clipping them, noting when they are visible on every shard."""

from __future__ import annotations

from dataclasses import replace

from psplatform.core import messages as msg
from psplatform.core.coordination.ending import Ending
from psplatform.core.coordination.state import State
from psplatform.core.effects import Role, Send
from psplatform.core.ledger import Entry, clipping_factor
from psplatform.core.policy import Change, Committed, Gradient


class Commits:
    """Decides commits in one total order and follows them until they are visible.

    Attributes
    ----------
    non_finite
        By slot, the latest gradient since the last commit where it was not finite; the last to arrive comes last.
    """

    def __init__(self, state: State, ending: Ending) -> None:
        self._state = state
        self._ending = ending
        self.non_finite: dict[int, Gradient] = {}

    def decide(self, gradients: tuple[Gradient, ...], reason: str) -> None:
        """Commit the mean of `gradients`, which come in the order of their slots, as the next version."""
        state = self._state
        before, since = state.version, state.round_started_at
        state.position += 1
        state.version += 1
        state.round_started_at = state.now
        staleness = tuple(before - one.label.version for one in gradients)
        commit = Committed(state.position, state.version, gradients, staleness)
        rate = state.plan.schedule.factor(before, state.epochs_done) * state.policy.step_scale(commit, state)
        self._send(commit, rate)
        self._log(commit, rate, state.now - since, reason)
        self._account(commit)
        if not state.traits.mean_norm:
            state.policy.on_commit(commit, state)
        if state.traits.interrupt:
            self._interrupt_busy()
        self._ending.on_commit()

    def on_gathered(self, message: msg.Gathered) -> None:
        """Tell all shards the clipping factor once the norm of the whole mean gradient is known."""
        state = self._state
        squared = state.ledger.gathered(message)
        if squared is not None and state.plan.clip_norm is not None:
            factor = clipping_factor(squared, state.plan.clip_norm)
            proceed = msg.Proceed(state.term, message.position, factor)
            state.emit(*(Send(Role.server(shard), proceed) for shard in range(state.plan.shards)))

    def on_applied(self, message: msg.Applied) -> None:
        """Note that a shard shows a commit."""
        for entry, squared_norm in self._state.ledger.applied(message):
            self._note_visible(entry, squared_norm)
        self._ending.advance()

    def _note_visible(self, entry: Entry, squared_norm: float) -> None:
        state, commit = self._state, entry.commit
        visible_s = state.now - entry.decided_at
        state.log("applied", position=commit.position, version=commit.version, visible_s=visible_s)
        if state.traits.mean_norm:
            state.policy.on_commit(replace(commit, mean_squared_norm=squared_norm), state)
            state.changes.add(Change.COMMIT)

    def _send(self, commit: Committed, rate: float) -> None:
        state = self._state
        contributions = tuple(msg.Contribution(one.member, one.slot, one.sequence) for one in commit.gradients)
        for shard, epoch in enumerate(state.epochs):
            message = msg.Commit(
                term=state.term,
                epoch=epoch,
                position=commit.position,
                version=commit.version,
                contributions=contributions,
                rate=rate,
                norms=state.traits.mean_norm,
                clip=state.plan.clip_norm is not None,
            )
            state.emit(Send(Role.server(shard), message))
        state.ledger.open(commit, state.now)

    def _log(self, commit: Committed, rate: float, duration_s: float, reason: str) -> None:
        self._state.log(
            "commit",
            position=commit.position,
            version=commit.version,
            versions=1,
            slots=[one.slot for one in commit.gradients],
            sequences=[one.sequence for one in commit.gradients],
            staleness=list(commit.staleness),
            loss=commit.loss,
            rate=rate,
            duration_s=duration_s,
            reason=reason,
        )

    def _account(self, commit: Committed) -> None:
        state = self._state
        state.changes.add(Change.COMMIT)
        self.non_finite.clear()
        for gradient in commit.gradients:
            state.samples_applied += gradient.samples
            if state.deck:
                state.deck.settle(gradient.slot, gradient.sequence)
            member = state.roster.get(gradient.member)
            if member is not None and state.roster.tick(member):
                state.changes.add(Change.MINIMUM_CLOCK)

    def _interrupt_busy(self) -> None:
        state = self._state
        for member in state.roster.members():
            if member.busy:
                state.give_back(member.slot, member.sequence)
                member.interrupted.add(member.sequence)
                state.roster.rest(member)
                state.to_examine.append(member)
                state.emit(Send(Role.member(member.name), msg.Abort(state.term, member.sequence)))
