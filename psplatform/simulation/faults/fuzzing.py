"""Many trials, on all cores, and what they have in common."""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import torch

from psplatform.simulation.faults.execution import Verdict, run_trial
from psplatform.simulation.faults.schedules.drawing import draw
from psplatform.simulation.faults.schedules.shrinking import shrink
from psplatform.simulation.threads import one_thread

_CHUNK: Final = 10
"""Trials that a process takes at a time: a second's work."""

_MOST_SHRUNK: Final = 5
"""Violations that are shrunk: once one of them is mended, the search is run again."""

_REPORTED: Final = {
    "promotions": "promotions",
    "takeovers": "takeovers",
    "handed over": "handed_over",
    "zombie attempts": "zombie_attempts",
    "lost positions": "lost_positions",
    "checkpoints complete": "checkpoints_sealed",
    "checkpoints abandoned": "checkpoints_abandoned",
    "checkpoints failed": "checkpoints_failed",
    "joins in sync": "joins_in_sync",
    "serial loops": "serial_loops",
    "leases run out": "leases_run_out",
    "transfers: state": "transfers_of_states",
    "transfers: update": "transfers_of_updates",
    "transfers: gradients": "transfers_of_gradients",
    "transfers: could not be read": "transfers_not_read",
    "commits": "commits",
    "faults": "faults",
}

Progress = Callable[[int, int], None]
"""Takes the number of trials that are over, and of violations among them."""


@dataclass
class Search:
    """What came of many trials."""

    schedules: int = 0
    events: int = 0
    violations: list[Verdict] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, verdict: Verdict) -> None:
        """Count a trial."""
        self.schedules += 1
        self.events += verdict.events
        self.met += verdict.met
        self.counts += verdict.counts
        if verdict.invariant:
            self.violations.append(verdict)
        else:
            self.outcomes[verdict.outcome] += 1

    def summary(self) -> dict[str, Any]:
        """Return the object that ``psplatform simulate --fuzz N --json`` ends with: plain values."""
        return {
            "schedules": self.schedules,
            "violations": [
                {
                    "seed": one.trial.seed,
                    "invariant": one.invariant,
                    "found": one.found,
                    "schedule": one.trial.to_plain(),
                }
                for one in self.violations
            ],
            "outcomes": dict(sorted(self.outcomes.items())),
            "coverage": dict(sorted(self.met.items())),
            **{name: self.counts[counted] for counted, name in _REPORTED.items()},
            "events": self.events,
        }


def search(
    schedules: int,
    *,
    seed: int = 0,
    workload: str = "digits",
    options: Mapping[str, Any] | None = None,
    progress: Progress = lambda done, violations: None,
    processes: int | None = None,
) -> Search:
    """Run the trials of the seeds from `seed` on, and shrink those that violate something."""
    found = Search()
    judge = partial(_judge, workload=workload, options=dict(options or {}))
    for verdict in _verdicts(judge, range(seed, seed + schedules), processes or os.cpu_count() or 1):
        found.add(verdict)
        progress(found.schedules, len(found.violations))
    with one_thread():
        found.violations[:_MOST_SHRUNK] = [shrink(one) for one in found.violations[:_MOST_SHRUNK]]
    return found


def _verdicts(judge: Callable[[int], Verdict], seeds: range, processes: int) -> Iterator[Verdict]:
    if processes == 1 or len(seeds) < 2 * _CHUNK:
        with one_thread():
            yield from map(judge, seeds)
        return
    # Spawned, because a fork of a process that has threads, as torch's, may never wake up.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_begin_process) as pool:
        yield from pool.map(judge, seeds, chunksize=_CHUNK)


def _begin_process() -> None:
    torch.set_num_threads(1)


def _judge(seed: int, *, workload: str, options: Mapping[str, Any]) -> Verdict:
    return run_trial(draw(seed, workload=workload, options=options))
