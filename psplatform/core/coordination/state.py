"""What the coordinator knows.  Its public properties are the `psplatform.core.policy.View` that policies read."""

from __future__ import annotations

from typing import Any

from psplatform.core.effects import Effect, Log
from psplatform.core.epochs import Deck
from psplatform.core.ledger import Ledger
from psplatform.core.plan import Plan
from psplatform.core.policy import Change, Gradient, Policy
from psplatform.core.pool import Pool
from psplatform.core.reasons import Reason
from psplatform.core.roster import Member, Roster


class State:
    """The state of one run, shared by the coordinator's desks.

    Attributes
    ----------
    version, position
        After the last *decided* commit.
    started_at
        Time at which the first worker joined.
    changes, to_examine
        What has changed, and which members must be looked at, since the last time the policy was asked.
    """

    def __init__(self, plan: Plan, policy: Policy, term: int, epochs: tuple[int, ...]) -> None:
        self.plan = plan
        self.policy = policy
        self.traits = policy.traits
        self.term = term
        self.epochs = epochs
        self.now = 0.0
        self.version = 0
        self.position = 0
        self.started_at: float | None = None
        self.round_started_at = 0.0
        self.samples_applied = 0
        self.roster = Roster(plan.max_workers)
        self.ledger = Ledger(plan.shards)
        self.pool = Pool()
        self.deck = Deck(plan.batches_per_epoch) if plan.deal_epochs else None
        self.changes: set[Change] = set()
        self.to_examine: list[Member] = []
        self._effects: list[Effect] = []

    # --- what policies may read, each in O(1) but for `members` ---

    @property
    def workers(self) -> int:
        """Number of workers the job was given."""
        return self.plan.workers

    @property
    def live(self) -> int:
        """Number of live workers."""
        return len(self.roster)

    @property
    def busy(self) -> int:
        """Number of live workers that fetch or compute."""
        return self.roster.busy

    @property
    def pooled(self) -> int:
        """Number of gradients in the pool."""
        return len(self.pool)

    @property
    def minimum_clock(self) -> int:
        """Smallest clock among the live workers."""
        return self.roster.minimum_clock

    def members(self) -> list[Member]:
        """Return the live workers in the order of their slots."""
        return self.roster.members()

    # --- what the desks share ---

    @property
    def epochs_done(self) -> float:
        """Passes over the data, counted in samples of applied gradients."""
        return self.samples_applied / self.plan.samples

    def emit(self, *effects: Effect) -> None:
        """Add effects to the answer to the event at hand."""
        self._effects.extend(effects)

    def take_effects(self) -> list[Effect]:
        """Return and forget the effects emitted since the last call."""
        effects, self._effects = self._effects, []
        return effects

    def log(self, kind: str, **fields: Any) -> None:
        """Add a record to the event log."""
        self.emit(Log({"kind": kind, "at": self.now, **fields}))

    def drop(self, gradient: Gradient, reason: Reason) -> None:
        """Give up a gradient: its batch is dealt again, and the log says why."""
        self.give_back(gradient.slot, gradient.sequence)
        self.log_drop(gradient.slot, gradient.sequence, gradient.label.version, reason)

    def log_drop(self, slot: int, sequence: int, label: int, reason: Reason) -> None:
        """Note in the log that a gradient was not applied."""
        self.log(
            "dropped",
            slot=slot,
            sequence=sequence,
            label=label,
            version=self.version,
            reason=reason.kind,
            detail=reason.detail,
        )

    def give_back(self, slot: int, sequence: int) -> None:
        """Return the gradient's batch to the deck, where epochs are dealt."""
        if self.deck:
            self.deck.take_back(slot, sequence)
