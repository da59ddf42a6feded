"""The page beside a run that the command line starts: ``--dashboard``."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

import click

from psplatform.cli.terminal import printable, say
from psplatform.client.clusters.ports import free_port
from psplatform.dashboard.settings import LOCALHOST, PORT
from psplatform.errors import ConfigurationError, PsplatformError

if TYPE_CHECKING:
    from psplatform.client.run import Run

_ENDS_S = 10.0
_STARTS_S = 60


def with_page(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the options of a page beside its run."""
    chaos = click.option(
        "--allow-chaos", is_flag=True, help="With --dashboard: offer there to kill and pause processes of the run."
    )
    page = click.option("--dashboard", is_flag=True, help="Open a page that shows the run, and keep it open.")
    return page(chaos(command))


class Page:
    """A dashboard of its own process that shows one run, and stays until it is closed.

    Parameters
    ----------
    wanted
        Whether there is to be one; else nothing here does anything.
    allow_chaos
        Whether it offers to kill and pause processes of the run.
    stays
        Whether it is served until Ctrl-C once the run is over or has failed; a script goes on at once.

    Raises
    ------
    ConfigurationError
        If it is to offer that and is not wanted.
    """

    def __init__(self, *, wanted: bool, allow_chaos: bool = False, stays: bool = True) -> None:
        if allow_chaos and not wanted:
            text = "--allow-chaos adds buttons to the page that --dashboard opens; give both, or neither"
            raise ConfigurationError(text, field="allow_chaos")
        self.wanted = wanted
        self._stays = stays
        self._allow_chaos = allow_chaos
        self._process: subprocess.Popen[bytes] | None = None

    def open(self, run: Run, *, embedded: bool) -> None:
        """Serve the page of `run` and say where it is; `embedded` if its cluster ends with it."""
        if not self.wanted:
            return
        port = port_of_page()
        folder = run.store.rstrip("/").rpartition("/")[0]
        place = folder if "://" not in run.store else run.store
        arguments = ["dashboard", place, "--port", str(port), "--ends-with-stdin"]
        if run.client is not None and run.client.scheduler is not None:
            arguments += ["--scheduler", str(run.client.scheduler.address), *(["--passing"] if embedded else [])]
        arguments += ["--allow-chaos"] * self._allow_chaos
        command = [sys.executable, "-m", "psplatform", *arguments]
        # In a session of its own, as Ctrl-C is for the run first; however this program ends, the pipe ends with it.
        self._process = subprocess.Popen(  # noqa: S603  our own command
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
        )
        url = f"http://localhost:{port}"
        threading.Thread(target=_announce, args=(url, run.run), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is None:
            return
        if self._stays and (error is None or isinstance(error, PsplatformError)):
            if error is not None:
                click.echo(f"Error: {printable(error, lines=True)}", err=True)
            click.echo("The page stays open; press Ctrl-C to close it.", err=True)
            with contextlib.suppress(KeyboardInterrupt):
                self._process.wait()
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_ENDS_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def require_visible(store: str | None) -> None:
    """Refuse a store that no other process can see.

    Raises
    ------
    ConfigurationError
        If it is in this program's memory.
    """
    if store is not None and store.startswith("memory:"):
        text = "a page cannot see a store in the memory of this program; choose a folder or a URL, or no --dashboard"
        raise ConfigurationError(text, field="store")


def _announce(url: str, run: str) -> None:
    """Say where the page is once it answers."""
    for _ in range(_STARTS_S * 4):
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/_stcore/health", timeout=1):  # noqa: S310  ours
            break
        time.sleep(0.25)
    say(f"dashboard: {url}/overview?run={quote(run)}", err=True)


def port_of_page() -> int:
    """Return the usual port, or another where that is in use."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOCALHOST, PORT))
        except OSError:
            return free_port()
    return PORT
