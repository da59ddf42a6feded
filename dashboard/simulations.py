"""Simulations in the background: each a program of its own, whose result a page picks up when it is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from psplatform.client.runs.programs import Program
from psplatform.dashboard import programs
from psplatform.dashboard.forms.jobs import write_job
from psplatform.dashboard.read_models.expected import Expected, expected_of

_NICENESS: Final = 10
"""Training on the same machine goes first."""

_TIMES_ONLY: Final = "--timing-only"
"""Without gradients there is no loss to draw."""


@dataclass(slots=True)
class Simulation:
    """One or several jobs that are being simulated, or were."""

    name: str
    program: Program

    @property
    def running(self) -> bool:
        """Whether it goes on."""
        return self.program.running

    def found(self) -> tuple[list[Expected], dict[str, str]]:
        """Return what came of it, and why others failed, by name; both empty where the whole program failed."""
        result = self.program.result() or {}
        rows = result.get("results", [result] if "virtual_seconds" in result else [])
        failed = {str(one["policy"]): str(one["error"]) for one in rows if "error" in one}
        return [expected_of(self.name or str(one["policy"]), one) for one in rows if "error" not in one], failed

    def trouble(self) -> str:
        """Return the last line that the program printed, where it failed."""
        lines = self.program.output(3).strip().splitlines()
        return lines[-1] if lines else "the simulation ended without a word"


def simulate(
    job: Mapping[str, Any], *, name: str = "", policies: Sequence[str] = (), conditions: Sequence[str] = ()
) -> Simulation:
    """Begin to simulate a job, under several policies if they are named; `conditions` are options of the command.

    Raises
    ------
    ConfigurationError
        If the program cannot be started.
    """
    chosen = ["--policy", ",".join(policies)] if policies else []
    curves = [] if _TIMES_ONLY in conditions else ["--curves"]
    arguments = ["simulate", write_job(job), *chosen, *conditions, "--json", *curves]
    return Simulation(name, programs.start(arguments, niceness=_NICENESS))
