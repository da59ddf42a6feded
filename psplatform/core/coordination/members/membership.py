"""Who joins and leaves."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import Final

from psplatform.core import reasons
from psplatform.core.coordination.ending import Ending
from psplatform.core.coordination.members.roster import Member
from psplatform.core.coordination.order.divergence import Divergence
from psplatform.core.coordination.state import State
from psplatform.core.policy import Change
from psplatform.core.protocol.effects import CancelTimer, Dismiss, Forget, Send, SetTimer
from psplatform.core.protocol.events import EvaluatorDied, MemberDied
from psplatform.core.protocol.messages import ENDING, JOIN_AGAIN, SLOTS_TAKEN, Join, Moved, Stop, Welcome
from psplatform.core.protocol.names import Role
from psplatform.core.reasons import Reason
from psplatform.errors import ProcessDied

MOST_DEATHS: Final = 3
"""A machine that loses power, or an administrator, seldom ends three processes that are doing the same work."""


@dataclass(frozen=True, slots=True)
class _Loss:
    """What a worker was doing when it was lost.

    Attributes
    ----------
    batch
        Epoch and number of the batch that it computed; ``None`` where batches are not dealt.
    first
        Whether that was its first gradient.
    """

    slot: int
    batch: tuple[int, int] | None
    first: bool


class Deaths:
    """Counts the processes that died doing the same work."""

    def __init__(self, state: State, ending: Ending) -> None:
        self._state = state
        self._ending = ending
        self._began: dict[str, int] = {}
        self._losses: dict[str, _Loss | None] = {}
        self._with_batch: Counter[tuple[int, int]] = Counter()
        self._in_slot: Counter[int] = Counter()
        self._unopened = 0

    def note_joined(self, member: Member) -> None:
        """Count a process as having opened the task."""
        self._began[member.name] = member.sequence
        self._unopened = 0

    def note_lost(self, member: Member) -> None:
        """Keep what a member was doing, before the roster drops it.

        If its process died, `on_member_died` follows once that is known.
        """
        began = self._began.pop(member.name, member.sequence)
        if not member.busy:
            self._losses[member.name] = None
            return
        assignment = (
            self._state.batch_scheduler.assignment(member.slot, member.sequence)
            if self._state.batch_scheduler is not None
            else None
        )
        batch = (assignment.epoch, assignment.number) if assignment is not None else None
        self._losses[member.name] = _Loss(member.slot, batch, first=member.sequence <= began + 1)

    def on_member_died(self, event: MemberDied) -> None:
        """Count a worker's process among those that died doing the same work, and end the run if there are too many."""
        if event.member not in self._losses:
            self._unopened += 1
            self._end_after(self._unopened, "while they opened the task", event.error)
            return
        loss = self._losses.pop(event.member)
        if loss is None:  # the user's code was not running
            return
        self._in_slot[loss.slot] = self._in_slot[loss.slot] + 1 if loss.first else 1
        if loss.batch is not None:
            self._with_batch[loss.batch] += 1
            self._end_after(self._with_batch[loss.batch], "while they computed the same batch", event.error)
        self._end_after(self._in_slot[loss.slot], f"at a gradient of worker {loss.slot}, none came back", event.error)

    def on_evaluator_died(self, event: EvaluatorDied) -> None:
        """Count an evaluator that died at work, and end the run without another try if there are too many."""
        if event.opened and not self._ending.lost_at_work:  # the user's code was not running
            return
        self._ending.evaluators_died += 1
        if self._ending.evaluators_died >= MOST_DEATHS:
            error = _after(self._ending.evaluators_died, "while they evaluated the model", event.error)
            self._ending.on_evaluation_failed(error)

    def _end_after(self, count: int, when: str, last: ProcessDied) -> None:
        if count >= MOST_DEATHS and not self._state.stopping:
            self._ending.fail(_after(count, when, last))


def _after(count: int, when: str, last: ProcessDied) -> ProcessDied:
    text = f"{count} processes have died one after the other {when}: {last.args[0]}"
    return ProcessDied(text, kind=last.kind, peer=last.peer, pid=last.pid, code=last.code)


_TOLD_AGAIN: Final = 64
"""Members removed last: copies have done what was to be done about those before."""


