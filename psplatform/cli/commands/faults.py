"""Searching for faults that break the protocol, and running one such trial again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from psplatform.cli.commands.train import pairs
from psplatform.cli.options import with_options
from psplatform.cli.progress import ProgressLine
from psplatform.cli.terminal import say
from psplatform.errors import ConfigurationError
from psplatform.untrusted.files import read_named
from psplatform.untrusted.values import from_json

if TYPE_CHECKING:
    from psplatform.simulation.faults.fuzzing import Search

_BESIDE = frozenset({"seed", "workload_options"})
_TRIAL_BYTES = 4 << 20
_SHOWN = 40
"""Phases of the coverage that people are shown: the rest is in the JSON."""


def fuzz_options(command: Any) -> Any:
    """Add the options of fault simulation to a click command."""
    options = [
        click.option(
            "--fuzz", metavar="N", help="Try N random fault schedules on small trainings, checking everything."
        ),
        click.option("--faults", metavar="FILE", help="Run the trial in a JSON file, as --fuzz prints it, again."),
    ]
    return with_options(options)(command)


def run_faults(what: str, asked: Mapping[str, Any], given: Mapping[str, Any], *, as_json: bool) -> None:
    """Do what the options of fault simulation ask for; the process ends with 1 if an invariant was violated.

    Raises
    ------
    ConfigurationError
        If two of them are given, an option does not go with them, or a file is no trial.
    """
    chosen = [name for name in ("fuzz", "faults") if asked.get(name)]
    if len(chosen) > 1:
        raise ConfigurationError(f"give either --{chosen[0]} or --{chosen[1]}, not both", field=chosen[1])
    for name, value in given.items():
        if value not in (None, (), False) and name not in _BESIDE:
            remedy = "a trial draws its own policy, sizes and protection; leave it out"
            raise ConfigurationError(f"--{name.replace('_', '-')} does not go with --{chosen[0]}: {remedy}", field=name)
    if chosen == ["faults"]:
        _replay(asked["faults"], as_json=as_json)
    else:
        options = pairs(given.get("workload_options", ()), "options")
        _search(what, _whole(asked["fuzz"], "fuzz", 1), _whole(given.get("seed") or "0", "seed", 0), options, as_json)


def _whole(text: str, field: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise ConfigurationError(f"{field} must be a whole number of at least {least}, not {text!r}", field=field)
    return number


def _search(what: str, schedules: int, seed: int, options: Mapping[str, Any], as_json: bool) -> None:
    from psplatform.simulation.faults.fuzzing import search  # noqa: PLC0415  brings torch
    from psplatform.workloads.registry import find_workload  # noqa: PLC0415

    find_workload(what).make(options)
    with ProgressLine() as line:
        line.say("loading")
        found = search(
            schedules,
            seed=seed,
            workload=what,
            options=options,
            progress=lambda done, wrong: line.step(f"{done} of {schedules} schedules, {wrong} violations"),
        )
    if as_json:
        click.echo(json.dumps(found.summary()))
    else:
        _show(found)
    if found.violations:
        click.get_current_context().exit(1)


def _show(found: Search) -> None:
    console = Console(highlight=False)
    summary = found.summary()
    for one in summary["violations"]:
        console.print(f"seed {one['seed']}: {one['invariant']} is violated: {one['found']}", markup=False)
        console.print(json.dumps(one["schedule"]), markup=False, soft_wrap=True)
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("faults met", no_wrap=True)
    table.add_column("times", justify="right")
    for name, count in found.met.most_common(_SHOWN):
        table.add_row(name, str(count))
    console.print(table)
    figures = {name: value for name, value in summary.items() if isinstance(value, int)}
    console.print(", ".join(f"{value} {name.replace('_', ' ')}" for name, value in figures.items()))
    console.print(f"{len(found.violations)} violations")


def _replay(file: str, *, as_json: bool) -> None:
    from psplatform.simulation.faults.execution import run_trial  # noqa: PLC0415  brings torch
    from psplatform.simulation.faults.schedules.trial import Trial  # noqa: PLC0415
    from psplatform.simulation.threads import one_thread  # noqa: PLC0415

    trial = Trial.from_plain(_read(file))
    with one_thread():
        verdict = run_trial(trial)
    if as_json:
        click.echo(json.dumps(verdict.summary()))
    elif verdict.invariant:
        say(f"{verdict.invariant} is violated: {verdict.found}")
    else:
        say(f"nothing is violated; the run ended: {verdict.outcome} ({verdict.detail})")
    if verdict.invariant:
        click.get_current_context().exit(1)


def _read(file: str) -> dict[str, Any]:
    try:
        plain = from_json(read_named(file, _TRIAL_BYTES))
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"cannot read {file}: {error}; give a JSON file with a trial", field="faults"
        ) from None
    if not isinstance(plain, dict):
        raise ConfigurationError(f"{file} holds no trial; give the object that --fuzz prints", field="faults")
    return plain
