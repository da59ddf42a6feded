"""Every policy on the bundled digits, on a cluster of this machine, under the same stragglers and the same settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from psplatform.bench.clusters.trained import train_to_the_end
from psplatform.core.plan import Stop
from psplatform.jobs.job import Job
from psplatform.jobs.stragglers import Stragglers
from psplatform.policies.registry import policy_names

Row = dict[str, Any]

WORKERS: Final = 3
SHARDS: Final = 2
STRAGGLERS: Final = "shifted-exponential:shift=0.02,mean=0.04;slow:chance=0.1,factor=5"

_TARGET: Final = 0.97
_EPOCHS: Final = 45.0
"""The budget of gradients: passes over the data, counted in samples of applied gradients."""

_LIMIT_S: Final = 600.0


def measure(report: Callable[[Row], None] | None = None) -> list[Row]:
    """Train to 97 % of the held-out digits under each registered policy with its default parameters.

    Returns
    -------
    list of dict
        ``policy, outcome, accuracy, seconds, updates, gradients, staleness, dropped, waiting_fraction``.
    """
    rows = []
    for policy in policy_names():
        row = {"policy": policy, **_trained(policy)}
        rows.append(row)
        if report is not None:
            report(row)
    return rows


def _trained(policy: str) -> Row:
    job = Job(
        workload="digits",
        device="cpu",
        policy=policy,
        workers=WORKERS,
        shards=SHARDS,
        stragglers=Stragglers.parse(STRAGGLERS),
        stop=Stop(target_accuracy=_TARGET, epochs=_EPOCHS),
        evaluate_every=10,
        torch_threads=1,
    )
    summary = train_to_the_end(job, _LIMIT_S)
    figures = {"staleness": summary["staleness"]["mean"], "dropped": summary["dropped"]["total"]}
    same = ("outcome", "accuracy", "seconds", "updates", "gradients", "waiting_fraction")
    return {**{name: summary[name] for name in same}, **figures}
