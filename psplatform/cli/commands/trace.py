"""``psplatform trace``: the run times of a run, as a file that other runs are simulated or slowed down with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import click

from psplatform.cli.output import output_file, write_whole
from psplatform.cli.terminal import say
from psplatform.errors import ConfigurationError
from psplatform.replication.stores.places import place_of

if TYPE_CHECKING:
    from psplatform.telemetry.log.segments import Record
    from psplatform.telemetry.trace import RunTime


@click.command()
@click.argument("run", metavar="STORE|FOLDER")
@click.option("--output", metavar="FILE.csv", help="File to write; standard output if not given.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on the last line; needs --output.")
def trace(run: str, *, output: str | None, as_json: bool) -> None:
    """Export how long each gradient of the run in STORE took, as CSV.

    The run may be over or go on; of a FOLDER of stores the only one is taken.  The file is what `simulate --compute
    trace:FILE`, `train --stragglers trace:FILE` and `fit-cutoff FILE` read.

    Columns: slot and sequence, counted from 0 without gaps; seconds of computing; pull_s, push_s and wait_s, seconds
    of fetching parameters, of bringing the gradient to the servers and of waiting before; version, the round under a
    synchronous policy; censored, 1 for a gradient that was cut off, whose time is only known to be above the seconds
    given: the longest of those accepted in its round.  `fit-cutoff` leaves out rounds with such; a simulation takes
    them for times, so trace a run whose workers are not cut off, such as one of bsp.
    """
    if as_json and output is None:
        raise ConfigurationError("--json tells about the file that was written; give --output as well", field="output")
    file = None if output is None else output_file(output)
    name, times = _traced(_store(run))
    from psplatform.telemetry.trace import to_csv  # noqa: PLC0415  with the log's reader

    text = to_csv(times)
    if file is None:
        click.echo(text, nl=False)
        return
    write_whole(file, text.encode())
    _tell(name, times, str(output), as_json=as_json)


def _store(name: str) -> str:
    """Return the store that is meant by a store or the folder that holds one."""
    from psplatform.client.runs.listing import is_folder_of_stores  # noqa: PLC0415  brings Zarr

    name = place_of(name)
    folder = Path(name)
    if not is_folder_of_stores(folder):
        return name
    stores = sorted(path.parent for path in folder.glob("*/zarr.json"))
    if len(stores) > 1:
        listed = ", ".join(map(str, stores[:4])) + (" and more" if len(stores) > 4 else "")
        raise ConfigurationError(f"{name} holds {len(stores)} stores; name one of them: {listed}", field="run")
    return str(stores[0]) if stores else name


def _traced(store: str) -> tuple[str, list[RunTime]]:
    """Return the run's id, and its run times: at least one."""
    from psplatform.replication.stores.store import describe_run  # noqa: PLC0415  brings Zarr
    from psplatform.telemetry.trace import run_times  # noqa: PLC0415  with the log's reader

    name = str(describe_run(store)["run"])
    times = run_times(_records(store))
    if not times:
        raise ConfigurationError(f"the log of run {name} holds no gradient yet; wait for its first", field="run")
    return name, times


def _records(store: str) -> Iterator[Record]:
    from psplatform.telemetry.log.kinds import all_of  # noqa: PLC0415  with the log's reader
    from psplatform.telemetry.log.reader import LogReader  # noqa: PLC0415  brings fsspec

    yield from all_of(records for records, _ in LogReader(store).iter_from())


def _tell(name: str, times: list[RunTime], file: str, *, as_json: bool) -> None:
    workers = len({one.slot for one in times})
    known = [one.seconds for one in times if not one.censored]
    censored, mean = len(times) - len(known), fmean(known)
    if as_json:
        found = {"run": name, "workers": workers, "gradients": len(known), "censored": censored}
        click.echo(json.dumps({**found, "seconds_mean": mean, "file": file}))
        return
    cut_off = f", and {censored} that were cut off" if censored else ""
    say(f"{file}: {len(known)} gradients of {workers} workers, {mean:.4g} s on average{cut_off}")
    say(f"replay it: psplatform simulate WORKLOAD --workers {workers} --compute trace:{file}")