class Membership:
    """Gives slots to joiners and takes them from the lost."""

    def __init__(self, state: State, divergence: Divergence, deaths: Deaths) -> None:
        self._state = state
        self._divergence = divergence
        self._deaths = deaths
        self._gone: set[str] = set()
        self._unforgotten: list[str] = []
        self._removed: deque[str] = deque(maxlen=_TOLD_AGAIN)

    def on_join(self, join: Join) -> None:
        """Welcome a process into a slot; a repeated request gets the same answer."""
        state = self._state
        member = state.roster.by_name.get(join.member)
        if member is None:
            refusal = self._refusal(join)
            if refusal is not None:
                state.effects.append(Send(Role.member(join.member), Stop(state.term, refusal)))
                return
            member = self._enter(join)
        to = Role.member(join.member)
        state.effects.append(Send(to, Welcome(state.term, member.slot, member.incarnation)))
        for one in state.shards:
            if one.epoch > 1 and not one.promoting:
                state.effects.append(Send(to, Moved(state.term, one.shard, one.epoch, one.server)))

    def _refusal(self, join: Join) -> str | None:
        if self._state.stopping:
            return ENDING
        if join.member in self._gone:
            return JOIN_AGAIN
        return SLOTS_TAKEN if self._state.roster.full else None

    def _enter(self, join: Join) -> Member:
        state = self._state
        if not state.live:
            state.effects.append(CancelTimer("absence"))
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
        for commit_log in state.commit_logs:
            commit_log.round_started_at = state.now
        if seconds is not None:
            state.effects.append(SetTimer("seconds", state.now + max(0.0, seconds - state.seconds_before)))

    def remove(self, name: str, reason: str) -> None:
        """Take a member out; what it announced before stays valid, what it was computing does not."""
        state = self._state
        # Its request to join may be repeated, or still be on its way: nobody would answer to its slot.
        self._gone.add(name)
        member = state.roster.by_name.get(name)
        if member is None:
            return
        # A worker that goes because the run ends is no incident, nor is the gradient it gave up.
        kind = "left" if self._state.stopping else "lost"
        self._deaths.note_lost(member)
        if member.busy:
            self._miss(member, Reason(reasons.LOST, f"its worker was lost while computing it: {reason}"))
        for commit_log in state.commit_logs:
            commit_log.unfit.pop(name, None)
            for gradient in commit_log.give_up_held(name):
                # The next member in the slot begins at the oldest block: its gradients would overtake this one.
                state.drop(commit_log, gradient, Reason(reasons.LOST, f"its worker was lost before its turn: {reason}"))
        state.roster.leave(member)
        state.log(kind, slot=member.slot, incarnation=member.incarnation, process=member.process, reason=reason)
        state.effects += [Dismiss(name, reason), CancelTimer(f"start:{name}")]
        self._removed.append(name)
        if name in state.undecided_names():
            self._unforgotten.append(name)
        state.changes |= {Change.ROSTER, Change.MINIMUM_CLOCK}
        if not state.live and not self._state.stopping:
            state.limit("absence", state.plan.absence_limit_s)
        self._divergence.note_removed(member.slot)

    def forget_removed(self) -> None:
        """Let copies drop what members exposed that are out, and of which something waited to be decided until now."""
        if not self._unforgotten:
            return
        waiting = self._state.undecided_names()
        for name in [one for one in self._unforgotten if one not in waiting]:
            self._unforgotten.remove(name)
            self._state.effects.append(Forget(name))

    def forget_again(self) -> None:
        """Let copies drop, after a takeover, what they were to drop before: they heed the newest coordinator alone."""
        self._unforgotten = list(self._removed)

    def _miss(self, member: Member, lost: Reason) -> None:
        state = self._state
        missing = [commit_log for commit_log in state.commit_logs if commit_log.block not in member.announced]
        if state.block_outcomes.miss(member.slot, member.sequence, len(missing)):
            state.give_back(member.slot, member.sequence)
        if self._state.stopping:
            return
        # What some blocks got before is decided there; only the others have lost it.
        for commit_log in missing if member.announced else [None]:
            state.log_drop(member.slot, member.sequence, member.version, lost, commit_log)
