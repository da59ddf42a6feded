"""A policy in the simulator while processes fail: what psplatform itself is searched for faults with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from psplatform.policies.registry import name_of, parameter_values
from psplatform.simulation.faults.execution import Verdict, run_trial
from psplatform.simulation.faults.schedules.drawing import draw
from psplatform.simulation.faults.schedules.shrinking import shrink
from psplatform.simulation.faults.schedules.trial import Trial
from psplatform.simulation.threads import one_thread
from psplatform.testing.random_runs import MakePolicy, least_workers


def check_faults(
    make: MakePolicy, *, trials: int = 100, seed: int = 0, schedule: Mapping[str, Any] | None = None
) -> None:
    """Return if nothing is violated in `trials` simulated runs of the policy; call it in a test of your own.

    Each trial trains digits with real gradients while servers, replicas, workers, coordinators and standbys are killed,
    stopped and cut off, messages are late, repeated and reordered, and writings fail.  After every event, a reference
    model checks what must hold (`psplatform.simulation.faults`): a gradient is applied at most once, replicas are
    within their bound, no worker sees versions go back, checkpoints are consistent cuts.  Runs that lose little enough
    must end as asked, with a commit every 30 virtual seconds at least; gradients take one or two.  100 trials take some
    thirty seconds.

    Parameters
    ----------
    make
        Makes the policy anew for each trial.
    trials, seed
        The seeds of the trials are those from `seed` on.
    schedule
        What an error has shown, to be run again instead of these.

    Raises
    ------
    AssertionError
        If something is violated: names the seed, what was found, and the schedule, as small as leaving things out
        makes it.
    """

    def run(trial: Trial) -> Verdict:
        return run_trial(trial, make())

    def drawn(number: int) -> Trial:
        trial = draw(number)
        return replace(trial, policy=name, parameters=values, workers=max(trial.workers, least))

    name, values, least = name_of(make()), parameter_values(make()), least_workers(make)
    chosen = map(drawn, range(seed, seed + trials)) if schedule is None else [Trial.from_plain(schedule)]
    with one_thread():
        for trial in chosen:
            verdict = run(trial)
            if verdict.invariant:
                found = shrink(verdict, run)
                text = f"seed {trial.seed}: {found.invariant} is violated: {found.found}"
                raise AssertionError(f"{text}\n{json.dumps(found.trial.to_plain())}")
