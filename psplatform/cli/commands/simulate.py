"""``psplatform simulate``: the same job on a modelled cluster, under one policy or all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from psplatform.cli.commands.faults import fuzz_options, run_faults
from psplatform.cli.commands.train import job_fields
from psplatform.cli.options import CONDITION_FLAGS, JOB_FLAGS, with_flags
from psplatform.cli.output import output_file, write_whole
from psplatform.cli.progress import ProgressLine, closing, show_table
from psplatform.cli.terminal import printable
from psplatform.errors import ConfigurationError, PsplatformError

if TYPE_CHECKING:
    from psplatform.simulation.driver import Simulated

_ALL = "all"
_EVALUATE_EVERY = 2
"""Updates between evaluations where nothing is said: they take no virtual time."""

_EPOCHS = 100
"""Passes over the data after which a simulation gives up a target where no other end is given."""


@click.command()
@click.argument("what", metavar="WORKLOAD|JOB.YAML")
@with_flags(JOB_FLAGS)
@with_flags(CONDITION_FLAGS)
@click.option("--plot", metavar="FILE.html", help="Draw loss against time into an HTML file.")
@click.option("--curves", is_flag=True, help="Add the loss over time to each result of --json.")
@fuzz_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object on the last line.")
def simulate(what: str, *, plot: str | None, as_json: bool, **given: Any) -> None:
    """Simulate WORKLOAD, or the job in a YAML file, on a modelled cluster, with the policy's real code.

    `--policy all` compares all policies, `--policy bsp,dbw` these two.  `--fuzz 2000` looks for faults that break the
    protocol.
    """
    asked = {name: given.pop(name) for name in ("fuzz", "faults")}
    if any(asked.values()):
        run_faults(what, asked, {**given, "plot": plot}, as_json=as_json)
        return
    # Loaded here because it takes seconds.
    from psplatform.jobs.job import Job  # noqa: PLC0415
    from psplatform.simulation.conditions import Conditions  # noqa: PLC0415

    conditions = Conditions(
        given.pop("compute"), given.pop("round_trip"), given.pop("network"), timing_only=bool(given.pop("timing_only"))
    )
    file = _drawable(plot, timing_only=conditions.timing_only)
    curves = given.pop("curves")
    _require_curves(curves, as_json=as_json, timing_only=conditions.timing_only)
    names = _policies(given["policy"], given["policy_options"])
    fields = job_fields(what, given)
    fields.pop("scheduler", None)
    fields.setdefault("evaluate_every", _EVALUATE_EVERY)
    fields["stop"] = _stop(fields["stop"], given, timing_only=conditions.timing_only)
    jobs = {str(name): Job(**{**fields, "policy": name}) for name in names or [fields.get("policy", "bsp")]}
    found, failures = _simulate_all(jobs, conditions, all_policies=given["policy"] == _ALL)
    try:
        if file is not None:
            _draw(found, file)
    finally:
        if len(jobs) > 1 or "," in (given["policy"] or ""):
            _show_comparison(found, failures, as_json=as_json, curves=curves)
        else:
            _show_one(*found.values(), as_json=as_json, curves=curves)
    if failures and given["policy"] != _ALL:
        click.get_current_context().exit(1)


def _policies(given: str | None, options: tuple[str, ...]) -> list[str]:
    """Return the names of the policies to simulate; none stands for the job file's or the default."""
    from psplatform.policies.registry import policy_class, policy_names  # noqa: PLC0415

    if given is None:
        return []
    names = policy_names() if given == _ALL else [name.strip() for name in given.split(",")]
    if len(names) > 1 and options:
        raise ConfigurationError("-o sets parameters of one policy; simulate that policy alone", field="policy_options")
    for name in names:
        policy_class(name)
    return names


def _stop(stop: dict[str, Any], given: dict[str, Any], *, timing_only: bool) -> dict[str, Any]:
    """Return the stop conditions under which a simulation ends, whatever the policy achieves."""
    if timing_only:
        # A workload's usual target cannot be met where nothing is computed; one that was asked for is refused later.
        stop = {name: one for name, one in stop.items() if "target" not in name or given.get(name) is not None}
    if not {"updates", "epochs", "seconds"} & stop.keys():
        stop = {**stop, "epochs": _EPOCHS}
    return stop


