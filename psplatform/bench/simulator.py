"""How many events the simulator handles in a second: the run's own roles and policies, in simulations of times only.

The last case is the cutoff policy with its learned model and as many workers as its authors had: M. Teng and F. Wood,
"Bayesian distributed stochastic gradient descent", NeurIPS 2018, 2175 workers.  Every round is predicted, and everybody
who is late aborts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from psplatform.core.plan import Plan, Stop
from psplatform.core.policy import Policy
from psplatform.jobs.distributions import ShiftedExponential
from psplatform.jobs.schedules import Constant
from psplatform.policies.registry import make_policy
from psplatform.simulation.driver import run_world
from psplatform.simulation.event_trace import EventTrace
from psplatform.simulation.run_times import Correlated, Independent, Nodes, RunTimes
from psplatform.simulation.synthetic import SyntheticGradients
from psplatform.simulation.threads import one_thread
from psplatform.simulation.world import SimulatedWorld

Row = dict[str, Any]

SEED: Final = 1
TIMES: Final = ShiftedExponential(0.5, 1.0)
NODES: Final = Nodes(size=40, average=1.0, sd=0.2, share=0.5, memory=0.9)
_BATCH: Final = 32


@dataclass(frozen=True, slots=True)
class Case:
    """A policy, so many workers, so many updates; with or without run times that nodes share.

    Attributes
    ----------
    fit_rounds, fit_steps
        Rounds of run times that the policy's model is fitted to beforehand, and the steps of fitting; 0 for no model.
    """

    policy: str
    workers: int
    updates: int
    options: Mapping[str, Any] = field(default_factory=dict)
    fit_rounds: int = 0
    fit_steps: int = 0


CASES: tuple[Case, ...] = (
    Case("asp", 16, 20_000),
    Case("bsp", 1000, 40),
    Case("ssp", 10_000, 40_000, {"bound": 3}),
    Case("bsp", 10_000, 10),
    Case("cutoff", 2175, 500, {"predictor": "generative"}, fit_rounds=100, fit_steps=100),
)


def measure(report: Callable[[Row], None] | None = None) -> list[Row]:
    """Return one row per case: the events of its run and how many of them a second holds.

    Parameters
    ----------
    report
        Called with each row as soon as it is known.

    Returns
    -------
    list of dict
        ``policy, workers, events, seconds, events_per_second``; with a model ``fit_seconds`` and a ``note``.
    """
    rows = []
    for case in CASES:
        row = _measured(case)
        rows.append(row)
        if report is not None:
            report(row)
    return rows


def _measured(case: Case) -> Row:
    policy, fitted = _policy(case)
    run_times: RunTimes = Correlated(NODES, SEED) if case.fit_rounds else Independent(TIMES, SEED)
    arithmetic, world = SyntheticGradients(1, _BATCH), SimulatedWorld(run_times, SEED)
    plan = Plan(
        run="bench",
        workers=case.workers,
        shards=1,
        samples=_BATCH * case.workers,
        batch_size=_BATCH,
        stop=Stop(updates=case.updates),
        schedule=Constant(),
    )
    began = time.perf_counter()
    with one_thread():
        events = run_world(plan, policy, arithmetic, world, EventTrace(), seed=SEED).events
    seconds = time.perf_counter() - began
    return {
        "policy": case.policy,
        "workers": case.workers,
        "events": events,
        "seconds": seconds,
        "events_per_second": events / seconds,
        **fitted,
    }


def _policy(case: Case) -> tuple[Policy, Row]:
    """Return the policy, with what its model is if it has one."""
    if not case.fit_rounds:
        return make_policy(case.policy, case.options), {}
    began = time.perf_counter()
    content = _fitted(case)
    seconds = time.perf_counter() - began
    policy = make_policy(case.policy, {**case.options, "model": "fitted.npz"})
    policy.load(lambda name: content)
    policy.check(case.workers)
    return policy, {"fit_seconds": seconds, "note": f"{case.updates} predictions"}


def _fitted(case: Case) -> bytes:
    from psplatform.policies.run_times.training import fit  # noqa: PLC0415  brings torch

    # Another seed: the rounds to come are not those that the model has seen.
    past = Correlated(NODES, SEED + 1)
    times = [[past.seconds(slot, number) for slot in range(case.workers)] for number in range(case.fit_rounds)]
    with one_thread():
        return fit(np.array(times), steps=case.fit_steps, seed=SEED).to_bytes()
