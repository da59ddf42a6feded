"""What becomes of a shard when one of its copies is lost: a replica is promoted, or replaced by a new one.

Rules: only a replica in sync is promoted; a server is told to wait for a replica no longer only when that one is out of
the set of those in sync.  A promotion begins a new epoch and never turns versions back: what the lost server had shown
and the replica does not have is *lost*, the shard goes on with the next version.  What was decided and had not been
shown is sent again; a gradient that is gone by then makes its position lost as well (`failovers`).
"""

from __future__ import annotations

from collections.abc import Sequence

from psplatform.core.coordination.ending import Ending
from psplatform.core.coordination.shards.checkpoints import Checkpoints
from psplatform.core.coordination.shards.failovers import Failovers
from psplatform.core.coordination.shards.recruits import Recruits
from psplatform.core.coordination.shards.state import ShardState
from psplatform.core.coordination.state import State
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Redirect, Retire, Send
from psplatform.core.protocol.events import CopyAwake, CopyLost, CopyMisplaced, CopyReady
from psplatform.core.protocol.names import Role
from psplatform.errors import ClusterError


class Copies:
    """Promotes replicas, and sees that there are as many as the plan asks for."""

    def __init__(
        self, state: State, recruits: Recruits, failovers: Failovers, ending: Ending, checkpoints: Checkpoints
    ) -> None:
        self._state = state
        self._checkpoints = checkpoints
        self._recruits = recruits
        self._failovers = failovers
        self._ending = ending
        self._gone: set[str] = set()
        self._unprotected: tuple[int, ...] = ()
        self._outstepped = False

    def begin(self) -> None:
        """Take the copies that the run begins with."""
        for one in self._state.shards:
            for copy in one.in_sync:
                self._log(one, copy, "in sync", "was made at the start")
        self._note_protection()

    # --- losing ---

    def on_lost(self, event: CopyLost) -> None:
        """Promote a replica of a lost server; replace a lost replica."""
        if event.copy in self._gone:
            return
        for one in self._state.shards:
            if event.copy not in one.copies:
                continue
            self._gone.add(event.copy)
            self._checkpoints.on_copy_lost(one.shard)
            if event.copy == one.server:
                self._lose_server(one, event)
            else:
                self._lose_replica(one, event)

    def _lose_server(self, one: ShardState, event: CopyLost) -> None:
        state = self._state
        self._log(one, event.copy, "lost", event.reason)
        state.effects.append(Retire(event.copy, event.reason))
        if not one.in_sync:
            self._ending.give_up(_no_replica(one, event))
            return
        if not one.promoting:
            one.lost_at, one.reason, one.silence_s = state.now, event.reason, event.silence_s
            one.lost_process = state.processes.get(event.copy, event.peer)
        one.server = one.in_sync.pop(0)
        one.epoch += 1
        one.retiring = False
        one.excluded.clear()
        # If nobody else is left that was in sync, a run that pauses waits for a replica in the place of the old server.
        one.replaced = [event.copy] if self._pauses else []
        one.promoting, one.asleep = True, self._cold
        # The others may still be promoted in its place: it shows nothing before they stand where it does.
        self.promote(one)
        self._note_protection()

    def promote(self, one: ShardState) -> None:
        """Order the copy that is to serve the shard to do so."""
        state = self._state
        missing = one.replaced[0] if one.replaced else ""
        position = state.commit_log_of(one.shard).position
        order = msg.Promote(state.term, one.epoch, position, missing, tuple(one.in_sync), state.settled)
        state.effects.append(Send(Role.copy(one.server), order))

    def _lose_replica(self, one: ShardState, event: CopyLost) -> None:
        state = self._state
        self._log(one, event.copy, "lost", event.reason)
        state.effects.append(Retire(event.copy, event.reason))
        was_in_sync = event.copy in one.in_sync
        for group in (one.in_sync, one.joining):
            if event.copy in group:
                group.remove(event.copy)
        if was_in_sync and self._pauses and not one.in_sync and not one.promoting:
            # It was the last.  Its server goes on waiting for it, until another has taken its place.
            one.replaced.append(event.copy)
        elif was_in_sync or not one.promoting:  # else its server has not been told of it yet
            self._exclude(one, event.copy)
            if one.promoting:
                self.promote(one)  # without waiting for this one
        self._note_protection()
        self._recruits.fill(one)

    @property
    def _cold(self) -> bool:
        protection = self._state.plan.protection
        return protection is not None and protection.cold

    @property
    def _pauses(self) -> bool:
        protection = self._state.plan.protection
        return protection is not None and protection.pause

    def _exclude(self, one: ShardState, copy: str) -> None:
        if copy not in one.excluded:
            one.excluded.append(copy)
        if not one.promoting:
            self._state.effects.append(Send(Role.copy(one.server), msg.Exclude(self._state.term, one.epoch, copy)))

    # --- going in good order ---

    def on_retiring(self, message: msg.Retiring) -> None:
        """Let a replica take over from a server whose process ends, without losing anything."""
        for one in self._state.shards:
            if message.copy == one.server:
                one.retiring = True
                self._hand_over(one)
                self._recruits.fill(one)
            elif message.copy in one.copies:
                self.on_lost(CopyLost(message.copy, message.copy, "retired"))

    def _hand_over(self, one: ShardState) -> None:
        if one.retiring and one.in_sync and not one.promoting:
            self._state.effects.append(Send(Role.copy(one.server), msg.HandOver(self._state.term, one.epoch)))

    def on_handed_over(self, message: msg.HandedOver) -> None:
        """Promote the replica that has everything."""
        one = self._state.shards[message.shard]
        if message.epoch != one.epoch or message.replica not in (*one.in_sync, *one.joining):
            return
        if message.replica in one.joining:  # this has overtaken the message that it is in sync
            one.joining.remove(message.replica)
            self._log(one, message.replica, "in sync", "has everything that its server had")
        else:
            one.in_sync.remove(message.replica)
        one.in_sync.insert(0, message.replica)
        self.on_lost(CopyLost(one.server, one.server, "retired"))

    # --- gaining ---

    def on_ready(self, event: CopyReady) -> None:
        """Have a new copy brought in sync."""
        one = self._state.shards[event.shard]
        if event.copy in self._gone or event.copy in one.copies:
            return
        self._recruits.note_ready(event.shard)
        one.joining.append(event.copy)
        if not self._cold:  # what is in the store will be a process when it is promoted
            self._state.processes[event.copy] = event.process
        self._state.log(
            "copy", shard=event.shard, copy=event.copy, process=event.process, event="ready", reason="a new replica"
        )
        if not one.promoting:
            self._include(one, event.copy)

    def on_awake(self, event: CopyAwake) -> None:
        """Order a copy that was in the store to serve, now that it can be told."""
        one = self._state.shards[event.shard]
        if event.copy != one.server:
            return
        one.asleep = False
        self._state.processes[event.copy] = event.process
        self._log(one, event.copy, "ready", "was made of what the store keeps")
        if one.promoting:
            self.promote(one)

    def _include(self, one: ShardState, copy: str) -> None:
        self._state.effects.append(Send(Role.copy(one.server), msg.Include(self._state.term, one.epoch, copy)))

    def on_in_sync(self, message: msg.InSync) -> None:
        """Count a replica among those that may be promoted."""
        one = self._state.shards[message.shard]
        if message.epoch != one.epoch or message.replica not in one.joining:
            return
        one.joining.remove(message.replica)
        one.in_sync.append(message.replica)
        self._log(one, message.replica, "in sync", f"has caught up at position {message.position}")
        self._end_replacing(one)
        self._end_move(one)
        self._note_protection()
        self._hand_over(one)

    def _end_replacing(self, one: ShardState) -> None:
        """Let the server wait no longer for copies in whose place another is in sync."""
        for copy in one.replaced:
            self._exclude(one, copy)
        one.replaced.clear()

    # --- moving ---

    def on_misplaced(self, event: CopyMisplaced) -> None:
        """Have another replica made in the place of one that would be better elsewhere; of more than enough, let it go.

        It stays until the other is in sync: the shard is not less protected meanwhile.
        """
        protection = self._state.plan.protection
        for one in self._state.shards:
            if protection is None or event.copy not in one.in_sync or one.promoting:
                continue
            if len(one.in_sync) > protection.replicas:
                self._let_go(one, event)
            else:
                self._recruits.replace(one, event)

    def _let_go(self, one: ShardState, event: CopyMisplaced) -> None:
        if self._state.stopping or self._checkpoints.awaits(one.shard):
            return  # it may be needed; if there are more than enough, that is reported again
        one.in_sync.remove(event.copy)
        self._gone.add(event.copy)
        self._log(one, event.copy, "moved", event.reason)
        self._exclude(one, event.copy)
        self._state.effects.append(Retire(event.copy, event.reason))

    def _end_move(self, one: ShardState) -> None:
        """Let go of the replica in whose place another is in sync now."""
        event, protection = self._recruits.take_replaced(one.shard), self._state.plan.protection
        if event is None or protection is None or event.copy not in one.in_sync:
            return
        if len(one.in_sync) > protection.replicas:
            self._let_go(one, event)

    def disown(self, one: ShardState, replicas: Sequence[str]) -> None:
        """Let a server wait for none of `replicas`, which it has, that only a coordinator knew of which is gone."""
        for copy in replicas:
            if copy not in one.copies and copy not in one.replaced:
                self._exclude(one, copy)

    def repeat(self, one: ShardState) -> None:
        """Say again which replicas the server waits for: who said so before may not have been heard."""
        for copy in one.excluded:
            self._exclude(one, copy)
        for copy in one.joining:
            self._include(one, copy)
        self._redirect(one)
        self._recruits.fill(one)

    # --- promotion ---

    def on_promoted(self, message: msg.Promoted) -> None:
        """Let the shard go on under its new server."""
        state = self._state
        one = state.shards[message.shard]
        if message.epoch != one.epoch or message.copy != one.server or not one.promoting:
            return
        if one.in_sync:  # level with it, or it would not serve
            self._end_replacing(one)
        one.promoting = one.asleep = False
        self._failovers.resume(one, message)
        self._note_protection()
        self.repeat(one)  # an order without a lost successor may have come too late
        self._ending.advance()

    def _redirect(self, one: ShardState) -> None:
        state = self._state
        state.effects.append(Redirect(one.shard, one.epoch, one.server))
        for member in state.roster.members():
            state.effects.append(Send(Role.member(member.name), self.moved(one)))

    def moved(self, one: ShardState) -> msg.Moved:
        """Return what says where the shard's server is."""
        return msg.Moved(self._state.term, one.shard, one.epoch, one.server)

    def note_applied(self, message: msg.Applied) -> None:
        """Keep what a server says of a position that it shows."""
        state = self._state
        one = state.shards[message.shard]
        if message.epoch != one.epoch:
            return
        one.note(message)
        self._note_step(one, message)
        if one.resuming and message.position > one.passed:
            self._failovers.note_resumed(one)

    def _note_step(self, one: ShardState, message: msg.Applied) -> None:
        """Say once that a single step is longer than the bound: every such step waits for its replica, as in a chain.

        The bound holds all the same, so its user would not notice, and pay for it at every update.
        """
        protection = self._state.plan.protection
        if self._outstepped or protection is None or protection.unit != "norm" or not one.in_sync:
            return
        if message.step > protection.shard_bound:
            self._outstepped = True
            figures = {"step": message.step, "bound": protection.shard_bound}
            self._state.log("beyond bound", shard=one.shard, version=message.version, **figures)

    # --- small things ---

    def _note_protection(self) -> None:
        state = self._state
        if state.plan.protection is None:
            return
        unprotected = tuple(one.shard for one in state.shards if not one.in_sync)
        if unprotected != self._unprotected:
            self._unprotected = unprotected
            state.log("protection", shards=list(unprotected))

    def _log(self, one: ShardState, copy: str, event: str, reason: str) -> None:
        process = self._state.processes.get(copy, copy)
        self._state.log("copy", shard=one.shard, copy=copy, process=process, event=event, reason=reason)


def _no_replica(one: ShardState, event: CopyLost) -> ClusterError:
    return ClusterError(
        f"the server of shard {one.shard} at {event.peer} is lost ({event.reason}) and has no replica in sync; "
        "recover the run from its store, or start the job again on the remaining workers",
        peer=event.peer,
    )
