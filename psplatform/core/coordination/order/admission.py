"""What becomes of a gradient that is announced, or given up before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from psplatform.core import reasons
from psplatform.core.coordination.ending import Ending
from psplatform.core.coordination.members.roster import Member
from psplatform.core.coordination.order.asking import Asking
from psplatform.core.coordination.order.commit_logs import CommitLog
from psplatform.core.coordination.order.commits import Commits
from psplatform.core.coordination.order.divergence import Divergence, bad_batch
from psplatform.core.coordination.shards.state import rebased
from psplatform.core.coordination.state import State
from psplatform.core.policy import Fate, Gradient, Verdict, drop
from psplatform.core.protocol.effects import Send
from psplatform.core.protocol.messages import JOIN_AGAIN, Aborted, Announce, Bundle, Stop
from psplatform.core.protocol.names import Role
from psplatform.core.reasons import Reason

_NO_REASON: Final = Reason("policy", "no reason given")


class Admission:
    """Recognises repeats and latecomers, refuses what is not finite, and asks the policy about the rest."""

    def __init__(self, state: State, asking: Asking, commits: Commits, divergence: Divergence, ending: Ending) -> None:
        self._state = state
        self._asking = asking
        self._commits = commits
        self._divergence = divergence
        self._ending = ending

    def on_announce(self, message: Announce) -> None:
        """Judge a gradient, or blocks of it, once."""
        state = self._state
        member = state.roster.by_name.get(message.member)
        if member is None:
            state.effects.append(Send(Role.member(message.member), Stop(state.term, JOIN_AGAIN)))
        elif message.sequence in member.interrupted:
            member.interrupted.remove(message.sequence)
            reason = Reason(reasons.ABORTED, "was ready when it was told to abort")
            state.log_drop(member.slot, message.sequence, message.label.version, reason)
        else:
            self.catch_up(member, message)
            if member.busy and message.sequence == member.sequence:
                self._take(member, message)

    def catch_up(self, member: Member, message: Announce) -> None:
        """Count a member as released for the gradient that it speaks of, if nobody here has heard of that."""
        if message.sequence > member.sequence:
            # Released by a coordinator that is gone and had no time to tell, perhaps on a version gone with it.
            label = rebased(message.label, self._state.shards)
            self._state.catch_up(member, message.sequence, self._count_of(message, label.version))

    def latest(self, member: Member, message: Announce) -> int | None:
        """Return the last version before a commit at which the policy would still apply it, ``None`` for no limit."""
        return self._asking.latest(self._gradient_of(member, message), self._state.commit_logs[0])

    def give_up(self, member: Member, message: Announce, reason: Reason) -> None:
        """Drop a gradient that was computed and not sent; its worker waits for a release."""
        gradient = self._gradient_of(member, message)
        self._log(gradient, message)
        self._claim(gradient)
        self._rest(member, gradient)
        self._divergence.note_better(gradient.slot)
        self._drop(self._state.commit_logs[0], gradient, reason)

    def _count_of(self, message: Announce, version: int) -> int:
        # Block by block a worker counts for itself: what it was answered may be older or newer than its iteration.
        return message.counter if self._state.per_block and message.counter >= 0 else max(0, version)

    def _take(self, member: Member, message: Announce) -> None:
        state, gradient = self._state, self._gradient_of(member, message)
        news = [shard for shard in message.shards if shard not in member.announced]
        if not member.announced:
            self._log(gradient, message)
            self._claim(gradient)
        member.announced.update(news)
        if not state.per_block or len(member.announced) == state.plan.shards:
            self._rest(member, gradient)
        for commit_log in [state.commit_logs[shard] for shard in news] if state.per_block else state.commit_logs:
            self._judge(gradient, commit_log)

    def _claim(self, gradient: Gradient) -> None:
        batch_scheduler, slot = self._state.batch_scheduler, gradient.slot
        if batch_scheduler is None or gradient.assignment is None:
            return
        applied = any(one.newest.get(slot, 0) >= gradient.sequence for one in self._state.commit_logs)
        if not applied:
            batch_scheduler.claim(slot, gradient.sequence, gradient.assignment)

    def _is_duplicate(self, gradient: Gradient) -> bool:
        # Block by block a worker may have run ahead, and would not compute again what the others wait for.
        batch_scheduler = None if self._state.per_block else self._state.batch_scheduler
        return batch_scheduler is not None and batch_scheduler.is_duplicate(gradient.slot, gradient.sequence)

    def _rest(self, member: Member, gradient: Gradient) -> None:
        state = self._state
        state.roster.rest(member)
        member.version = self._worked_on(member, gradient)
        if self._is_duplicate(gradient):
            # Its round waits for a gradient of it: it may compute one on another batch of the same version.
            member.version = min(member.version, state.version - 1)
        state.to_examine.append(member)

    def _worked_on(self, member: Member, gradient: Gradient) -> int:
        if self._state.per_block:
            return max(member.version, gradient.label.version)
        # Newer than it was released on, where its pull was answered after the next commit; older, where what it pulled
        # was lost: then it has not worked on what it was released on, and may be released on that again.
        return gradient.label.version

    def take_as_decided(self, message: Announce, commit_log: CommitLog) -> Gradient | None:
        """Take a gradient that a lost coordinator has committed there; the policy sees it, and is not obeyed."""
        state = self._state
        member = state.roster.by_name.get(message.member)
        if member is None:
            return None
        if message.sequence > member.sequence and not state.per_block:  # there it may have said other things before
            state.catch_up(member, message.sequence, max(0, message.label.version))
        gradient = self._gradient_of(member, message)
        if state.per_block:
            gradient = replace(gradient, counter=self._count_of(message, member.counter))
        elif member.busy and message.sequence == member.sequence:
            self._log(gradient, message)
            state.roster.rest(member)
            member.version = max(member.version, gradient.label.version)
            state.to_examine.append(member)
        self._asking.admit(gradient, commit_log)
        return gradient

    def on_aborted(self, message: Aborted) -> None:
        """Log that an interrupted computation really stopped, and how long that took."""
        member = self._state.roster.by_name.get(message.member)
        if member is not None and message.sequence in member.interrupted:
            member.interrupted.remove(message.sequence)
            self._state.log("aborted", slot=member.slot, sequence=message.sequence, latency_s=message.latency_s)

    def _log(self, gradient: Gradient, message: Announce) -> None:
        norm = math.sqrt(message.squared_norm) if message.squared_norm >= 0 else message.squared_norm
        self._state.log(
            "gradient",
            slot=gradient.slot,
            sequence=message.sequence,
            label=message.label.version,
            loss=message.loss,
            norm=norm,
            compute_s=message.compute_s,
            pull_s=message.pull_s,
            push_s=message.push_s,
            wait_s=message.wait_s,
            **self._freshness(gradient),
        )

    def _freshness(self, gradient: Gradient) -> dict[str, int]:
        # Where a pull need not be whole: how many blocks are as new as the iteration.
        if not self._state.per_block:
            return {}
        return {"fresh_blocks": sum(version >= gradient.counter for version in gradient.label.versions)}

    def _gradient_of(self, member: Member, message: Announce) -> Gradient:
        return Gradient(
            member=member.name,
            slot=member.slot,
            sequence=message.sequence,
            label=rebased(message.label, self._state.shards),
            counter=member.counter,
            samples=message.samples,
            loss=message.loss,
            squared_norm=message.squared_norm,
            compute_s=message.compute_s,
            arrived_at=self._state.now,
            flaw=message.flaw,
            assignment=message.assignment,
        )

    def reconsider(self, commit_log: CommitLog) -> None:
        """Judge again what was held until the commit log's next version."""
        held, commit_log.held = commit_log.held, []
        for gradient in held:
            self._judge(gradient, commit_log)

    def on_bundle(self, announces: Sequence[Announce], bundle: Bundle) -> set[int]:
        """Judge gradients of which the servers have the sum: all of them are accepted, or none.

        Return the slots of those that must be sent again, because another was dropped, or because fewer updates are
        wanted than the sum has.
        """
        roster, commit_log = self._state.roster.by_name, self._state.commit_logs[0]
        gradients = [
            replace(self._gradient_of(roster[one.member], one), bundle=bundle, ahead=ahead)
            for ahead, one in enumerate(announces)
        ]
        for gradient in gradients:
            self._claim(gradient)
        fates = {self._verdict(one, commit_log).fate for one in gradients}
        if fates == {Fate.POOL} or (fates == {Fate.APPLY} and self._has_room_for(len(gradients))):
            for announce, gradient in zip(announces, gradients, strict=True):
                self._hear(announce, gradient)
                if Fate.POOL in fates:
                    commit_log.pool.add(replace(gradient, ahead=0))
            if Fate.APPLY in fates:
                self._commits.decide(commit_log, tuple(gradients), "summed on the way", updates=len(gradients))
            self._state.stirred.add(commit_log.block)
            return set()
        again = set()
        for announce, summed in zip(announces, gradients, strict=True):
            gradient = replace(summed, bundle=None, ahead=0)  # as it would arrive alone
            verdict = self._verdict(gradient, commit_log)
            if verdict.fate is Fate.DROP:
                self._hear(announce, gradient)
                self._drop(commit_log, gradient, verdict.reason or _NO_REASON)
            else:
                again.add(gradient.slot)
        return again

    def _hear(self, announce: Announce, gradient: Gradient) -> None:
        """Note that a gradient of a sum has come, and that its worker is free."""
        self._log(gradient, announce)
        self._rest(self._state.roster.by_name[gradient.member], gradient)
        self._divergence.note_better(gradient.slot)

    def _verdict(self, gradient: Gradient, commit_log: CommitLog) -> Verdict:
        unasked = self._void(gradient, commit_log)
        return drop(unasked) if unasked is not None else self._asking.admit(gradient, commit_log)

    def _has_room_for(self, updates: int) -> bool:
        """Whether so many updates are wanted: a run stops after exactly as many as it is told."""
        most = self._state.plan.stop.updates
        return most is None or self._state.version + updates <= most

    def _judge(self, gradient: Gradient, commit_log: CommitLog) -> None:
        state = self._state
        unasked = self._void(gradient, commit_log)
        if unasked is not None:
            self._drop(commit_log, gradient, unasked)
            return
        if self._divergence.refusals:  # seldom, and a call at every gradient costs more
            self._divergence.note_better(gradient.slot)
        verdict = self._asking.admit(gradient, commit_log)
        if verdict.fate is Fate.DROP:
            self._drop(commit_log, gradient, verdict.reason or _NO_REASON)
        elif verdict.fate is Fate.HOLD:
            commit_log.held.append(gradient)
        elif not gradient.finite:
            self._refuse(commit_log, gradient)
        elif verdict.fate is Fate.POOL:
            commit_log.pool.add(gradient)
            state.stirred.add(commit_log.block)
        else:
            self._commits.decide(commit_log, (gradient,), "applied at once")

    def _void(self, gradient: Gradient, commit_log: CommitLog) -> Reason | None:
        # What no policy can bring back: the servers would not apply it, or have let go of it.
        if self._state.stopping:
            return Reason(reasons.STOPPED, "arrived after the last commit")
        if self._state.per_block and gradient.counter < commit_log.version:
            return reasons.stale(gradient.counter, commit_log.version)
        if self._state.traits.exact and self._on_lost_version(gradient, commit_log):
            return Reason(reasons.LOST_VERSION, "computed on a version that was lost with its server")
        if gradient.sequence <= commit_log.newest.get(gradient.slot, 0):
            return Reason(reasons.OVERTAKEN, "a later gradient of its slot was applied before it")
        if self._is_duplicate(gradient):
            return Reason(reasons.DUPLICATE, "another worker has computed a gradient on the same batch")
        return None

    def _on_lost_version(self, gradient: Gradient, commit_log: CommitLog) -> bool:
        shards, label = self._state.shards, gradient.label
        outdated = [
            shard
            for shard in commit_log.shards
            if shards[shard].losses and label.epochs[shard] < shards[shard].losses[-1][0]
        ]
        return bool(outdated) and commit_log.label_of(gradient) < commit_log.version

    def take_back(self, commit_log: CommitLog) -> list[Gradient]:
        """Let pooled gradients that were computed on versions that are lost now count as older.

        Those that are of no use then are taken out and returned.
        """
        pool, shards = commit_log.pool, self._state.shards
        rebase = [replace(one, label=rebased(one.label, shards)) for one in pool]
        lost = [one for one in rebase if self._on_lost_version(one, commit_log)] if self._state.traits.exact else []
        # What they were summed with is not to be had without them.
        bundles = {one.bundle for one in lost if one.bundle is not None}
        taken = [one for one in rebase if one in lost or one.bundle in bundles]
        for one in rebase:
            pool.take(one.slot, one.sequence)
            if one not in taken:
                pool.add(one)
        return taken

    def _drop(self, commit_log: CommitLog, gradient: Gradient, reason: Reason) -> None:
        if not self._state.drop(commit_log, gradient, reason) or self._state.stopping:
            return
        if self._state.plan.ends_at_bad_batch:
            self._ending.fail(
                bad_batch(
                    gradient, "; mend or remove such samples, or let the job leave their batches out: bad_batches=skip"
                )
            )
        else:
            self._ending.check()  # it may have been the last of the epochs that were asked for

    def _refuse(self, commit_log: CommitLog, gradient: Gradient) -> None:
        figures = f"loss {gradient.loss:g}, squared norm {gradient.squared_norm:g}"
        detail = figures if gradient.flaw is None else f"{figures}: {gradient.flaw}"
        self._drop(commit_log, gradient, Reason(reasons.NON_FINITE, detail))
        self._divergence.note_refused(commit_log, gradient)
