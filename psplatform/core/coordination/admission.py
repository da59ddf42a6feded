"""What becomes of an announced gradient."""

from __future__ import annotations

import math

from psplatform.core import reasons
from psplatform.core.coordination.commits import Commits
from psplatform.core.coordination.ending import Ending
from psplatform.core.coordination.state import State
from psplatform.core.effects import Role, Send
from psplatform.core.messages import Aborted, Announce, Stop
from psplatform.core.policy import Fate, Gradient
from psplatform.core.reasons import Reason
from psplatform.core.roster import Member
from psplatform.errors import DivergedError


class Admission:
    """Recognises repeats and latecomers, refuses what is not finite, and asks the policy about the rest."""

    def __init__(self, state: State, commits: Commits, ending: Ending) -> None:
        self._state = state
        self._commits = commits
        self._ending = ending

    def on_announce(self, message: Announce) -> None:
        """Judge a gradient, once."""
        state = self._state
        member = state.roster.get(message.member)
        if member is None:
            state.emit(Send(Role.member(message.member), Stop(state.term, "declared lost; join again")))
        elif message.sequence in member.interrupted:
            member.interrupted.remove(message.sequence)
            reason = Reason(reasons.ABORTED, "was ready when it was told to abort")
            state.log_drop(member.slot, message.sequence, message.label.version, reason)
        elif member.busy and message.sequence == member.sequence:
            state.roster.rest(member)
            # Its pull may have been answered after the next commit: it has worked on that version then.
            member.version = max(member.version, message.label.version)
            state.to_examine.append(member)
            self._judge(self._enter(member, message))

    def on_aborted(self, message: Aborted) -> None:
        """Note that an interrupted computation really stopped, and how long that took."""
        member = self._state.roster.get(message.member)
        if member is not None and message.sequence in member.interrupted:
            member.interrupted.remove(message.sequence)
            self._state.log("aborted", slot=member.slot, sequence=message.sequence, latency_s=message.latency_s)

    def _enter(self, member: Member, message: Announce) -> Gradient:
        norm = math.sqrt(message.squared_norm) if message.squared_norm >= 0 else message.squared_norm
        self._state.log(
            "gradient",
            slot=member.slot,
            sequence=message.sequence,
            label=message.label.version,
            loss=message.loss,
            norm=norm,
            compute_s=message.compute_s,
            pull_s=message.pull_s,
            push_s=message.push_s,
            wait_s=message.wait_s,
        )
        return Gradient(
            member=member.name,
            slot=member.slot,
            sequence=message.sequence,
            label=message.label,
            samples=message.samples,
            loss=message.loss,
            squared_norm=message.squared_norm,
            compute_s=message.compute_s,
            arrived_at=self._state.now,
        )

    def _judge(self, gradient: Gradient) -> None:
        state = self._state
        if self._ending.begun:
            state.drop(gradient, Reason(reasons.STOPPED, "arrived after the last commit"))
            return
        finite = math.isfinite(gradient.squared_norm) and math.isfinite(gradient.loss)
        self._commits.non_finite.pop(gradient.slot, None)
        verdict = state.policy.admit(gradient, state)
        if verdict.fate is Fate.DROP:
            state.drop(gradient, verdict.reason or Reason("policy", "no reason given"))
        elif not finite:
            self._refuse(gradient)
        elif verdict.fate is Fate.POOL:
            state.pool.add(gradient)
        else:
            self._commits.decide((gradient,), "applied at once")

    def _refuse(self, gradient: Gradient) -> None:
        detail = f"loss {gradient.loss:g}, squared norm {gradient.squared_norm:g}"
        self._state.drop(gradient, Reason(reasons.NON_FINITE, detail))
        self._commits.non_finite[gradient.slot] = gradient
        self._stop_if_diverged()

    def note_removed(self, slot: int) -> None:
        """Forget what the process that left `slot` computed last; those who remain may all have diverged."""
        self._commits.non_finite.pop(slot, None)
        self._stop_if_diverged()

    def _stop_if_diverged(self) -> None:
        state, non_finite = self._state, self._commits.non_finite
        if not non_finite or state.pool:
            return
        if any(member.slot not in non_finite for member in state.roster.members()):
            return
        last = next(reversed(non_finite.values()))
        self._ending.fail(
            DivergedError(
                f"a whole round of gradients was not finite: worker {last.slot} at version {last.label.version} had "
                f"loss {last.loss:g}; lower the learning rate or clip the gradient norm",
                slot=last.slot,
                version=last.label.version,
                loss=last.loss,
            )
        )
