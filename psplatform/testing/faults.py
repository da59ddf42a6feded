"""A policy in the simulator while processes fail: what psplatform itself is searched for faults with."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final

from psplatform.policies.registry import name_of
from psplatform.simulation.faults.execution import Verdict, run_trial
from psplatform.simulation.faults.schedules.drawing import draw
from psplatform.simulation.faults.schedules.shrinking import shrink
from psplatform.simulation.faults.schedules.trial import Trial
from psplatform.simulation.threads import one_thread
from psplatform.testing.random_runs import MakePolicy

_SHOWN: Final = 20_000
"""Characters of a schedule that an error shows."""


def check_faults(make: MakePolicy, *, trials: int = 100, seed: int = 0) -> None:
    """Return if nothing is violated in `trials` simulated runs of the policy; call it in a test of your own.

    Each trial trains digits with real gradients while servers, replicas, workers, coordinators and standbys are killed,
    stopped and cut off, messages are late, repeated and reordered, and writings fail.  After every event, a reference
    model checks what must hold (`psplatform.simulation.faults`): a gradient is applied at most once, replicas are
    within their bound, no worker sees versions go back, checkpoints are consistent cuts.  Runs that lose little enough
    must end as asked.  100 trials take some ten seconds.

    Parameters
    ----------
    make
        Makes the policy anew for each trial.
    trials, seed
        The seeds of the trials are those from `seed` on.

    Raises
    ------
    AssertionError
        If something is violated: names the seed, what was found, and the smallest schedule that still shows it.
    """

    def run(trial: Trial) -> Verdict:
        return run_trial(trial, make())

    name = name_of(make())
    with one_thread():
        for number in range(seed, seed + trials):
            verdict = run(replace(draw(number), policy=name, parameters={}))
            if verdict.invariant:
                least = shrink(verdict, run)
                schedule = json.dumps(least.trial.to_plain())[:_SHOWN]
                raise AssertionError(f"seed {number}: {least.invariant} is violated: {least.found}\n{schedule}")
