"""Taking over: the new coordinator learns what the lost one did in its last moments.

It has handled the same events up to some point, and decides nothing before the server of every shard has acknowledged
its term and said which commits it knows: from then on nobody obeys the coordinator before.  What that one had decided
beyond that point is adopted as it is, whatever the policy would say; what it had decided and not delivered is sent
again.  Workers repeat what they last said (`members.reconciliation`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from psplatform.core.coordination.ending import Ending
from psplatform.core.coordination.members.membership import Membership
from psplatform.core.coordination.members.reconciliation import Reconciliation
from psplatform.core.coordination.order.admission import Admission
from psplatform.core.coordination.order.commit_logs import CommitLog
from psplatform.core.coordination.order.commits import Commits
from psplatform.core.coordination.shards.checkpoints import Checkpoints
from psplatform.core.coordination.shards.copies import Copies
from psplatform.core.coordination.shards.recruits import Recruits
from psplatform.core.coordination.state import State
from psplatform.core.coordination.transfers.offers import Offers
from psplatform.core.policy import Gradient
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Send
from psplatform.core.protocol.events import CoordinatorLost, CopyAwake, CopyLost, EvaluationLost
from psplatform.core.protocol.names import COORDINATOR, Role

_AT_ONCE = (msg.ServerState, msg.Promoted, CopyAwake, CopyLost)


class Takeover:
    """Brings a coordinator that has taken over up to date.

    Attributes
    ----------
    awaited_shards
        The shards whose server has not answered yet; as long as there are any, nothing may be decided.
    adopted
        The last version of each shard that the lost coordinator had decided, as far as the servers know; empty until
        the takeover is complete.
    """

    def __init__(
        self,
        state: State,
        admission: Admission,
        membership: Membership,
        commits: Commits,
        copies: Copies,
        ending: Ending,
        checkpoints: Checkpoints,
        *,
        offers: Offers,
        reconciliation: Reconciliation,
        recruits: Recruits,
    ) -> None:
        self._state = state
        self._admission = admission
        self._membership = membership
        self._commits = commits
        self._copies = copies
        self._ending = ending
        self._checkpoints = checkpoints
        self._offers = offers
        self._reconciliation = reconciliation
        self._recruits = recruits
        self.awaited_shards: set[int] = set()
        self.adopted: list[int] = []
        self._deferred: list[Any] = []
        self._known: list[dict[int, msg.Commit]] = []
        self._gave: dict[int, str] = {}
        self._promoted: dict[int, msg.Promoted] = {}
        self._shown: dict[int, int] = {}
        self._begun_at = 0.0
        self._reason = CoordinatorLost("")
        self._lost_process = ""
        self._unconfirmed = False

    def begin(self, term: int, reason: CoordinatorLost, process: str) -> None:
        """Ask everybody, from `process`."""
        state = self._state
        state.term, state.settled = term, False
        self.adopted = []
        self._begun_at, self._reason = state.now, reason
        self._lost_process = state.processes.get(COORDINATOR.kind, "")
        state.processes[COORDINATOR.kind] = process
        self._recruits.forget()
        self.awaited_shards = {one.shard for one in state.shards}
        self._known = [{} for _ in state.commit_logs]
        self._gave.clear()
        self._promoted.clear()
        self._shown.clear()
        for one in state.shards:
            commit_log = state.commit_log_of(one.shard)
            if one.promoting:
                self._copies.promote(one)
            for copy in one.copies:
                state.effects.append(Send(Role.copy(copy), msg.StateRequest(term, commit_log.position)))
        self._reconciliation.begin()

    def defers(self, event: Any) -> bool:
        """Keep `event` until everything is known, unless it is part of that; return whether it is not handled now."""
        if not self.awaited_shards or isinstance(event, _AT_ONCE):
            return False
        if not isinstance(event, msg.Carried):  # which tells of now, and is said again
            self._deferred.append(event)
        return True

    def on_server_state(self, message: msg.ServerState) -> None:
        """Learn where a copy stands, and which commits it knows."""
        one = self._state.shards[message.shard]
        if message.term != self._state.term or message.copy != one.server or message.epoch != one.epoch:
            return
        self._copies.disown(one, message.replicas)
        commit_log = self._state.commit_log_of(message.shard)
        # A server that is being promoted, as far as is known here, may have served for long: only its answer to the
        # promotion says where it began.  What it shows beyond that is its own, not what was lost with the one before.
        if message.serving and not one.promoting and message.shard in self.awaited_shards:
            one.visible = max(one.visible, message.position)
            self._shown[message.shard] = message.position
            self._learn(commit_log, message.commits)
            self._answered(message.shard)

    def _learn(self, commit_log: CommitLog, commits: tuple[msg.Commit, ...]) -> None:
        for commit in commits:
            known = self._known[commit_log.block].setdefault(commit.position, commit)
            if not known.contributions:
                self._known[commit_log.block][commit.position] = commit

    def on_promoted(self, message: msg.Promoted) -> None:
        """Learn that a promoted copy has acknowledged this term.

        Its shard goes on under it once everything is known: before, nobody can say what was lost with the server
        before it, which may have shown, and told of, what this coordinator has not adopted yet.
        """
        one = self._state.shards[message.shard]
        if message.term == self._state.term and message.epoch == one.epoch and one.promoting:
            self._promoted[message.shard] = message
            self._learn(self._state.commit_log_of(message.shard), message.commits)
            self._answered(message.shard)

    def _answered(self, shard: int) -> None:
        self.awaited_shards.discard(shard)
        if not self.awaited_shards and self._known:
            self._complete()

    def take_deferred(self) -> list[Any]:
        """Return the events that were kept, once nothing is awaited any more."""
        if self.awaited_shards:
            return []
        deferred, self._deferred = self._deferred, []
        return deferred

    # --- once every server has answered ---

    def _complete(self) -> None:
        known, self._known = self._known, []
        for commit_log in self._state.commit_logs:
            self._adopt(commit_log, known[commit_log.block])
        self.adopted = [self._state.commit_log_of(one.shard).version for one in self._state.shards]
        self._state.settled = True
        self._part_with_the_replaced()
        for one in self._state.shards:
            if one.epoch > 1:
                self._copies.promote(one)  # when it was ordered, here or by a lost successor, less was known
        for one in self._state.shards:
            if not one.promoting:
                self._copies.repeat(one)
                self._commits.repeat(one, self._shown[one.shard])
        for shard in sorted(self._promoted):
            self._copies.on_promoted(self._promoted[shard])
        moved = [self._copies.moved(one) for one in self._state.shards if one.epoch > 1 and not one.promoting]
        self._reconciliation.repeat(moved)
        self._checkpoints.on_taken_over()  # before a run that ends cuts its last version anew
        self._ending.repeat(evaluator_lost=any(isinstance(one, EvaluationLost) for one in self._deferred))
        self._log()
        self._unconfirmed = True

    def _part_with_the_replaced(self) -> None:
        """Let members join again whose slot the lost coordinator had given to another: to it, they were lost.

        What they compute would have the names of what the other gave, and count for nothing.
        """
        state = self._state
        for member in state.roster.members():
            if self._gave.get(member.slot, member.name) != member.name:
                self._membership.remove(member.name, "the coordinator before had taken it for lost")
                state.effects.append(Send(Role.member(member.name), msg.Stop(state.term, msg.JOIN_AGAIN)))

    def _log(self) -> None:
        state = self._state
        state.log(
            "promoted",
            role="coordinator",
            shard=-1,
            epoch=state.term,
            copy="",
            process=self._lost_process,
            signal=self._reason.reason,
            detected_seconds=self._reason.silence_s,
            promoted_seconds=state.now - self._begun_at,
            distance_lost=0.0,
            updates_lost=0,
            bound=None,
            unit=None,
        )

    def note_applied(self, message: msg.Applied) -> None:
        """Log the first commit that is visible anywhere: with it, the run goes on."""
        one = self._state.shards[message.shard]
        if not self._unconfirmed or message.epoch != one.epoch or message.position <= one.passed:
            return
        self._unconfirmed = False
        seconds = self._state.now - self._begun_at
        self._state.log("resumed", role="coordinator", shard=-1, epoch=self._state.term, first_commit_seconds=seconds)

    def _adopt(self, commit_log: CommitLog, known: dict[int, msg.Commit]) -> None:
        # Servers apply commits in their order: behind one that nobody knows, none has been applied, unless the lost
        # coordinator had let a shard pass over it.
        passed = max((position for position, one in known.items() if not one.contributions), default=0)
        while (commit := known.get(commit_log.position + 1)) is not None or commit_log.position < passed:
            commit = commit or self._unknown(commit_log, known)
            gradients = tuple(
                replace(self._gradient(commit_log, one), bundle=one.bundle, ahead=ahead if commit.updates > 1 else 0)
                for ahead, one in enumerate(commit.contributions)
            )
            for one in commit.contributions:  # its worker may be lost before it says that it had been released for it
                self._state.roster.reserve(one.slot, one.sequence)
                self._gave[one.slot] = one.member
            self._commits.adopt(commit_log, commit, gradients)

    def _unknown(self, commit_log: CommitLog, known: dict[int, msg.Commit]) -> msg.Commit:
        """Return the next commit, of which nobody knows what it was made of, and perhaps not how many updates."""
        position, version = commit_log.position + 1, commit_log.version + 1
        if (following := known.get(position + 1)) is not None:
            version = max(version, following.version - following.updates)
        return msg.Commit(self._state.term, 0, position, version, (), 0.0)

    def _gradient(self, commit_log: CommitLog, one: msg.Contribution) -> Gradient:
        pooled = commit_log.pool.take(one.slot, one.sequence)
        if pooled is not None:
            return pooled
        for event in self._announced():
            if event.member == one.member and event.sequence == one.sequence:
                return self._admission.take_as_decided(event, commit_log) or self._unheard(commit_log, one)
        offered = self._offers.announcement_of(one.member, one.sequence)  # of one that came in a sum, nothing more
        taken = self._admission.take_as_decided(offered, commit_log) if offered is not None else None
        return taken or self._unheard(commit_log, one)

    def _announced(self) -> Iterator[msg.Announce]:
        for event in self._deferred:
            if isinstance(event, msg.Announce):
                yield event
            elif isinstance(event, msg.Offer):
                yield event.announce
            elif isinstance(event, msg.WorkerState):
                yield from event.announced

    def _unheard(self, commit_log: CommitLog, one: msg.Contribution) -> Gradient:
        # Its worker said so to the lost coordinator only, and has died since or not yet repeated it.
        state = self._state
        return Gradient(
            member=one.member,
            slot=one.slot,
            sequence=one.sequence,
            label=msg.Label((commit_log.version,) * state.plan.shards, tuple(each.epoch for each in state.shards)),
            samples=state.plan.batch_size,
            loss=commit_log.loss,
            squared_norm=0.0,
            compute_s=0.0,
            arrived_at=state.now,
            counter=commit_log.version,
            assignment=one.assignment,
        )
