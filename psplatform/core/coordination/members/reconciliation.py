"""Reconciliation: after a takeover, members and the new coordinator agree on what each member was released for."""

from __future__ import annotations

from collections.abc import Sequence

from psplatform.core.coordination.members.roster import Member
from psplatform.core.coordination.order.admission import Admission
from psplatform.core.coordination.state import State
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Send
from psplatform.core.protocol.names import Role


class Reconciliation:
    """Asks members what the lost coordinator released them for, and repeats to them, or revokes, what they work on.

    What a member that was asked says of gradients is heard in the order of their sequences.
    """

    def __init__(self, state: State, admission: Admission) -> None:
        self._state = state
        self._admission = admission
        self._asked: set[str] = set()
        self._early: dict[str, list[msg.Announce]] = {}

    def begin(self) -> None:
        """Ask all members for their state."""
        state = self._state
        self._asked = {member.name for member in state.roster.members()}
        self._early.clear()
        for member in state.roster.members():
            state.effects.append(Send(Role.member(member.name), msg.StateRequest(state.term)))

    def repeat(self, moved: Sequence[msg.Moved]) -> None:
        """Say again to all members what they may not have heard: which servers have moved, and what they are to do."""
        state = self._state
        for member in state.roster.members():
            to = Role.member(member.name)
            state.effects += [Send(to, one) for one in moved]
            for sequence in sorted(member.interrupted):
                state.effects.append(Send(to, msg.Abort(state.term, sequence)))
            if member.busy:
                release = msg.Release(state.term, member.sequence, member.counter, self._ticket_of(member))
                state.effects.append(Send(to, release))

    def _ticket_of(self, member: Member) -> msg.BatchAssignment | None:
        batch_scheduler, key = self._state.batch_scheduler, (member.slot, member.sequence)
        if batch_scheduler is None:
            return None
        # Instead of one that was applied as another's, in case this member has not heard of its release.
        return batch_scheduler.deal(*key) if batch_scheduler.is_duplicate(*key) else batch_scheduler.assignment(*key)

    def on_announce(self, message: msg.Announce) -> None:
        """Let a gradient be judged; one that the lost coordinator had released, once its member has told its state.

        Block by block a member runs ahead.  Earlier gradients, of which it told the lost coordinator alone, must be
        heard of first, or they would be taken for over.
        """
        state = self._state
        member = state.roster.by_name.get(message.member)
        unheard_of = member is not None and message.sequence > member.sequence
        if unheard_of and state.per_block and message.member in self._asked:
            self._early.setdefault(message.member, []).append(message)
        else:
            self._admission.on_announce(message)

    def on_worker_state(self, message: msg.WorkerState) -> None:
        """Learn what a member was released for, which the lost coordinator may have been the only one to know."""
        state = self._state
        member = state.roster.by_name.get(message.member)
        if message.term != state.term:
            return
        if member is None:
            # Only the lost coordinator had welcomed it: nobody would tell it of servers that change.
            state.effects.append(Send(Role.member(message.member), msg.Stop(state.term, msg.JOIN_AGAIN)))
            return
        if message.member not in self._asked:
            return
        self._asked.remove(message.member)
        repeated = member.busy and (member.sequence, member.counter) == (message.sequence, message.version)
        for one in (*message.announced, *self._early.pop(message.member, ())):
            self._admission.on_announce(one)
        if message.sequence > member.sequence or self._is_forestalled(member, message):
            state.catch_up(member, message.sequence, message.version)
        at_hand = member.busy and message.sequence == member.sequence
        if state.batch_scheduler is not None and message.assignment is not None and at_hand:
            state.batch_scheduler.claim(member.slot, message.sequence, message.assignment)
        if member.busy and not state.per_block and (member.counter > state.version or self._outruns_its_own(member)):
            self._revoke(member)
        elif message.aborted and at_hand:
            self._free(member)  # the lost coordinator wanted it to begin anew
        elif at_hand and not repeated:  # it may be waiting for this before it computes
            confirmed = message.sequence, message.version, message.assignment
            state.effects.append(Send(Role.member(message.member), msg.Release(state.term, *confirmed)))

    def _is_forestalled(self, member: Member, message: msg.WorkerState) -> bool:
        """Whether a member that was released twice for one sequence has taken the lost coordinator's release for it."""
        twice = member.busy and message.sequence == member.sequence
        return twice and message.version != member.counter and not self._state.per_block

    def _outruns_its_own(self, member: Member) -> bool:
        """Whether the version that a member waits for does not contain its last gradient, which it then writes over.

        It was released for a version in which the lost coordinator had put it; another was decided in that place.
        """
        commit_log = self._state.commit_logs[0]
        later = [one.commit for one in commit_log.ledger.entries() if one.commit.version > member.counter]
        decided = any(one.member == member.name for commit in later for one in commit.gradients)
        return decided or commit_log.pool.holds_any_of(member.slot)

    def _revoke(self, member: Member) -> None:
        """Let a member give up what it was released for: a version that was decided, and that nobody knows any more."""
        member.interrupted.add(member.sequence)
        self._free(member)
        self._state.effects.append(Send(Role.member(member.name), msg.Abort(self._state.term, member.sequence)))

    def _free(self, member: Member) -> None:
        """Count a member as having given up what it was released for: it may be released again."""
        state = self._state
        state.give_back(member.slot, member.sequence)
        state.roster.rest(member)
        # It may work on this version again, unless what it has computed on it counts already.
        taken = state.commit_logs[0].pool.holds_any_of(member.slot)
        member.version = state.version if taken else min(member.version, state.version - 1)
        state.to_examine.append(member)
