"""Static backup workers: every round takes the k fastest gradients and drops the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from psplatform.core.parameters import parameter
from psplatform.core.policy import Answer, Committed, Gradient, Policy, Traits, Verdict, View, Worker, not_yet, yes
from psplatform.core.rates import proportional
from psplatform.errors import ConfigurationError
from psplatform.policies.bsp import admit_current, start_on_newer


@dataclass
class BackupWorkers(Policy):
    """Wait for the k fastest of n gradients of the current version, average those, step.

    What comes later was computed on an old version and is dropped on arrival.  With `busy` = finish a late worker ends
    its gradient first and then takes the newest version; with abort it drops the computation at once.

    Guarantee: every commit averages exactly k gradients of its version.  It rests on k live workers: while fewer are
    left, a round waits for all of them and the log says so.
    """

    k: int | None = parameter(None, minimum=1, help="gradients a round waits for; none stands for workers - 1")
    busy: str = parameter("finish", choices=("finish", "abort"), help="what a late worker does with its gradient")
    rate: str = parameter("proportional", choices=("proportional", "constant"), help="learning-rate rule: k/n or 1")

    source: ClassVar[str] = (
        'J. Chen, X. Pan, R. Monga, S. Bengio, R. Jozefowicz, "Revisiting distributed synchronous SGD", 2016'
    )

    def check(self, workers: int) -> None:
        """Refuse a k above the number of workers."""
        if self.k is not None and self.k > workers:
            raise ConfigurationError(
                f"k must be at most the number of workers: k = {self.k}, workers = {workers}", field="k"
            )

    @property
    def traits(self) -> Traits:
        """Exactly one version per round; late workers finish or abort."""
        return Traits(exact=True, interrupt=self.busy == "abort")

    def admit(self, gradient: Gradient, view: View) -> Verdict:
        """Pool current gradients, drop late ones."""
        return admit_current(gradient, view)

    def pool_ready(self, view: View) -> Answer:
        """Wait for k, or for all who are left."""
        wanted = self._wanted(view)
        if view.pooled >= wanted:
            return yes(f"the {wanted} fastest are in")
        if view.busy == 0:
            return yes(f"only {view.pooled} of k = {wanted}: no other live worker can contribute")
        return not_yet(f"{view.pooled} of {wanted}")

    def decision(self, view: View) -> Mapping[str, float]:
        """Return k."""
        return {"k": self._wanted(view)}

    def _wanted(self, view: View) -> int:
        return self.k or max(1, view.workers - 1)

    def may_start(self, worker: Worker, view: View) -> Answer:
        """Go on when the round is over."""
        return start_on_newer(worker, view)

    def step_scale(self, commit: Committed, view: View) -> float:
        """Scale the rate with the share of accepted gradients."""
        return proportional(len(commit.gradients), view.workers) if self.rate == "proportional" else 1.0
