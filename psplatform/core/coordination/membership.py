"""Who joins and leaves."""

from __future__ import annotations

from psplatform.core.coordination.admission import Admission
from psplatform.core.coordination.ending import Ending
from psplatform.core.coordination.state import State
from psplatform.core.effects import CancelTimer, Dismiss, Role, Send, SetTimer
from psplatform.core.messages import Join, Stop, Welcome
from psplatform.core.policy import Change
from psplatform.core.roster import Member


class Membership:
    """Gives slots to joiners and takes them from the lost."""

    def __init__(self, state: State, admission: Admission, ending: Ending) -> None:
        self._state = state
        self._admission = admission
        self._ending = ending

    def on_join(self, join: Join) -> None:
        """Welcome a process into a slot; a repeated request gets the same answer."""
        state = self._state
        member = state.roster.get(join.member)
        if member is None:
            if self._ending.begun or state.roster.full:
                reason = "the run is ending" if self._ending.begun else "every slot is taken"
                state.emit(Send(Role.member(join.member), Stop(state.term, reason)))
                return
            member = self._enter(join)
        state.emit(Send(Role.member(join.member), Welcome(state.term, member.slot, member.incarnation)))

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
        state.to_examine.append(member)
        state.changes.add(Change.ROSTER)
        return member

    def _start_time(self) -> None:
        state, seconds = self._state, self._state.plan.stop.seconds
        state.started_at = state.round_started_at = state.now
        if seconds is not None:
            state.emit(SetTimer("seconds", state.now + seconds))

    def remove(self, name: str, reason: str) -> None:
        """Take a member out; what it announced before stays valid, what it was computing does not."""
        state = self._state
        member = state.roster.get(name)
        if member is None:
            return
        if member.busy:
            state.give_back(member.slot, member.sequence)
        state.roster.leave(member)
        # A worker that goes because the run ends is no incident.
        kind = "left" if self._ending.begun else "lost"
        state.log(kind, slot=member.slot, incarnation=member.incarnation, process=member.process, reason=reason)
        state.emit(Dismiss(name, reason), CancelTimer(f"start:{name}"))
        state.changes |= {Change.ROSTER, Change.MINIMUM_CLOCK}
        if not state.live and not self._ending.begun:
            state.emit(SetTimer("absence", state.now + state.plan.absence_limit_s))
        self._admission.stop_if_diverged()
