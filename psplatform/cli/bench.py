"""``psplatform bench``: measurements, each beside what it is compared with."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from psplatform.cli.progress import ProgressLine

_LARGE = 1000.0
"""Numbers from here on are shown without digits after the point, and not in powers of ten."""


@click.group()
def bench() -> None:
    """Measure psplatform on this machine."""


def _json_option(command: Any) -> Any:
    return click.option("--json", "as_json", is_flag=True, help="One JSON object on the last line.")(command)


@bench.command()
@_json_option
def zipline(*, as_json: bool) -> None:
    """Time ZipLine, GridScan and FullGridScan beside the published figures, and check that they are exact."""
    from psplatform.bench.zipline import measure  # noqa: PLC0415  brings numpy

    _run(measure, as_json=as_json)


@bench.command()
@_json_option
def simulator(*, as_json: bool) -> None:
    """Time the simulator, up to ten thousand workers."""
    from psplatform.bench.simulator import measure  # noqa: PLC0415  brings torch

    _run(measure, as_json=as_json)


@bench.command()
@_json_option
def digits(*, as_json: bool) -> None:
    """Train digits under every policy with the same stragglers and settings, on a cluster of this machine."""
    from psplatform.bench.digits import measure  # noqa: PLC0415  brings Dask and torch

    _run(measure, as_json=as_json)


@bench.command()
@_json_option
def twin(*, as_json: bool) -> None:
    """Train digits under stragglers for real and simulated, and compare the times to the target."""
    from psplatform.bench.twin import measure  # noqa: PLC0415  brings Dask and torch

    _run(measure, as_json=as_json)


@bench.command()
@click.option("--workload", type=click.Choice(["mlp", "digits"]), default="mlp", help="What is trained. [mlp]")
@click.option("--seeds", type=click.IntRange(min=1), help="Runs per policy. [20, on digits 5]")
@_json_option
def dbw(*, workload: str, seeds: int | None, as_json: bool) -> None:
    """Compare DBW with every fixed number of backup workers by the simulated time to the same loss."""
    from psplatform.bench.dbw import measure  # noqa: PLC0415  brings torch

    chosen = None if seeds is None else range(1, seeds + 1)
    _run(lambda report: measure(report, workload=workload, seeds=chosen), as_json=as_json)


@bench.command()
@_json_option
def psp(*, as_json: bool) -> None:
    """Compare partial with whole pushes and pulls by the simulated time of 900 iterations under delays."""
    from psplatform.bench.psp import measure  # noqa: PLC0415  brings torch

    _run(measure, as_json=as_json)


def _run(measure: Callable[[Callable[[dict[str, Any]], None]], list[dict[str, Any]]], *, as_json: bool) -> None:
    with ProgressLine() as line:
        rows = measure(lambda row: line.say(", ".join(f"{name} {_text(value)}" for name, value in row.items())))
    if as_json:
        click.echo(json.dumps({"results": rows}))
        return
    headings = list(dict.fromkeys(name for row in rows for name in row))
    table = Table(*headings, box=None, padding=(0, 1, 0, 0))
    for row in rows:
        table.add_row(*(_text(row.get(name)) for name in headings))
    Console(highlight=False).print(table)


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= _LARGE else f"{value:.4g}"
    return str(value)
