"""Stale synchronous parallel: apply at once, but nobody runs more than `bound` iterations ahead of the slowest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from psplatform.core.parameters import parameter
from psplatform.core.policy import (
    APPLY,
    Answer,
    Change,
    Committed,
    Gradient,
    Policy,
    Traits,
    Verdict,
    View,
    Worker,
    not_yet,
    yes,
)
from psplatform.policies.asp import asynchronous_scale

_WITHIN = yes("within the bound")


@dataclass
class StaleSynchronous(Policy):
    """Apply every gradient at once; let a worker start only while its clock is at most `bound` above the minimum.

    A worker's clock counts its applied gradients; one that joins later starts at the minimum.  With bound 0 all clocks
    are equal at every start, a barrier without averaging; a very large bound is `asp`.

    Guarantee: no iteration starts with a clock gap above `bound`.  It speaks of live workers: when the slowest leaves,
    the minimum moves up.
    """

    bound: int = parameter(3, minimum=0, help="iterations a worker may be ahead of the slowest")
    rate: str = parameter("constant", choices=("constant", "delay-adaptive"), help="learning-rate rule")
    damping: float = parameter(0.01, minimum=0.0, maximum=1e6, help="c / L of the delay-adaptive rule")

    source: ClassVar[str] = (
        'Q. Ho et al., "More effective distributed ML via a stale synchronous parallel parameter server", NIPS 2013'
    )

    @property
    def traits(self) -> Traits:
        """Waiting workers are looked at when the minimum clock moves."""
        return Traits(exact=False, wakes=frozenset({Change.MINIMUM_CLOCK}), sums=True)

    def admit(self, gradient: Gradient, view: View) -> Verdict:
        """Apply at once."""
        return APPLY

    def staleness_bound(self, workers: int) -> int | None:
        """Return (n - 1)(2 s + 1): what the others may push while one gradient is computed."""
        return (workers - 1) * (2 * self.bound + 1)

    def decision(self, view: View) -> Mapping[str, float]:
        """Return the bound on the clocks, s."""
        return {"bound": self.bound}

    def may_start(self, worker: Worker, view: View) -> Answer:
        """Hold back who is too far ahead."""
        gap = worker.clock - view.minimum_clock
        return _WITHIN if gap <= self.bound else not_yet(f"{gap} iterations ahead, {self.bound} allowed")

    def step_scale(self, commit: Committed, view: View) -> float:
        """Follow the learning-rate rule."""
        return asynchronous_scale(self.rate, self.damping, commit)
