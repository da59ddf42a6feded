"""``psplatform bench``: measurements, each beside what it is compared with."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from psplatform.cli.progress import ProgressLine


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


def _run(measure: Callable[[Callable[[dict[str, Any]], None]], list[dict[str, Any]]], *, as_json: bool) -> None:
    with ProgressLine() as line:
        rows = measure(lambda row: line.say(", ".join(f"{name} {_text(value)}" for name, value in row.items())))
    if as_json:
        click.echo(json.dumps({"results": rows}))
        return
    headings = list(dict.fromkeys(name for row in rows for name in row))
    table = Table(*headings, box=None, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*(_text(row.get(name)) for name in headings))
    Console(highlight=False).print(table)


def _text(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
