"""``psplatform dashboard``: runs in the browser."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
from pathlib import Path

import click

from psplatform.dashboard.settings import LOCALHOST, PORT, Settings
from psplatform.errors import ConfigurationError


@click.command()
@click.argument("place", required=False, metavar="[STORE|FOLDER]")
@click.option("--scheduler", metavar="ADDRESS", help="Scheduler to ask for what is live, and to start runs on.")
@click.option("--passing", is_flag=True, hidden=True, help="The scheduler is one run's own and ends with it.")
@click.option("--ends-with-stdin", is_flag=True, hidden=True, help="End when standard input is closed.")
@click.option("--job", "jobs", multiple=True, metavar="FILE", help="Job file that may be started from the page.")
@click.option("--allow-chaos", is_flag=True, help="Offer to kill and pause processes of a run.")
@click.option("--port", type=click.IntRange(1, 65535), default=PORT, help=f"Port of the page. [{PORT}]")
@click.option("--address", default=LOCALHOST, help=f"Address to listen on. [{LOCALHOST}: this machine only]")
def dashboard(
    place: str | None,
    *,
    scheduler: str | None,
    passing: bool,
    ends_with_stdin: bool,
    jobs: tuple[str, ...],
    allow_chaos: bool,
    port: int,
    address: str,
) -> None:
    """See, configure, start, break and recover runs in the browser.

    Shows the run in STORE, or those in a FOLDER of stores (runs/ if none is given).  Stores are read as they are, so
    this works after the cluster is gone; a scheduler is asked only if it is given.
    """
    settings = settings_for(
        place,
        scheduler=scheduler,
        passing=passing,
        jobs=jobs,
        allow_chaos=allow_chaos,
        port=port,
        address=address,
    )
    from psplatform.dashboard.server import require_port, serve  # noqa: PLC0415

    require_port(settings)
    if ends_with_stdin:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    announce(settings)
    serve(settings)


def settings_for(
    place: str | None,
    *,
    scheduler: str | None = None,
    passing: bool = False,
    jobs: tuple[str, ...] = (),
    allow_chaos: bool = False,
    port: int = PORT,
    address: str = LOCALHOST,
) -> Settings:
    """Return what a dashboard shows and may do.

    Raises
    ------
    ConfigurationError
        If a job file is not there, or two have the same name.
    """
    from psplatform.replication.stores.places import place_of  # noqa: PLC0415

    where = place_of(place or "runs")
    is_store = place is not None and _is_store(where)
    folder = where.rstrip("/").rpartition("/")[0] or "." if is_store else where
    return Settings(
        folder=_absolute(folder),
        store=_absolute(where) if is_store else None,
        scheduler=scheduler,
        passing=passing,
        jobs=_job_files(jobs),
        allow_chaos=allow_chaos,
        address=address,
        port=port,
        records=str(_records_of(_absolute(folder))),
    )


def _end_with_stdin() -> None:
    """End this process in good order once the program at the other end of standard input has ended."""
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


def announce(settings: Settings) -> None:
    """Say where the page is, and loudly who else reaches it."""
    host = "localhost" if settings.is_local else settings.address
    what, who = (
        settings.store or settings.folder,
        "this machine" if settings.is_local else "every machine that reaches it",
    )
    click.echo(f"dashboard of {what}: http://{host}:{settings.port} (open to every user of {who}; Ctrl-C ends it)")
    if not settings.is_local:
        text = (
            f"WARNING: it listens on {settings.address}: anyone who reaches that address can start, stop"
            f"{', kill' if settings.allow_chaos else ''} and recover runs as {os.environ.get('USER', 'you')}. "
            "Take --address 127.0.0.1 and an SSH tunnel instead."
        )
        click.secho(text, fg="red", bold=True, err=True)


def _is_store(place: str) -> bool:
    """Whether a place holds a run, and not a folder of runs; one that does not exist yet is a folder."""
    from psplatform.client.runs.listing import is_folder_of_stores  # noqa: PLC0415  brings Zarr
    from psplatform.replication.stores.objects import file_system_of  # noqa: PLC0415

    if "://" not in place:
        return Path(place).exists() and not is_folder_of_stores(Path(place))
    try:
        files, root = file_system_of(place)
        return bool(files.exists(f"{root.rstrip('/')}/zarr.json"))
    except Exception:  # noqa: BLE001  every fsspec driver has exceptions of its own; the page says what is wrong
        return True


def _absolute(place: str) -> str:
    return place if "://" in place else str(Path(place).absolute())


def _job_files(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for name in names:
        path = Path(name).expanduser().absolute()
        if not path.is_file():
            raise ConfigurationError(f"there is no job file {name}; check the path", field="job")
        if path.name in found:
            raise ConfigurationError(f"two job files are called {path.name}; rename one of them", field="job")
        found[path.name] = str(path)
    return tuple(found.items())


def _records_of(folder: str) -> Path:
    """Return this user's own folder for records of the programs that are started for a folder of runs."""
    from psplatform.client.runs.records import state_folder  # noqa: PLC0415

    return state_folder() / hashlib.sha256(folder.encode()).hexdigest()[:16]
