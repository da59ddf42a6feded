"""Order: deciding commits, clipping them, noting when they are visible on every shard."""

from __future__ import annotations

from dataclasses import replace

from psplatform.core.coordination.ending import Ending
from psplatform.core.coordination.order.asking import Asking
from psplatform.core.coordination.order.commit_logs import CommitLog, Entry, clipping_factor
from psplatform.core.coordination.order.divergence import Divergence
from psplatform.core.coordination.shards.checkpoints import Checkpoints
from psplatform.core.coordination.shards.state import ShardState
from psplatform.core.coordination.state import State
from psplatform.core.policy import Change, Committed, Gradient
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Send
from psplatform.core.protocol.names import Role


class Commits:
    """Decides commits in the order of their commit log and follows them until they are visible."""

    def __init__(
        self, state: State, asking: Asking, divergence: Divergence, ending: Ending, checkpoints: Checkpoints
    ) -> None:
        self._state = state
        self._checkpoints = checkpoints
        self._asking = asking
        self._divergence = divergence
        self._ending = ending

    def decide(self, commit_log: CommitLog, gradients: tuple[Gradient, ...], reason: str, *, updates: int = 1) -> None:
        """Commit the mean of `gradients`, which come in the order of their slots, as the commit log's next version.

        With as many `updates` as gradients, the sum of a bundle, each of which makes a version.
        """
        state = self._state
        before, since = commit_log.version, commit_log.round_started_at
        staleness = tuple([before + one.ahead - commit_log.label_of(one) for one in gradients])
        commit = Committed(commit_log.position + 1, before + updates, gradients, staleness)
        # Asked before anything is changed: a policy that fails here leaves no half of a commit behind.
        scheduled = self._asking.factor(state.plan.schedule, before, state.epochs_done)
        rate = scheduled * self._asking.step_scale(commit, commit_log)
        why = reason, self._asking.decision(commit_log)
        cut = self._checkpoints.cut(commit_log, updates)
        self._enter(commit_log, Entry(commit, state.now, rate, cut, before), why, since)

    def adopt(self, commit_log: CommitLog, message: msg.Commit, gradients: tuple[Gradient, ...]) -> None:
        """Take over a commit that a lost coordinator has decided, as it was decided.

        Without gradients it is one that a shard has passed over, and of which nobody knows what it was made of: it is
        lost on every shard.
        """
        staleness = tuple([max(0, commit_log.version + one.ahead - commit_log.label_of(one)) for one in gradients])
        commit = Committed(message.position, message.version, gradients, staleness)
        entry = Entry(commit, self._state.now, message.rate, 0, commit_log.version)
        self._enter(commit_log, entry, ("decided by the coordinator before", {}), commit_log.round_started_at)

    def _enter(self, commit_log: CommitLog, entry: Entry, why: tuple[str, dict[str, float]], since: float) -> None:
        state, commit = self._state, entry.commit
        commit_log.move(commit, state.now)
        if entry.updates > 1:
            commit_log.note_sum(commit.position, entry.updates)
        state.moved.add(commit_log.block)
        commit_log.ledger.open(entry)
        self._send(commit_log, entry)
        self._log(commit_log, entry, state.now - since, why)
        self._account(commit)
        if not state.traits.mean_norm:
            self._asking.on_commit(commit, commit_log)
        self._checkpoints.decided(entry)
        if state.traits.interrupt:
            self.interrupt_busy()
        self._ending.check()

    def on_gathered(self, message: msg.Gathered) -> None:
        """Tell all shards the clipping factor once the norm of the whole mean gradient is known."""
        state = self._state
        commit_log = state.commit_log_of(message.shard)
        if message.epoch == state.shards[message.shard].epoch:
            self._clip(commit_log, message.position, commit_log.ledger.gathered(message))

    def _clip(self, commit_log: CommitLog, position: int, squared_norm: float | None) -> None:
        state, entry = self._state, commit_log.ledger.get(position)
        if squared_norm is None or entry is None or state.plan.clip_norm is None:
            return
        if entry.factor is None:
            entry.factor = clipping_factor(squared_norm, state.plan.clip_norm)
        for shard in commit_log.shards:
            self._proceed(state.shards[shard], entry)

    def _proceed(self, one: ShardState, entry: Entry) -> None:
        if entry.factor is not None and not one.promoting:
            proceed = msg.Proceed(self._state.term, entry.commit.position, entry.factor)
            self._state.effects.append(Send(Role.copy(one.server), proceed))

    def on_applied(self, message: msg.Applied) -> None:
        """Count a commit as shown by a shard."""
        commit_log = self._state.commit_log_of(message.shard)
        if message.epoch != self._state.shards[message.shard].epoch:
            return
        if self._state.plan.clip_norm is not None:
            # Who shows it has had its factor, perhaps of a coordinator that is gone: the others wait for the same.
            said = msg.Gathered(message.shard, message.epoch, message.position, message.squared_norms)
            self._clip(commit_log, message.position, commit_log.ledger.gathered(said))
        closed = commit_log.ledger.applied(message)
        for entry, _ in closed:
            self._note_visible(commit_log, entry)
        if self._state.traits.mean_norm:
            for entry, squared_norm in closed:
                self._asking.on_commit(replace(entry.commit, mean_squared_norm=squared_norm), commit_log)
                self._state.changes.add(Change.COMMIT)
        self._ending.advance()

    def _note_visible(self, commit_log: CommitLog, entry: Entry) -> None:
        state, commit = self._state, entry.commit
        state.log(
            "applied",
            position=commit.position,
            version=commit.version,
            visible_s=state.now - entry.decided_at,
            **state.replication_fields(),
            **state.block_field(commit_log),
        )

    def _send(self, commit_log: CommitLog, entry: Entry) -> None:
        for shard in commit_log.shards:
            one = self._state.shards[shard]
            if not one.promoting:  # it is sent again to the promoted one
                self._order(one, entry)

    def _order(self, one: ShardState, entry: Entry, *, again: bool = False) -> None:
        state, commit = self._state, entry.commit
        message = msg.Commit(
            term=state.term,
            epoch=one.epoch,
            position=commit.position,
            version=commit.version,
            contributions=tuple([_contribution(each) for each in commit.gradients]),
            rate=entry.rate,
            norms=state.traits.mean_norm,
            clip=state.plan.clip_norm is not None,
            cut=entry.cut,
            again=again,
            updates=entry.updates,
        )
        state.effects.append(Send(Role.copy(one.server), message))

    # --- after a failure ---

    def send_again(self, one: ShardState, position: int) -> int:
        """Let a new server, which stands at `position`, catch up with what was decided; return the last one lost.

        What the server before it had shown is lost: workers may have gone on since, and written over what it was made
        of.  The rest is sent again.
        """
        commit_log = self._state.commit_log_of(one.shard)
        oldest = commit_log.ledger.oldest
        settled = commit_log.position if oldest is None else oldest.commit.position - 1
        last = max(one.visible, settled)
        if last > position:
            self._lose(one, last, commit_log.version_at(last))
        for entry in commit_log.ledger.entries():
            number = entry.commit.position
            if position < number <= last:
                self._lose(one, number, entry.commit.version)
            else:
                # What it has already, and had not been confirmed, is sent as well: it confirms that.
                self._order_again(one, entry)
        return last

    def repeat(self, one: ShardState, position: int) -> None:
        """Order every commit again that the shard, whose server shows `position`, may not have heard of.

        What it was to pass over is lost here as well: ordered beside that, it would be waited for and never come.
        """
        commit_log = self._state.commit_log_of(one.shard)
        if position < one.passed:
            self._lose(one, one.passed, commit_log.version_at(one.passed))
        for entry in commit_log.ledger.entries():
            if position < entry.commit.position <= one.passed:
                self._lose(one, entry.commit.position, entry.commit.version)
            else:
                self._order_again(one, entry)

    def _order_again(self, one: ShardState, entry: Entry) -> None:
        self._order(one, entry, again=True)
        self._proceed(one, entry)

    def give_up(self, one: ShardState, position: int) -> None:
        """Let a shard go on without a commit that it cannot apply any more."""
        commit_log = self._state.commit_log_of(one.shard)
        entry = commit_log.ledger.get(position)
        if entry is not None:
            self._lose(one, position, entry.commit.version, entry.cut)
            self._clip(commit_log, position, commit_log.ledger.give_up(one.shard, position))

    def _lose(self, one: ShardState, position: int, version: int, cut: int = 0) -> None:
        state = self._state
        lost = msg.Commit(state.term, one.epoch, position, version, (), 0.0, cut=cut)
        state.effects.append(Send(Role.copy(one.server), lost))

    def version_before(self, commit_log: CommitLog, position: int) -> int:
        """Return the version that an open commit follows."""
        entry = commit_log.ledger.get(position)
        return commit_log.version if entry is None else entry.before

    def _log(
        self,
        commit_log: CommitLog,
        entry: Entry,
        duration_s: float,
        why: tuple[str, dict[str, float]],
    ) -> None:
        (reason, decision), commit = why, entry.commit
        bundles = _bundles(commit)
        self._state.log(
            "commit",
            position=commit.position,
            version=commit.version,
            versions=entry.updates,
            slots=[one.slot for one in commit.gradients],
            sequences=[one.sequence for one in commit.gradients],
            staleness=list(commit.staleness),
            loss=commit_log.loss,
            rate=entry.rate,
            duration_s=duration_s,
            reason=reason,
            **({"decision": decision} if decision else {}),
            **({"bundles": bundles} if any(bundles) else {}),
            **self._state.block_field(commit_log),
        )

    def _account(self, commit: Committed) -> None:
        state = self._state
        state.changes.add(Change.COMMIT)
        if self._divergence.refusals:
            self._divergence.note_commit()
        if state.batch_scheduler is not None:
            state.batch_scheduler.retry()
        for gradient in commit.gradients:
            if not state.block_outcomes.apply(gradient.slot, gradient.sequence):
                continue
            state.samples_applied += gradient.samples
            if state.batch_scheduler:
                state.batch_scheduler.settle(gradient.slot, gradient.sequence, gradient.assignment)
            member = state.roster.by_name.get(gradient.member)
            if member is not None and state.roster.tick(member):
                state.changes.add(Change.MINIMUM_CLOCK)

    def interrupt_busy(self, beyond: int = -1) -> None:
        """Tell every worker to abort that was released for a version after `beyond`: the model has moved on."""
        state = self._state
        for member in state.roster.members():
            if member.busy and member.counter > beyond:
                state.give_back(member.slot, member.sequence)
                member.interrupted.add(member.sequence)
                state.roster.rest(member)
                state.to_examine.append(member)
                state.effects.append(Send(Role.member(member.name), msg.Abort(state.term, member.sequence)))


def _contribution(one: Gradient) -> msg.Contribution:
    return msg.Contribution(one.member, one.slot, one.sequence, one.assignment, one.bundle)


def _bundles(commit: Committed) -> list[int]:
    """Return for each gradient which bundle of the commit it came in, counted from 1, or 0 for none."""
    numbers: dict[msg.Bundle | None, int] = {None: 0}
    return [numbers.setdefault(one.bundle, len(numbers)) for one in commit.gradients]
