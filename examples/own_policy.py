"""A policy of your own, in one class: a round ends after a while, without the late ones.

``python examples/own_policy.py [SCHEDULER]``; without a scheduler's address, a cluster on this machine is made.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from distributed import Client

import psplatform as ps
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
    at,
    drop,
    not_yet,
    yes,
)
from psplatform.core.reasons import stale


@dataclass
class Deadline(Policy):
    """Average whatever has come `seconds` after the last commit, but at least one gradient; drop what comes later."""

    seconds: float = parameter(0.1, minimum=0.0, help="longest round, if anything has come by then")

    @property
    def traits(self) -> Traits:
        """Everybody in a round works on exactly one version."""
        return Traits(exact=True)

    def admit(self, gradient: Gradient, view: View) -> Verdict:
        """Pool what was computed on the current version."""
        label = gradient.label.version
        return POOL if label == view.version else drop(stale(label, view.version))

    def pool_ready(self, view: View) -> Answer:
        """Wait for everybody, but not for long."""
        return yes("all are in") if view.busy == 0 else at(view.round_started_at + self.seconds, "time is up")

    def may_start(self, worker: Worker, view: View) -> Answer:
        """Go on with every new version."""
        return yes("a newer version") if worker.version < view.version else not_yet("no newer version")

    def step_scale(self, commit: Committed, view: View) -> float:
        """Take a smaller step where fewer contributed."""
        return len(commit.gradients) / view.workers


def main() -> None:
    """Train with it, while every tenth gradient takes five times as long as the others."""
    client = Client(sys.argv[1]) if sys.argv[1:] else None
    job = ps.Job(
        workload="digits",
        optimizer=ps.SGD(lr=0.02, momentum=0.8),
        policy=Deadline(seconds=0.1),
        workers=3,
        stragglers=ps.Stragglers.parse("constant:seconds=0.04;slow:chance=0.1,factor=5"),
        stop=ps.Stop(updates=40),
    )
    with ps.train(job, client) as run:
        summary = run.wait()
    print(f"accuracy {summary['accuracy']:.3f} after {summary['updates']} updates in {summary['seconds']:.1f} s")
    for slot, worker in summary["slots"].items():
        print(f"worker {slot}: {worker['applied']} gradients applied, {worker['dropped']} dropped")


if __name__ == "__main__":  # the processes of an embedded cluster import this file
    main()
