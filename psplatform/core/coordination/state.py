"""What the coordinator knows."""

from __future__ import annotations

import math
from typing import Any, Final

from psplatform.core.coordination.members.roster import Member, Roster
from psplatform.core.coordination.order.commit_logs import BlockOutcomes, CommitLog
from psplatform.core.coordination.order.epochs import BatchScheduler
from psplatform.core.coordination.shards.state import ShardState
from psplatform.core.limits import LARGEST
from psplatform.core.plan import Plan
from psplatform.core.policy import Change, Gradient, Policy, Scope
from psplatform.core.protocol.effects import Effect, Log, SetTimer
from psplatform.core.quality import Progress
from psplatform.core.reasons import STOPPED, Reason

TRANSFERS: Final = "transfers"
"""Tag of the timer at which offers are looked at again."""

PULLS: Final = "pulls"
"""Tag of the timer at which it is looked again at who can be sent the parameters."""

BY_SHARD_EVERY_S: Final = 1.0
"""Between two records that say how far the replicas of each shard are behind: a run may have thousands of shards."""


class State:
    """The state of one run, shared by the coordinator's components.

    Attributes
    ----------
    per_block
        Whether every shard has an order of commits of its own (`psplatform.core.policy.Scope`).
    commit_logs
        The orders of commits: one, or one per shard.
    shards
        The copies of each shard.
    processes
        Where the copies and the coordinator are, by name, as far as that is known; for the log.
    started_at
        Time at which the first worker joined.
    seconds_before
        Seconds that the run had taken before it was recovered from a checkpoint.
    bad_batches, samples_given_up
        Batches of which no gradient was finite, and, where batches are dealt, their samples.
    progress
        What evaluations have shown.
    changes, to_examine
        What has changed, and which members must be looked at, since the last time the policy was asked.
    effects
        The answer to the event at hand, so far.
    stopping
        Whether no further commit will be decided.
    settled
        Whether every position that was decided is known: not while this coordinator takes over.
    stirred, moved
        Numbers of the commit logs whose pool has grown, and of those that have a new version, since then.
    """

    def __init__(self, plan: Plan, policy: Policy, term: int) -> None:
        self.plan = plan
        self.policy = policy
        self.traits = policy.traits
        self.per_block = policy.traits.scope is Scope.BLOCK
        self.term = term
        replicas = plan.protection.replicas if plan.protection is not None else 0
        self.shards = [ShardState.first(shard, replicas) for shard in range(plan.shards)]
        self.processes: dict[str, str] = {}
        self.now = 0.0
        self._by_shard_at = -BY_SHARD_EVERY_S
        self.started_at: float | None = None
        self.seconds_before = 0.0
        self.samples_applied = 0
        self.bad_batches = 0
        self.samples_given_up = 0
        self.progress = Progress()
        self.roster = Roster(plan.max_workers)
        self.commit_logs = self._make_commit_logs()
        self.block_outcomes = BlockOutcomes(len(self.commit_logs))
        self.batch_scheduler = BatchScheduler(plan.batches_per_epoch) if plan.deal_epochs else None
        self.changes: set[Change] = set()
        self.to_examine: list[Member] = []
        self.stirred: set[int] = set()
        self.moved: set[int] = set()
        self.effects: list[Effect] = []
        self.stopping = False
        self.settled = True

    def _make_commit_logs(self) -> tuple[CommitLog, ...]:
        shards = range(self.plan.shards)
        if self.traits.scope is Scope.MODEL:
            return (CommitLog(self, 0, tuple(shards)),)
        return tuple(CommitLog(self, shard, (shard,)) for shard in shards)

    # --- what is true of the whole run ---

    def commit_log_of(self, shard: int) -> CommitLog:
        """Return the commit log whose commits the shard applies."""
        return self.commit_logs[shard] if self.per_block else self.commit_logs[0]

    def last_position(self, member: str, shard: int) -> int:
        """Return the highest position at which the shard may still apply a gradient of a member that is gone now.

        `LARGEST` as long as one waits to be decided: the next commit need not be the one that it enters.
        """
        return LARGEST if member in self.undecided_names() else self.commit_log_of(shard).position

    def undecided_names(self) -> set[str]:
        """Return the members of whom a gradient, or a sum with gradients of others, may still be committed."""
        if self.stopping:
            return set()
        undecided = [one for commit_log in self.commit_logs for one in (*commit_log.pool, *commit_log.held)]
        aggregators = {one.bundle.aggregator for one in undecided if one.bundle is not None}
        return aggregators | {one.member for one in undecided}

    @property
    def oldest(self) -> CommitLog:
        """The commit log with the lowest version, the first of several."""
        return (
            self.commit_logs[0]
            if len(self.commit_logs) == 1
            else min(self.commit_logs, key=lambda commit_log: commit_log.version)
        )

    @property
    def version(self) -> int:
        """Version that every commit log has decided."""
        return self.oldest.version

    @property
    def live(self) -> int:
        """Number of live workers."""
        return len(self.roster)

    @property
    def busy(self) -> int:
        """Number of live workers that fetch or compute."""
        return self.roster.busy

    @property
    def minimum_clock(self) -> int:
        """Smallest clock among the live workers."""
        return self.roster.minimum_clock

    @property
    def pooled(self) -> int:
        """Number of gradients in the pools."""
        return sum(len(commit_log.pool) for commit_log in self.commit_logs)

    @property
    def open_commits(self) -> int:
        """Number of decided commits that are not yet visible."""
        return sum(len(commit_log.ledger) for commit_log in self.commit_logs)

    # --- what the components share ---

    @property
    def epochs_done(self) -> float:
        """Passes over the data, counted in samples of applied gradients and of batches that were given up."""
        return (self.samples_applied + self.samples_given_up) / self.plan.samples

    @property
    def seconds(self) -> float:
        """Seconds since the first worker joined, those before a recovery included."""
        return self.seconds_before + (self.now - self.started_at if self.started_at is not None else 0.0)

    def take_effects(self) -> list[Effect]:
        """Return and forget the answer to the event at hand."""
        effects, self.effects = self.effects, []
        return effects

    def limit(self, tag: str, seconds: float) -> None:
        """Set a timer in `seconds`, none where that is infinity."""
        if seconds < math.inf:
            self.effects.append(SetTimer(tag, self.now + seconds))

    def log(self, kind: str, **fields: Any) -> None:
        """Add a record to the event log."""
        self.effects.append(Log({"kind": kind, "at": self.now, **fields}))

    def drop(self, commit_log: CommitLog, gradient: Gradient, reason: Reason) -> bool:
        """Give up a gradient, or a block of it: the log says why, and its batch is dealt again if all of it is lost.

        Return whether the batch is given up as well, because too many of its gradients were not finite.
        """
        self.log_drop(gradient.slot, gradient.sequence, commit_log.label_of(gradient), reason, commit_log)
        if not self.block_outcomes.drop(gradient.slot, gradient.sequence):
            return False
        if gradient.finite or reason.kind == STOPPED:
            self.give_back(gradient.slot, gradient.sequence)
            return False
        return self._refuse_batch(gradient)

    def _refuse_batch(self, gradient: Gradient) -> bool:
        tries, place, flaw = 1, {}, gradient.flaw
        if self.batch_scheduler is not None:
            refused = self.batch_scheduler.refuse(gradient.slot, gradient.sequence, self.plan.tries)
            if refused is None or refused[1] < self.plan.tries:
                return False
            (assignment, tries), self.samples_given_up = refused, self.samples_given_up + gradient.samples
            place = {"epoch": assignment.epoch, "batch": assignment.number}
        self.bad_batches += 1
        self.log(
            "bad batch",
            slot=gradient.slot,
            sequence=gradient.sequence,
            tries=tries,
            size=gradient.samples,
            tensor=flaw.tensor if flaw is not None else "",
            samples=list(flaw.samples) if flaw is not None else [],
            count=flaw.count if flaw is not None else 0,
            text=str(flaw) if flaw is not None else f"loss {gradient.loss:g}, squared norm {gradient.squared_norm:g}",
            **place,
        )
        return True

    def log_drop(
        self, slot: int, sequence: int, label: int, reason: Reason, commit_log: CommitLog | None = None
    ) -> None:
        """Log that a gradient was not applied."""
        self.log(
            "dropped",
            slot=slot,
            sequence=sequence,
            label=label,
            version=self.version if commit_log is None else commit_log.version,
            reason=reason.kind,
            detail=reason.detail,
            **({} if commit_log is None else self.block_field(commit_log)),
        )

    def replication_fields(self) -> dict[str, Any]:
        """Return what a log record says of how far replicas are behind, where there are any: of the whole model."""
        if self.plan.protection is None:
            return {}
        return {
            "divergence": math.sqrt(sum([one.divergence**2 for one in self.shards])),
            "lag": max([one.lag for one in self.shards]),
            "to_replica_bytes": sum([one.replicated_bytes for one in self.shards]),
            **self._by_shard(),
        }

    def _by_shard(self) -> dict[str, list[list[float]]]:
        """Return divergence, lag and bytes to replicas of each shard, at most once in `BY_SHARD_EVERY_S`."""
        if self.now < self._by_shard_at + BY_SHARD_EVERY_S:
            return {}
        self._by_shard_at = self.now
        return {"by_shard": [[one.divergence, one.lag, one.replicated_bytes] for one in self.shards]}

    def block_field(self, commit_log: CommitLog) -> dict[str, int]:
        """Return what a log record says of the commit log: its number, where there is more than the one."""
        return {"block": commit_log.block} if self.per_block else {}

    def give_back(self, slot: int, sequence: int) -> None:
        """Return the gradient's batch to the batch scheduler, where epochs are dealt."""
        if self.batch_scheduler:
            self.batch_scheduler.take_back(slot, sequence)

    def catch_up(self, member: Member, sequence: int, version: int) -> None:
        """Count `member` as released for gradient `sequence` by a coordinator that is gone.

        What the member was busy with before, and says nothing of, is over: its batch is dealt again.
        """
        if member.busy and not member.announced:
            self.give_back(member.slot, member.sequence)
        self.roster.catch_up(member, sequence, version)
