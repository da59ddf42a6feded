"""Failovers: a shard goes on under another server, without the positions that were lost on the way.

A position is lost with the server that had shown it, where the replica promoted in its place lacks it, or because a
gradient of it cannot be reached any more.  The shard passes over it.
"""

from __future__ import annotations

from psplatform.core import reasons
from psplatform.core.coordination.order.admission import Admission
from psplatform.core.coordination.order.commits import Commits
from psplatform.core.coordination.shards.state import ShardState
from psplatform.core.coordination.state import State
from psplatform.core.policy import Change
from psplatform.core.protocol import messages as msg
from psplatform.core.reasons import Reason


class Failovers:
    """Says what a shard lost with its server, and takes that out of the pools and of what members have worked on."""

    def __init__(self, state: State, admission: Admission, commits: Commits) -> None:
        self._state = state
        self._admission = admission
        self._commits = commits

    def resume(self, one: ShardState, message: msg.Promoted) -> None:
        """Have the shard go on from where its promoted server stands; what only the one before had shown is lost."""
        last = self._commits.send_again(one, message.position)
        one.resuming, one.passed = True, max(last, message.position)
        self._log(one, message, last)
        one.lost = [earlier for earlier in one.lost if earlier[-1] > message.position]  # it stands beyond the others
        if last > message.position:
            self._lose(one, message.position + 1, last, message.version)
        else:
            one.known.append((one.epoch, self._state.commit_log_of(one.shard).version))

    def on_unreachable(self, message: msg.Unreachable) -> None:
        """Give up a position on one shard, because a gradient of it is gone."""
        state = self._state
        one = state.shards[message.shard]
        if message.epoch != one.epoch or message.position <= one.visible:
            return  # it was given up since, and the server has gone on
        self._commits.give_up(one, message.position)
        if message.position <= one.passed:
            return  # a repeat: the members that had to begin anew have
        one.passed = message.position
        kept = self._commits.version_before(state.commit_log_of(one.shard), message.position)
        self._lose(one, message.position, message.position, kept)

    def note_resumed(self, one: ShardState) -> None:
        """Log the first commit that the promoted server shows: with it, the failover is over."""
        one.resuming = False
        self._state.log(
            "resumed",
            role="server",
            shard=one.shard,
            epoch=one.epoch,
            first_commit_seconds=self._state.now - one.lost_at,
        )

    def _lose(self, one: ShardState, first: int, last: int, kept: int) -> None:
        state = self._state
        state.log("lost positions", shard=one.shard, epoch=one.epoch, first=first, last=last)
        one.lost.append(range(first, last + 1))
        # A member released since the first loss of this epoch gets what its server shows: nothing that is lost.
        recalled = any(since == one.epoch for since, _ in one.losses)
        one.losses.append((one.epoch, kept))
        commit_log = state.commit_log_of(one.shard)
        for gradient in self._admission.take_back(commit_log):
            detail = f"computed on a version that was lost with the server of shard {one.shard}"
            state.drop(commit_log, gradient, Reason(reasons.LOST_VERSION, detail))
        for member in state.roster.members():
            # What it computed on what is left counts: it waits for a commit.
            if not commit_log.pool.holds_any_of(member.slot):
                member.version = min(member.version, kept)
        state.changes |= {Change.COMMIT, Change.ROSTER}
        if state.traits.interrupt:
            self._commits.interrupt_busy()
        elif state.traits.exact and not recalled:
            self._commits.interrupt_busy(beyond=kept)  # what they compute there would be dropped

    def _log(self, one: ShardState, message: msg.Promoted, last: int) -> None:
        state, protection = self._state, self._state.plan.protection
        lost = one.newly_lost(range(message.position + 1, last + 1))
        bound = protection.shard_bound if protection is not None else None
        state.log(
            "promoted",
            role="server",
            shard=one.shard,
            epoch=one.epoch,
            copy=one.server,
            position=message.position,
            process=one.lost_process,
            signal=one.reason,
            detected_seconds=one.silence_s,
            promoted_seconds=state.now - one.lost_at,
            distance_lost=one.way(lost),
            updates_lost=state.commit_log_of(one.shard).updates_at(lost),
            bound=bound,
            unit=protection.unit if protection is not None else None,
        )
