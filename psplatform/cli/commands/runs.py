"""``psplatform runs``: what a store or a scheduler knows of runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from psplatform.cli.follow import show
from psplatform.cli.terminal import printable, say
from psplatform.errors import ConfigurationError
from psplatform.replication.stores.places import place_of

if TYPE_CHECKING:
    from psplatform.client.runs.listing import Listed


@click.command()
@click.argument("store", required=False, metavar="[STORE|FOLDER]")
@click.option("--scheduler", metavar="ADDRESS", help="List the runs that go on there instead.")
@click.option("--verify", is_flag=True, help="Read every byte of STORE: its log, its models, its checkpoints.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on the last line.")
def runs(store: str | None, *, scheduler: str | None, verify: bool, as_json: bool) -> None:
    """Show the run in STORE, list those in a FOLDER of stores (runs/ if none is given), or those on a scheduler.

    Each is live, finished, failed, recoverable or foreign (no run that this psplatform reads).

    With --verify, say of the log, the saved models and each checkpoint in STORE whether it is complete, damaged, and by
    what, missing, or incomplete: never finished.  The exit code is 0 where nothing is damaged or missing, and else 2.
    """
    from psplatform.client.runs.listing import is_folder_of_stores, list_runs  # noqa: PLC0415  brings Zarr

    store = store and place_of(store)
    if verify:
        _verify(store, scheduler, as_json=as_json)
    elif scheduler is not None:
        _show_table(_on(scheduler), as_json=as_json)
    elif store is not None and not is_folder_of_stores(Path(store)):
        _show_one(store, as_json=as_json)
    else:
        _show_table([_row(one) for one in list_runs(store or "runs")], as_json=as_json)


def _verify(store: str | None, scheduler: str | None, *, as_json: bool) -> None:
    from psplatform.cli.commands.verify import show_verified  # noqa: PLC0415

    if store is None or scheduler is not None:
        text = "--verify reads one store from end to end; name it, as in psplatform runs STORE --verify"
        raise ConfigurationError(text, field="verify")
    show_verified(store, as_json=as_json)


def _show_one(store: str, *, as_json: bool) -> None:
    from psplatform.client.run import Run  # noqa: PLC0415  brings Dask
    from psplatform.client.runs.listing import look_at  # noqa: PLC0415  brings Zarr
    from psplatform.replication.checkpoints.retention import held_checkpoints  # noqa: PLC0415  brings NumPy
    from psplatform.replication.stores.store import describe_run  # noqa: PLC0415  brings Zarr

    status = Run(describe_run(store)["run"], store).status()
    held = [one.to_plain() for one in held_checkpoints(store)]
    listed = look_at(store)
    known = {"checkpoints_held": held, "state": listed.state.value, "reason": listed.reason}
    if "run" not in status["summary"] and not as_json:
        say(f"run {listed.run} has no log: {listed.state.value}; {listed.reason}")
    show({**status, "summary": {**status["summary"], **known}}, as_json=as_json)


def _row(one: Listed) -> dict[str, str]:
    readable = bool(one.description)
    return {
        "run": one.run if readable else "-",
        "outcome": str(one.description.get("outcome", "open")) if readable else "unreadable",
        "store": one.store,
        "state": one.state.value,
        "reason": one.reason,
        "policy": str(one.description.get("policy", "")),
        "workload": str(one.description.get("workload", "")),
    }


def _on(scheduler: str) -> list[dict[str, str]]:
    from psplatform.client.clusters.connecting import connect  # noqa: PLC0415  brings Dask
    from psplatform.client.runs.attaching import runs_on  # noqa: PLC0415

    same = {"outcome": "running", "store": "", "state": "live", "reason": "its scheduler says that it goes on"}
    with connect(scheduler) as client:
        return [{"run": run, **same} for run in runs_on(client)]


def _show_table(rows: list[dict[str, str]], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"runs": rows}))
        return
    for row in rows:
        shown = {name: printable(text) for name, text in row.items()}
        click.echo(f"{shown['run']:32} {shown['state']:11} {shown['outcome']:16} {shown['store']}")
    if not rows:
        click.echo("no runs")
