"""Dynamic backup workers beside every fixed number of them: the time to the same loss, simulated with real gradients.

The setting is that of C. Xu, G. Neglia, N. Sebastianelli, "Dynamic backup workers for parallel machine learning", 2020,
figure 3: 16 workers that finish what they began, round trips of 1 - alpha + alpha Exp(1) seconds, a target loss of 0.2
on the whole training set, evaluated every other update at no cost in time, and seeds from 1 on.  A workload of this
package takes the place of MNIST.  All policies have the same base rate: the one given here for a round of all workers,
k / n of it for a fixed k, and all of it for DBW whatever its k is.

The base rate is the largest of a sweep that is stable where all 16 gradients are averaged: in no run does the loss,
evaluated after every update, rise by more than a twentieth above the lowest so far.  The largest rises, of 20 seeds on
mlp: none at a rate of 0.3, 8 % at 0.35, 33 % at 0.4; of 5 seeds on digits: 1.5 % at 0.4, 4.4 % at 0.5, 18 % at 0.6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any, Final

from psplatform.core.plan import Stop
from psplatform.jobs.job import Job
from psplatform.jobs.optimizers import SGD
from psplatform.simulation.conditions import Conditions
from psplatform.simulation.simulate import simulate

Row = dict[str, Any]

WORKERS: Final = 16
TARGET_LOSS: Final = 0.2
BATCH_SIZE: Final = 64
EVALUATE_EVERY: Final = 2
ALPHAS: Final = (0.0, 0.2, 1.0)
COUNTS: Final = (1, 4, 8, 12, 16)
SEEDS: Final[Mapping[str, int]] = {"mlp": 20, "digits": 5}
"""Seeds per workload where nothing is said."""

RATES: Final[Mapping[str, float]] = {"mlp": 0.3, "digits": 0.5}
"""Base rates: of a round of all workers."""

OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {"digits": {"network": "perceptron"}}
"""Options of the workloads: both train a perceptron with 32 hidden units."""

_UPDATES: Final = 5000
"""Far more than any of these runs needs: one that goes on for ever must end some day."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run: when it reached the target, if it did, and how many gradients a commit of it had on average."""

    seconds: float
    reached: bool
    mean_k: float


def measure(
    report: Callable[[Row], None] | None = None,
    *,
    workload: str = "mlp",
    seeds: Sequence[int] | None = None,
    alphas: Sequence[float] = ALPHAS,
    ks: Sequence[int] = COUNTS,
) -> list[Row]:
    """Return one row per alpha and policy.

    Parameters
    ----------
    report
        Called with each row as soon as it is known.
    seeds
        Seeds of the runs that a row averages; 1 to the workload's number of them if not given.
    alphas, ks
        The alpha of the round trips, and the fixed numbers that DBW is compared with.

    Returns
    -------
    list of dict
        ``workload, alpha, policy, k, seeds, seconds_mean, seconds_std, reached, mean_k, ratio_to_best_static``.  Times
        are of the runs that reached the target, and ``None`` unless all did; the ratio says how many times faster than
        the best fixed k a policy is.
    """
    seeds = range(1, SEEDS.get(workload, 5) + 1) if seeds is None else seeds
    rows: list[Row] = []
    for alpha in alphas:
        static = [_row(workload, alpha, seeds, "backup", k) for k in ks]
        best = min((row["seconds_mean"] for row in static if row["seconds_mean"] is not None), default=None)
        adaptive = [_row(workload, alpha, seeds, policy, None) for policy in ("dbw", "b-dbw")]
        for row in static + adaptive:
            if best is not None and row["seconds_mean"] is not None:
                row["ratio_to_best_static"] = best / row["seconds_mean"]
            rows.append(row)
            if report is not None:
                report(row)
    return rows


def job_of(workload: str, seed: int, policy: str, k: int | None = None, rate: float | None = None) -> Job:
    """Return the job of one run; `rate` is the base rate, that of the study if not given."""
    return Job(
        workload=workload,
        device="cpu",
        options=dict(OPTIONS.get(workload, {})),
        policy=policy,
        policy_options={} if k is None else {"k": k},
        optimizer=SGD(lr=RATES[workload] if rate is None else rate),
        workers=WORKERS,
        batch_size=BATCH_SIZE,
        sampling="replacement",
        evaluate_on="training",
        evaluate_every=EVALUATE_EVERY,
        seed=seed,
        stop=Stop(updates=_UPDATES, target_loss=TARGET_LOSS),
    )


def conditions_of(alpha: float) -> Conditions:
    """Return a cluster whose round trips take 1 - alpha + alpha Exp(1) seconds."""
    return Conditions(round_trip=f"shifted-exponential:alpha={alpha}")


def run(workload: str, alpha: float, seed: int, policy: str, k: int | None = None) -> Outcome:
    """Simulate one run to the target."""
    done = simulate(job_of(workload, seed, policy, k), conditions_of(alpha))
    return Outcome(done.virtual_seconds, bool(done.reached_target), done.view.applied / max(done.view.commits, 1))


def _row(workload: str, alpha: float, seeds: Sequence[int], policy: str, k: int | None) -> Row:
    outcomes = [run(workload, alpha, seed, policy, k) for seed in seeds]
    seconds = [one.seconds for one in outcomes if one.reached]
    complete = len(seconds) == len(outcomes) > 0
    return {
        "workload": workload,
        "alpha": alpha,
        "policy": policy,
        "k": k,
        "seeds": len(outcomes),
        "seconds_mean": fmean(seconds) if complete else None,
        "seconds_std": pstdev(seconds) if complete else None,
        "reached": len(seconds),
        "mean_k": fmean(one.mean_k for one in outcomes),
        "ratio_to_best_static": None,
    }
