"""Every policy on the bundled digits, on a cluster of this machine, under the same stragglers and the same settings."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from psplatform.core.plan import Stop
from psplatform.jobs.job import Job
from psplatform.jobs.stragglers import Stragglers
from psplatform.policies.registry import policy_names
from psplatform.runtime.launch import train

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
    with tempfile.TemporaryDirectory() as folder:
        job = Job(
            workload="digits",
            policy=policy,
            workers=WORKERS,
            shards=SHARDS,
            stragglers=Stragglers.parse(STRAGGLERS),
            stop=Stop(target_accuracy=_TARGET, epochs=_EPOCHS),
            evaluate_every=10,
            torch_threads=1,
            store=str(Path(folder) / "run.zarr"),
        )
        run = train(job)
        try:
            summary = run.wait(_LIMIT_S)
        finally:
            run.close()
    figures = {"staleness": summary["staleness"]["mean"], "dropped": summary["dropped"]["total"]}
    same = ("outcome", "accuracy", "seconds", "updates", "gradients", "waiting_fraction")
    return {**{name: summary[name] for name in same}, **figures}
