"""``psplatform runs``: what a store or a scheduler knows of runs."""

from __future__ import annotations

import json
from pathlib import Path

import click

from psplatform.cli.follow import show
from psplatform.errors import StoreError
from psplatform.replication.places import place_of


@click.command()
@click.argument("store", required=False, metavar="[STORE|FOLDER]")
@click.option("--scheduler", metavar="ADDRESS", help="List the runs that go on there instead.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on the last line.")
def runs(store: str | None, *, scheduler: str | None, as_json: bool) -> None:
    """Show the run in STORE, list those in a FOLDER of stores (runs/ if none is given), or those on a scheduler."""
    from psplatform.client.run import Run  # noqa: PLC0415  brings Dask

    store = store and place_of(store)
    if scheduler is not None:
        _show_table(_on(scheduler), as_json=as_json)
    elif store is not None and not is_folder_of_stores(Path(store)):
        from psplatform.replication.checkpoints import held_checkpoints  # noqa: PLC0415  brings NumPy
        from psplatform.replication.store import describe_run  # noqa: PLC0415  brings Zarr

        status = Run(describe_run(store)["run"], store).status()
        held = [one.to_plain() for one in held_checkpoints(store)]
        show({**status, "summary": {**status["summary"], "checkpoints_held": held}}, as_json=as_json)
    else:
        _show_table(_below(Path(store or "runs")), as_json=as_json)


def is_folder_of_stores(path: Path) -> bool:
    """Whether stores of runs may lie in a folder: one that holds parts of a run is a store itself."""
    from psplatform.replication.store import holds_parts  # noqa: PLC0415  brings Zarr

    return path.is_dir() and not (path / "zarr.json").exists() and not holds_parts(str(path))


def _below(folder: Path) -> list[dict[str, str]]:
    return [_row(path.parent) for path in sorted(folder.glob("*/zarr.json"))]


def _row(store: Path) -> dict[str, str]:
    from psplatform.replication.store import describe_run  # noqa: PLC0415  brings Zarr

    try:
        found = describe_run(str(store))
    except StoreError:
        return {"run": "-", "outcome": "unreadable", "store": str(store)}
    return {"run": found["run"], "outcome": found.get("outcome", "open"), "store": str(store)}


def _on(scheduler: str) -> list[dict[str, str]]:
    from psplatform.client.connecting import connect  # noqa: PLC0415  brings Dask
    from psplatform.client.run import runs_on  # noqa: PLC0415

    with connect(scheduler) as client:
        return [{"run": run, "outcome": "running", "store": ""} for run in runs_on(client)]


def _show_table(rows: list[dict[str, str]], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"runs": rows}))
        return
    for row in rows:
        click.echo(f"{row['run']:32} {row['outcome']:16} {row['store']}")
    if not rows:
        click.echo("no runs")
