"""Order: deciding commits, clipping them, noting when they are visible on every shard."""

from __future__ import annotations

from dataclasses import replace

from psplatform.core import messages as msg
from psplatform.core.coordination.asking import Asking
from psplatform.core.coordination.ending import Ending
from psplatform.core.coordination.lanes import Lane
from psplatform.core.coordination.state import State
from psplatform.core.effects import Role, Send
from psplatform.core.ledger import Entry, clipping_factor
from psplatform.core.policy import Change, Committed, Gradient


class Commits:
    """Decides commits in the order of their lane and follows them until they are visible.

    Attributes
    ----------
    non_finite
        By slot, the latest gradient since the last commit where it was not finite; the last to arrive comes last.
    refusals
        Gradients refused since the last commit because they were not finite.
    """

    def __init__(self, state: State, asking: Asking, ending: Ending) -> None:
        self._state = state
        self._asking = asking
        self._ending = ending
        self.non_finite: dict[int, Gradient] = {}
        self.refusals = 0

    def decide(self, lane: Lane, gradients: tuple[Gradient, ...], reason: str) -> None:
        """Commit the mean of `gradients`, which come in the order of their slots, as the lane's next version."""
        state = self._state
        before, since = lane.version, lane.round_started_at
        staleness = tuple([before - lane.label_of(one) for one in gradients])
        commit = Committed(lane.position + 1, before + 1, gradients, staleness)
        # Asked before anything is changed: a policy that fails here leaves no half of a commit behind.
        rate = state.plan.schedule.factor(before, state.epochs_done) * self._asking.step_scale(commit, lane)
        lane.move(commit, state.now)
        state.moved.add(lane.block)
        self._send(lane, commit, rate)
        self._log(lane, commit, rate, state.now - since, reason)
        self._account(commit)
        if not state.traits.mean_norm:
            self._asking.on_commit(commit, lane)
        if state.traits.interrupt:
            self._interrupt_busy()
        self._ending.on_commit()

    def on_gathered(self, message: msg.Gathered) -> None:
        """Tell all shards the clipping factor once the norm of the whole mean gradient is known."""
        state = self._state
        lane = state.lane_of(message.shard)
        squared = lane.ledger.gathered(message)
        if squared is not None and state.plan.clip_norm is not None:
            factor = clipping_factor(squared, state.plan.clip_norm)
            proceed = msg.Proceed(state.term, message.position, factor)
            state.emit(*(Send(Role.server(shard), proceed) for shard in lane.shards))

    def on_applied(self, message: msg.Applied) -> None:
        """Note that a shard shows a commit."""
        lane = self._state.lane_of(message.shard)
        closed = lane.ledger.applied(message)
        for entry, _ in closed:
            self._note_visible(lane, entry)
        if self._state.traits.mean_norm:
            for entry, squared_norm in closed:
                self._asking.on_commit(replace(entry.commit, mean_squared_norm=squared_norm), lane)
                self._state.changes.add(Change.COMMIT)
        self._ending.advance()

    def _note_visible(self, lane: Lane, entry: Entry) -> None:
        state, commit = self._state, entry.commit
        state.log(
            "applied",
            position=commit.position,
            version=commit.version,
            visible_s=state.now - entry.decided_at,
            **state.block_field(lane),
        )

    def _send(self, lane: Lane, commit: Committed, rate: float) -> None:
        state = self._state
        contributions = tuple([msg.Contribution(one.member, one.slot, one.sequence) for one in commit.gradients])
        for shard in lane.shards:
            message = msg.Commit(
                term=state.term,
                epoch=state.epochs[shard],
                position=commit.position,
                version=commit.version,
                contributions=contributions,
                rate=rate,
                norms=state.traits.mean_norm,
                clip=state.plan.clip_norm is not None,
            )
            state.emit(Send(Role.server(shard), message))
        lane.ledger.open(commit, state.now)

    def _log(self, lane: Lane, commit: Committed, rate: float, duration_s: float, reason: str) -> None:
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
            **self._state.block_field(lane),
        )

    def _account(self, commit: Committed) -> None:
        state = self._state
        state.changes.add(Change.COMMIT)
        self.non_finite.clear()
        self.refusals = 0
        for gradient in commit.gradients:
            if not state.fates.apply(gradient.slot, gradient.sequence):
                continue
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
