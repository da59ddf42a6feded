"""An external check: rebuilds what a run did from its recorded history, and holds it against what is promised.

The processes of a run that find `PSPLATFORM_HISTORY` in their environment record there what they applied, showed,
pulled and computed (`psplatform.runtime.store.recording`).  From these files alone `check` concludes whether the
guarantees held; it shares no code with what decided.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from psplatform.bench.history import replicas, runs, servers, workers
from psplatform.bench.history.guarantees import WHOLE
from psplatform.bench.history.reading import Life, read


@dataclass(frozen=True)
class Report:
    """What a check has found.

    Attributes
    ----------
    violations
        One sentence each, that begins with the name of a guarantee in `psplatform.bench.history.guarantees`.
    counts
        How much of what was looked at.
    """

    violations: list[str]
    counts: dict[str, int]


def check(folder: str | Path, *, bound: float | None = None, unit: str = "updates", policy: str = "") -> Report:
    """Hold the recorded history of all runs in a folder against the guarantees.

    Parameters
    ----------
    bound, unit
        What a replica may lack; by default what the recorded run was asked for.
    policy
        Whose promises hold beside the general ones; by default the recorded run's.
    """
    lives, flaws = read(folder)
    violations = [f"{WHOLE}: {flaw}" for flaw in flaws]
    for life in lives:
        violations += servers.violations(life)
        violations += replicas.violations(life, replicas.Bound.of(life, bound, unit))
        violations += workers.violations(life, policy)
        violations += runs.violations(life)
    return Report([*violations, *runs.recoveries(lives)], _counts(lives))


def _counts(lives: list[Life]) -> dict[str, int]:
    counts = Counter(lives=len(lives))
    for life in lives:
        counts["copies"] += len(life.copies)
        counts["workers"] += len(life.workers)
        counts["coordinators"] += len(life.coordinators)
        counts["servers"] += sum(len(of) for of in life.epochs.values())
        for actor in (*life.copies, *life.workers):
            counts.update(one["kind"] for one in actor.records)
    return dict(sorted(counts.items()))
