"""Asynchronous with a bound on the delay: what would be applied too late is dropped instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from psplatform.core.parameters import parameter
from psplatform.core.policy import APPLY, Answer, Committed, Gradient, Policy, Traits, Verdict, View, Worker, drop, yes
from psplatform.core.reasons import Reason
from psplatform.policies.asp import asynchronous_scale

_FREE = yes("nobody waits")


@dataclass
class DelayBounded(Policy):
    """Apply every gradient at once whose staleness is below the bound; drop the others.

    A worker whose gradient is dropped takes the newest version and starts again.  Delay is counted after the commit,
    as in the paper: a bound of n allows a staleness of n - 1, which n workers of equal speed just reach.  The step
    shrinks with updates and staleness (`psplatform.core.rates.delay_adaptive`) unless `rate` is constant.

    Guarantee: no applied gradient has a staleness of `max_delay` or more.

    Differences from the paper
        This is the half of MLfabric-A that decides.  Ordering transfers, and dropping before anything is sent, need a
        planner of transfers (`psplatform.core.transfers`), which is told by when a gradient must arrive.
    """

    max_delay: int | None = parameter(None, minimum=1, help="largest delay after commit; none stands for 2 * workers")
    rate: str = parameter("delay-adaptive", choices=("constant", "delay-adaptive"), help="learning-rate rule")
    damping: float = parameter(0.01, minimum=0.0, maximum=1e6, help="c / L of the delay-adaptive rule")

    source: ClassVar[str] = (
        'R. Viswanathan, A. Akella, "Network-accelerated distributed machine learning using MLfabric", 2019; the rate: '
        'S. Sra et al., "AdaDelay: delay adaptive distributed stochastic optimization", AISTATS 2016'
    )

    @property
    def traits(self) -> Traits:
        """Each shard's newest version will do; no waiting worker ever needs another look."""
        return Traits(exact=False, wakes=frozenset(), sums=True)

    def admit(self, gradient: Gradient, view: View) -> Verdict:
        """Apply what is fresh enough."""
        bound = self._bound(view.workers)
        staleness = view.version + gradient.ahead - gradient.label.version
        if staleness < bound:
            return APPLY
        allowed = f"at most {bound - 1} is allowed by a delay bound of {bound}"
        return drop(Reason("delay", f"staleness {staleness}, {allowed}"))

    def latest(self, gradient: Gradient, view: View) -> int:
        """Return the version at which it has the largest staleness allowed."""
        return gradient.label.version + self._bound(view.workers) - 1

    def _bound(self, workers: int) -> int:
        return self.max_delay or 2 * workers

    def staleness_bound(self, workers: int) -> int | None:
        """Return one less than the bound on the delay."""
        return self._bound(workers) - 1

    def decision(self, view: View) -> Mapping[str, float]:
        """Return the delay that is not reached."""
        return {"delay bound": self._bound(view.workers)}

    def may_start(self, worker: Worker, view: View) -> Answer:
        """Go on at once."""
        return _FREE

    def step_scale(self, commit: Committed, view: View) -> float:
        """Follow the learning-rate rule."""
        return asynchronous_scale(self.rate, self.damping, commit)
