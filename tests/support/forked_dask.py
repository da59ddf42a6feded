"""Dask's own programs, forked from a process that has imported what they need.

A test that starts nine Dask workers spends most of its time importing torch nine times.  These are processes of their
own, which run Dask's command line and get real signals.  They are warm from the start, and torch has one thread in
them; what begins cold is tried where documents and pages are, whose programs are started as their readers do it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import dask
from distributed import utils

from psplatform.client.clusters import forking

_TESTS: Final = str(Path(__file__).resolve().parents[1])
_PATH: Final = [one for one in sys.path if one and not one.startswith(_TESTS)]
"""Where the program that runs the tests imports from, before any of them changes that."""


class Program:
    """``dask ARGUMENTS`` in a folder, which can be asked and told what a `subprocess.Popen` can."""

    def __init__(self, *arguments: object, folder: Path, output: Path) -> None:
        forking.begin()
        context = multiprocessing.get_context("forkserver")
        words = [str(one) for one in arguments]
        # A daemon, as the processes of Dask's nannies are: it ends with this program.
        self._process = context.Process(target=_run, args=(words, folder, output, dict(os.environ), _PATH), daemon=True)
        self._process.start()

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal; ``None`` while it goes on."""
        return self._process.exitcode

    def wait(self, limit_s: float = 180.0) -> int:
        """Return its exit code once it has ended; raise `TimeoutError` if it goes on for so long."""
        self._process.join(limit_s)
        code = self.poll()
        if code is None:
            raise TimeoutError(f"process {self.pid} goes on after {limit_s:g} s")
        return code

    def send_signal(self, signal: int) -> None:
        """Send it a signal, if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, signal)

    def kill(self) -> None:
        """Kill it, stopped or not, if it has not ended."""
        if self.poll() is None:
            self._process.kill()


@contextlib.contextmanager
def nannies_fork() -> Iterator[None]:
    """Let nannies that are started meanwhile in this program fork their processes from the same one."""
    forking.begin()
    utils._forkserver_preload_set = True
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        yield


def _run(arguments: list[str], folder: Path, output: Path, environment: Mapping[str, str], path: list[str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    file = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for standard in (1, 2):
        os.dup2(file, standard)
    # As `python -m` begins: from the folder it was started in, and not from where a test has added something.
    named = [one for one in environment.get("PYTHONPATH", "").split(os.pathsep) if one]
    sys.path[:] = ["", *named, *(one for one in path if one not in named)]
    sys.argv = ["dask", *arguments]
    dask.config.refresh()
    from dask.__main__ import main

    main()