def _drawable(plot: str | None, *, timing_only: bool) -> Path | None:
    """Return the file to draw into, if there is to be one and it can be written."""
    if plot is None:
        return None
    if timing_only:
        raise ConfigurationError("a simulation of times only has no loss to draw", field="plot")
    if Path(plot).suffix != ".html":
        raise ConfigurationError(f"the picture is an HTML file; call it {Path(plot).stem}.html", field="plot")
    return output_file(plot)


def _require_curves(curves: bool, *, as_json: bool, timing_only: bool) -> None:
    if curves and timing_only:
        raise ConfigurationError("a simulation of times only has no loss to draw", field="curves")
    if curves and not as_json:
        raise ConfigurationError("curves are for programs; give --json as well, or --plot FILE.html", field="curves")


def _simulate_all(
    jobs: dict[str, Any], conditions: Any, *, all_policies: bool
) -> tuple[Mapping[str, Simulated], Mapping[str, PsplatformError]]:
    """Simulate the jobs; of policies nobody named, some may not fit the job as they are."""
    with ProgressLine() as line:
        line.say("loading")
        from psplatform.client.what_if import compare  # noqa: PLC0415  brings torch

        compared = compare(jobs, conditions, lenient=all_policies, report=line.say)
    return compared.found, compared.failures


def _draw(found: Mapping[str, Simulated], file: Path) -> None:
    from psplatform.dashboard.comparison import Curve, draw  # noqa: PLC0415  brings plotly

    curves = []
    for name, one in found.items():
        evaluated = tuple((each.at, each.loss) for each in one.view.evaluations.items)
        trained = tuple((each.at, each.value) for each in one.view.losses.items)
        curves.append(Curve(name, evaluated if one.view.evaluation_loss is not None else trained))
    try:
        write_whole(file, draw(curves).encode())
    except ConfigurationError as error:
        raise click.ClickException(printable(error)) from error  # exit code 1: something was started


def _show_one(one: Simulated, *, as_json: bool, curves: bool) -> None:
    if as_json:
        click.echo(json.dumps(_result(one, curves=curves)))
        return
    console = Console(highlight=False)
    console.print(closing({**one.summary(), "store": "none: a simulation"}))
    console.print(f"{one.events} events, log {one.trace_sha256[:16]}")


def _result(one: Simulated, *, curves: bool) -> dict[str, Any]:
    from psplatform.client.what_if import curve_of  # noqa: PLC0415  brings torch

    return {**one.summary(), "curve": curve_of(one)} if curves else one.summary()


def _show_comparison(
    found: Mapping[str, Simulated], failures: Mapping[str, PsplatformError], *, as_json: bool, curves: bool
) -> None:
    if as_json:
        failed = [{"policy": name, "error": str(error.args[0])} for name, error in failures.items()]
        click.echo(json.dumps({"results": [*(_result(one, curves=curves) for one in found.values()), *failed]}))
        return
    table = Table(box=None, padding=(0, 1, 0, 0))
    for heading in ("policy", "seconds", "target", "updates", "staleness", "most", "dropped", "waiting", "loss"):
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    for one in sorted(found.values(), key=lambda each: (not each.reached_target, each.virtual_seconds)):
        table.add_row(*_row(one))
    show_table(table)
    console = Console(highlight=False)
    for name, error in failures.items():
        console.print(f"{name}: {error.args[0]}", markup=False)


def _row(one: Simulated) -> list[str]:
    view = one.view
    target = {True: "reached", False: "missed", None: "-"}[one.reached_target]
    loss = "-" if view.evaluation_loss is None else f"{view.evaluation_loss:.4f}"
    return [
        view.run["policy"],
        f"{one.virtual_seconds:.2f}",
        target,
        str(view.updates),
        f"{view.staleness.mean:.2f}",
        str(view.staleness.max),
        str(view.dropped.total),
        f"{view.waiting_fraction:.0%}",
        loss,
    ]
