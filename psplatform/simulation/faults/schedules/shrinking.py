"""The least trial that still violates what another one did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from psplatform.simulation.faults.execution import Verdict, run_trial
from psplatform.simulation.faults.schedules.trial import Noise, Trial

_MOST_RUNS: Final = 200
"""Trials run to make one smaller: some seconds."""

_SIMPLER: Final[dict[str, Any]] = {
    "late": (),
    "noise": Noise(),
    "rates": {},
    "cut_every": 0,
    "clip": None,
    "epochs": False,
    "spares": 0,
    "fabric": False,
    "optimizer": {"name": "sgd", "lr": 0.1},
}


def shrink(verdict: Verdict, run: Callable[[Trial], Verdict] = run_trial) -> Verdict:
    """Return the verdict on a trial that violates the same invariant and cannot be made smaller by one step."""
    left = _MOST_RUNS
    while left:
        for smaller in _smaller(verdict.trial):
            left -= 1
            found = run(smaller)
            if found.invariant == verdict.invariant:
                verdict = found
                break
            if not left:
                break
        else:
            break
    return verdict


def _smaller(trial: Trial) -> Iterator[Trial]:
    """Yield the trials that lack one thing, those that lack most first."""
    for number in range(len(trial.faults)):
        yield replace(trial, faults=trial.faults[:number] + trial.faults[number + 1 :])
    simpler: list[tuple[str, Any]] = [*_SIMPLER.items(), ("noise", replace(trial.noise, twice=0.0))]
    for name, value in simpler:
        if getattr(trial, name) != value:
            yield replace(trial, **{name: value})
    for name in ("shards", "workers"):
        if getattr(trial, name) > 1:
            yield replace(trial, **{name: getattr(trial, name) - 1})
    if trial.copying is not None and trial.copying.replicas > 1:
        yield replace(trial, copying=replace(trial.copying, replicas=1))
