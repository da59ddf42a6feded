"""Whether the simulator tells the truth: the same job on a cluster of this machine and in its simulated twin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from psplatform.bench.clusters.trained import train_to_the_end
from psplatform.core.plan import Stop
from psplatform.jobs.job import Job
from psplatform.jobs.stragglers import Stragglers
from psplatform.simulation.conditions import Conditions
from psplatform.simulation.simulate import simulate

Row = dict[str, Any]

WORKERS: Final = 4
STRAGGLERS: Final = "shifted-exponential:shift=0.04,mean=0.4"
"""Heavy, and far longer than a gradient of the workload takes by itself, so that the machine's speed hardly matters."""

_LIMIT_S: Final = 900.0
_EPOCHS: Final = 60.0


def measure(report: Callable[[Row], None] | None = None, *, seed: int = 0) -> list[Row]:
    """Train the bundled digits to 97 % under BSP, the best static k and DBW, for real and simulated.

    The best k is the one whose simulated time is shortest.

    Returns
    -------
    list of dict
        ``policy, k, simulated_seconds, real_seconds, ratio, simulated_updates, real_updates``; times to the target.
    """
    statics = {k: _job("backup", {"k": k}, seed) for k in range(1, WORKERS)}
    best = min(statics, key=lambda k: simulate(statics[k]).virtual_seconds)
    jobs = {("bsp", None): _job("bsp", {}, seed), ("backup", best): statics[best], ("dbw", None): _job("dbw", {}, seed)}
    rows = []
    for (policy, k), job in jobs.items():
        row = {"policy": policy, "k": k, **_both(job)}
        rows.append(row)
        if report is not None:
            report(row)
    return rows


def _job(policy: str, options: dict[str, Any], seed: int) -> Job:
    return Job(
        workload="digits",
        device="cpu",
        policy=policy,
        policy_options=options,
        workers=WORKERS,
        sampling="replacement",
        stragglers=Stragglers.parse(STRAGGLERS),
        stop=Stop(target_accuracy=0.97, epochs=_EPOCHS),
        evaluate_every=2,
        torch_threads=1,
        seed=seed,
    )


def _both(job: Job) -> Row:
    twin = simulate(job, Conditions())
    real = train_to_the_end(job, _LIMIT_S)
    return {
        "simulated_seconds": twin.virtual_seconds,
        "real_seconds": real["seconds"],
        "ratio": real["seconds"] / twin.virtual_seconds,
        "simulated_updates": twin.view.updates,
        "real_updates": real["updates"],
    }
