"""``psplatform attach``: a run that another program started."""

from __future__ import annotations

import click

from psplatform.cli.progress import ProgressLine


@click.command()
@click.argument("run", metavar="RUN|STORE")
@click.option(
    "--scheduler", metavar="ADDRESS", help="Scheduler it runs on; by default the one on which you have started it."
)
@click.option("--stop", is_flag=True, help="End the run in good order.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on the last line.")
def attach(run: str, *, scheduler: str | None, stop: bool, as_json: bool) -> None:
    """Show the run of that id or store until it is over.  Ctrl-C leaves it alone.

    Without --scheduler, the one on which you have started the run is asked.  What its store says is not believed: Dask
    runs what a scheduler answers.
    """
    from psplatform.cli.follow import follow  # noqa: PLC0415  brings Dask, which takes a second
    from psplatform.client.clusters.connecting import connect  # noqa: PLC0415
    from psplatform.client.runs.attaching import attach as attach_to  # noqa: PLC0415

    client = connect(scheduler) if scheduler else None
    found = attach_to(run, client)
    try:
        with ProgressLine() as line:
            if stop:
                found.stop("stopped by psplatform attach --stop")
            follow(found, line, as_json=as_json, stop_on_interrupt=False)
    finally:
        found.close()
        if client is not None:
            client.close()
