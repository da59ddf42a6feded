"""Asynchronous parallel (Hogwild): every gradient is applied as it comes, nobody waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from psplatform.core.parameters import parameter
from psplatform.core.policy import APPLY, Answer, Committed, Gradient, Policy, Traits, Verdict, View, Worker, yes
from psplatform.core.rates import delay_adaptive

_FREE = yes("nobody waits")


def asynchronous_scale(rate: str, damping: float, commit: Committed) -> float:
    """Return the step scale of an asynchronous policy under the learning-rate rule named `rate`.

    Of a sum of several updates, the version before and the staleness are the means over them.
    """
    if rate == "constant":
        return 1.0
    updates = len(commit.staleness)
    mean_staleness = sum(commit.staleness) / updates
    return delay_adaptive(commit.version - (updates + 1) / 2, mean_staleness, damping)


@dataclass
class Asynchronous(Policy):
    """Apply every gradient at once, however stale.

    Staleness is not bounded: a slow worker's gradient meets a model that is as many versions older as the others were
    faster.  With `rate` = delay-adaptive the step shrinks with staleness (`psplatform.core.rates.delay_adaptive`).
    """

    rate: str = parameter("constant", choices=("constant", "delay-adaptive"), help="learning-rate rule")
    damping: float = parameter(0.01, minimum=0.0, maximum=1e6, help="c / L of the delay-adaptive rule")

    source: ClassVar[str] = 'B. Recht, C. Re, S. Wright, F. Niu, "Hogwild!", NIPS 2011'

    @property
    def traits(self) -> Traits:
        """Each shard's newest version will do; no waiting worker ever needs another look."""
        return Traits(exact=False, wakes=frozenset(), sums=True)

    def admit(self, gradient: Gradient, view: View) -> Verdict:
        """Apply at once."""
        return APPLY

    def may_start(self, worker: Worker, view: View) -> Answer:
        """Go on at once."""
        return _FREE

    def step_scale(self, commit: Committed, view: View) -> float:
        """Follow the learning-rate rule."""
        return asynchronous_scale(self.rate, self.damping, commit)
