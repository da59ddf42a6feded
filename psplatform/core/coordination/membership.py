"""Who joins and leaves."""

from __future__ import annotations

from psplatform.core import reasons
from psplatform.core.coordination.admission import Admission
from psplatform.core.coordination.deaths import Deaths
from psplatform.core.coordination.ending import Ending
from psplatform.core.coordination.state import State
from psplatform.core.effects import CancelTimer, Dismiss, Role, Send, SetTimer
from psplatform.core.messages import JOIN_AGAIN, Join, Moved, Stop, Welcome
from psplatform.core.policy import Change
from psplatform.core.reasons import Reason
from psplatform.core.roster import Member


class Membership:
    """Gives slots to joiners and takes them from the lost."""

    def __init__(self, state: State, admission: Admission, ending: Ending, deaths: Deaths) -> None:
        self._state = state
        self._admission = admission
        self._ending = ending
        self._deaths = deaths
        self._gone: set[str] = set()

    def on_join(self, join: Join) -> None:
        """Welcome a process into a slot; a repeated request gets the same answer."""
        state = self._state
        member = state.roster.get(join.member)
        if member is None:
            refusal = self._refusal(join)
            if refusal is not None:
                state.emit(Send(Role.member(join.member), Stop(state.term, refusal)))
                return
            member = self._enter(join)
        to = Role.member(join.member)
        state.emit(Send(to, Welcome(state.term, member.slot, member.incarnation)))
        for one in state.shards:
            if one.epoch > 1 and not one.promoting:
                state.emit(Send(to, Moved(state.term, one.shard, one.epoch, one.server)))

    def _refusal(self, join: Join) -> str | None:
        if self._ending.begun:
            return "the run is ending"
        if join.member in self._gone:
            return JOIN_AGAIN
        return "every slot is taken" if self._state.roster.full else None

    def _enter(self, join: Join) -> Member:
        state = self._state
        if not state.live:
            state.emit(CancelTimer("absence"))
        if state.started_at is None:
            self._start_time()
        member = state.roster.join(join.member, join.process)
        state.log(
            "joined", slot=member.slot, incarnation=member.incarnation, process=member.process, clock=member.clock
        )
        self._deaths.note_joined(member)
        state.to_examine.append(member)
        state.changes.add(Change.ROSTER)
        return member

    def _start_time(self) -> None:
        state, seconds = self._state, self._state.plan.stop.seconds
        state.started_at = state.now
        for lane in state.lanes:
            lane.round_started_at = state.now
        if seconds is not None:
            state.emit(SetTimer("seconds", state.now + max(0.0, seconds - state.seconds_before)))

    def remove(self, name: str, reason: str) -> None:
        """Take a member out; what it announced before stays valid, what it was computing does not."""
        state = self._state
        # Its request to join may be repeated, or still be on its way: nobody would answer to its slot.
        self._gone.add(name)
        member = state.roster.get(name)
        if member is None:
            return
        # A worker that goes because the run ends is no incident, nor is the gradient it gave up.
        kind = "left" if self._ending.begun else "lost"
        self._deaths.note_lost(member)
        if member.busy:
            self._miss(member, Reason(reasons.LOST, f"its worker was lost while computing it: {reason}"))
        for lane in state.lanes:
            lane.unfit.pop(name, None)
            for gradient in lane.give_up_held(name):
                # Whoever takes the slot begins at the oldest block: its gradients would overtake this one.
                state.drop(lane, gradient, Reason(reasons.LOST, f"its worker was lost before its turn: {reason}"))
        state.roster.leave(member)
        state.log(kind, slot=member.slot, incarnation=member.incarnation, process=member.process, reason=reason)
        state.emit(Dismiss(name, reason), CancelTimer(f"start:{name}"))
        state.changes |= {Change.ROSTER, Change.MINIMUM_CLOCK}
        if not state.live and not self._ending.begun:
            state.limit("absence", state.plan.absence_limit_s)
        self._admission.note_removed(member.slot)

    def _miss(self, member: Member, lost: Reason) -> None:
        state = self._state
        missing = [lane for lane in state.lanes if lane.block not in member.announced]
        if state.fates.miss(member.slot, member.sequence, len(missing)):
            state.give_back(member.slot, member.sequence)
        if self._ending.begun:
            return
        # What some blocks got before is decided there; only the others have lost it.
        for lane in missing if member.announced else [None]:
            state.log_drop(member.slot, member.sequence, member.version, lost, lane)
