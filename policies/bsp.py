"""Bulk synchronous parallel: every round averages one gradient of every live worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from psplatform.core.parameters import parameter
from psplatform.core.policy import (
    POOL,
    Answer,
    Committed,
    Gradient,
    Policy,
    Traits,
    Verdict,
    View,
    Worker,
    drop,
    not_yet,
    yes,
)
from psplatform.core.rates import proportional
from psplatform.core.reasons import stale

_ALL_IN = yes("all live workers are in")
_WAITING = not_yet("live workers are still computing")
_NEWER = yes("a newer version exists")
_NOTHING_NEW = not_yet("no newer version yet")


def admit_current(gradient: Gradient, view: View) -> Verdict:
    """Pool a gradient of the current version; drop one of an older version."""
    label = gradient.label.version
    return POOL if label == view.version else drop(stale(label, view.version))


def start_on_newer(worker: Worker, view: View) -> Answer:
    """Let a worker go on as soon as there is a version it has not worked on."""
    return _NEWER if worker.version < view.version else _NOTHING_NEW


@dataclass
class BulkSynchronous(Policy):
    """Average one gradient of every live worker, step, repeat.

    A round waits for all workers that are alive, so a slow worker slows everybody and a lost one nobody: what it had
    announced before stays in the round.  A worker that joins in mid-round takes part in that round.  Without failures
    the result equals, bit for bit, a serial loop that averages the same gradients in the order of the slots.

    The learning rate is the job's for a round of all its workers; with `rate` = proportional a round of fewer, after a
    loss, takes a step smaller in proportion, and one of more a larger one.
    """

    rate: str = parameter("constant", choices=("constant", "proportional"), help="learning-rate rule: 1 or k/n")

    source: ClassVar[str] = 'L. G. Valiant, "A bridging model for parallel computation", CACM 1990'

    @property
    def traits(self) -> Traits:
        """Exactly one version per round; workers finish what they began."""
        return Traits(exact=True, awaits_all=True, sums=True)

    def admit(self, gradient: Gradient, view: View) -> Verdict:
        """Pool current gradients."""
        return admit_current(gradient, view)

    def pool_ready(self, view: View) -> Answer:
        """Wait for every live worker."""
        return _ALL_IN if view.busy == 0 else _WAITING

    def may_start(self, worker: Worker, view: View) -> Answer:
        """Go on when the round is over."""
        return start_on_newer(worker, view)

    def step_scale(self, commit: Committed, view: View) -> float:
        """Follow the learning-rate rule."""
        return proportional(len(commit.gradients), view.workers) if self.rate == "proportional" else 1.0
