"""Who goes on, and when the pool is committed: the policy is asked until nothing changes any more."""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from psplatform.core.coordination.members.roster import Member
from psplatform.core.coordination.order.admission import Admission
from psplatform.core.coordination.order.asking import Asking
from psplatform.core.coordination.order.commit_logs import CommitLog
from psplatform.core.coordination.order.commits import Commits
from psplatform.core.coordination.state import State
from psplatform.core.coordination.transfers.pulls import Pulls
from psplatform.core.protocol.effects import CancelTimer, SetTimer
from psplatform.core.protocol.messages import Release

_SLOT: Final = attrgetter("slot")


class Releases:
    """Asks `pool_ready` and `may_start`, and acts on the answers.

    Waiting workers are looked at again only after a change the policy depends on (`Traits.wakes`), so that ten
    thousand workers cost no more than their events.
    """

    def __init__(self, state: State, asking: Asking, admission: Admission, commits: Commits, pulls: Pulls) -> None:
        self._state = state
        self._pulls = pulls
        self._asking = asking
        self._admission = admission
        self._commits = commits

    def settle(self) -> None:
        """Ask until nothing changes; every pass judges, commits or releases something, or is the last."""
        state = self._state
        while not self._state.stopping and (state.changes or state.to_examine or state.stirred or state.moved):
            pools = self._pools()
            if pools:
                # Who joined or came too late may still contribute to this round, so it goes on before it is judged
                # whether the round is complete.
                self._ask_starts([one for one in state.to_examine if not _waits_in(pools, one)])
            for commit_log in pools:
                self._ask_pool(commit_log)
            self._reconsider()
            changes, state.changes = state.changes, set()
            waiting, state.to_examine = state.to_examine, []
            self._ask_starts(state.roster.waiting() if changes & state.traits.wakes else waiting)

    def _pools(self) -> list[CommitLog]:
        # A block that one more push has reached concerns that block alone, however many there are.
        state = self._state
        stirred, state.stirred = state.stirred, set()
        everything = state.changes or state.to_examine
        commit_logs = state.commit_logs if everything else [state.commit_logs[block] for block in sorted(stirred)]
        return [commit_log for commit_log in commit_logs if commit_log.pool]

    def _reconsider(self) -> None:
        moved = self._state.moved
        if moved:
            self._state.moved = set()
            for block in sorted(moved):
                self._admission.reconsider(self._state.commit_logs[block])

    def _ask_starts(self, members: list[Member]) -> None:
        for member in sorted(members, key=_SLOT) if len(members) > 1 else members:
            if not member.busy and self._state.roster.by_name.get(member.name) is member:
                self._ask_start(member)

    def on_due(self, name: str) -> None:
        """Look again at the member `name`, whose time to start has come."""
        member = self._state.roster.by_name.get(name)
        if member is not None and not member.busy:
            self._state.to_examine.append(member)

    def _ask_pool(self, commit_log: CommitLog) -> None:
        state = self._state
        if not commit_log.pool or self._state.stopping:
            return
        answer = self._asking.pool_ready(commit_log)
        if answer.at is None:
            return
        if answer.at <= state.now:
            state.effects.append(CancelTimer(commit_log.timer))
            self._commits.decide(commit_log, commit_log.pool.drain(), answer.reason)
        else:
            state.effects.append(SetTimer(commit_log.timer, answer.at))

    def _ask_start(self, member: Member) -> None:
        state = self._state
        answer = self._asking.may_start(member, state.oldest)
        if answer.at is None:
            return
        if answer.at > state.now:
            state.effects.append(SetTimer(f"start:{member.name}", answer.at))
        elif not self._state.stopping:
            self._release(member)

    def _release(self, member: Member) -> None:
        state = self._state
        version = self._asking.wanted(member, state.oldest)
        state.roster.release(member, version)
        assignment = state.batch_scheduler.deal(member.slot, member.sequence) if state.batch_scheduler else None
        release = Release(state.term, member.sequence, version, assignment)
        self._pulls.send(member, release)
        state.log(
            "start",
            slot=member.slot,
            sequence=member.sequence,
            version=version,
            clock=member.clock,
            min_clock=state.roster.minimum_clock,
        )


def _waits_in(commit_logs: list[CommitLog], member: Member) -> bool:
    return any(commit_log.pool.holds(member.slot, member.sequence) for commit_log in commit_logs)
