"""How much memory a run holds, in sizes of its model, by the roles of its processes.

Two runs follow each other on clusters of their own: of a model as large as asked for, and of one that is tiny.  What a
process holds beyond that of the same role in the tiny run is held for the model: parameters, gradients, optimiser
state, copies, what was pickled and not given up.  Memory that several processes share counts in equal parts (Linux's
proportional set size), so that the sum over all processes is what the machine has given.

The model is an `nn.Module` that is handed in as it is; its optimiser has a momentum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from psplatform.bench.clusters.watched import (
    LIMIT_S,
    WARM_UP,
    await_iterations,
    endless,
    iterations,
    processes_by_role,
    watched,
)
from psplatform.bench.measuring.host import held_bytes
from psplatform.bench.measuring.rounds import Report, Row
from psplatform.bench.tasks.layers import job_of_layers, parameters_of
from psplatform.client.run import Run
from psplatform.jobs.job import Job

PARAMETERS: Final = 25_000_000
WORKERS: Final = 2
ITERATIONS: Final = 100

_TINY: Final = 100
_ELEMENT_BYTES: Final = 4
_AN_ITERATION_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Setting:
    """What is trained.

    Attributes
    ----------
    parameters
        Of the model, about, in float32.
    workers, policy
        As of a job.
    replicated
        Whether the server has its default replica.
    """

    parameters: int = PARAMETERS
    workers: int = WORKERS
    policy: str = "bsp"
    replicated: bool = True

    @property
    def system(self) -> str:
        """What its rows are called."""
        return "psplatform" if self.replicated else "psplatform-unreplicated"

    def job(self, store: str) -> Job:
        """Return a job that goes on until it is stopped."""
        return job_of_layers(
            self.parameters,
            policy=self.policy,
            workers=self.workers,
            **endless(store, replicated=self.replicated),
        )


@dataclass(frozen=True, slots=True)
class Held:
    """What processes hold, by role, in bytes, and how many there are."""

    held: Mapping[str, int]
    processes: Mapping[str, int]


def measure(report: Report | None = None, *, setting: Setting | None = None, iterations: int = ITERATIONS) -> Row:
    """Measure with the default replica and without one.

    Parameters
    ----------
    iterations
        Between the first look and the last one, which show what grows.

    Returns
    -------
    dict
        ``results``, for each system and role: ``processes``, ``models``, the memory of all of them together in sizes of
        the model, and ``grown``, by how much of that it has become more between the two looks; ``models`` and
        ``grown`` of all roles, by system.
    """
    chosen = setting or Setting()
    rows: list[Row] = []
    for one in (chosen, replace(chosen, replicated=False)):
        tiny, _ = _looks(replace(one, parameters=_TINY), 0)
        first, last = _looks(one, iterations)
        size = _ELEMENT_BYTES * parameters_of(one.parameters)
        for role, held in last.held.items():
            row = {
                "system": one.system,
                "role": role,
                "processes": last.processes[role],
                "models": (held - tiny.held.get(role, 0)) / size,
                "grown": (held - first.held.get(role, 0)) / size,
            }
            rows.append(row)
            if report is not None:
                report(row)
    totals = {
        name: {
            system: sum(row[name] for row in rows if row["system"] == system)
            for system in dict.fromkeys(row["system"] for row in rows)
        }
        for name in ("models", "grown")
    }
    return {"results": rows, **totals}


def _looks(setting: Setting, further: int) -> tuple[Held, Held]:
    """Return what processes hold after the warm-up, and after further iterations."""
    with watched(setting.job, setting.workers + 2) as (run, cluster):
        await_iterations(run, WARM_UP, LIMIT_S)
        look = partial(_look, run, cluster)
        first = look()
        await_iterations(run, iterations(run) + further, LIMIT_S + further * _AN_ITERATION_S)
        return first, look()


def _look(run: Run, cluster: Any) -> Held:
    roles = processes_by_role(run, cluster)
    held = {role: sum(held_bytes(pid) for pid in pids) for role, pids in roles.items()}
    return Held(held, {role: len(pids) for role, pids in roles.items()})
