"""Processes of embedded clusters, forked from one that has imported what they need.

Importing Dask, torch and Zarr takes a process seconds of one core.  Spawned processes do it one by one; forked ones
share what the fork server has imported once, in the background, while the program reads its job and data.

The fork server imports psplatform alone and nothing of the program: a program may have initialised CUDA while it was
imported, which does not survive a fork.  Every process imports the program's main module itself, as spawned ones do.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from multiprocessing import forkserver, spawn
from typing import Final

from psplatform.errors import ConfigurationError
from psplatform.runtime.allocation import RETURNING

_OF_TERMINALS: Final = (signal.SIGINT, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))
"""Signals that a terminal sends to all of its processes, by a key or when it is closed."""

PRELOADED: Final = ("psplatform.client.clusters.fork_server",)

HUGE_PAGES: Final[Mapping[str, str]] = {"THP_MEM_ALLOC_ENABLE": "1"}
"""Lets torch take large vectors from huge pages: they are faster to walk through, and their process ends a lot sooner
when it is killed, which is when its peers notice."""

BEFORE_START: Final[Mapping[str, str]] = {
    **RETURNING,
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    **HUGE_PAGES,
}
"""Variables that a process must find when it imports, unless the program has them."""

UNGUARDED: Final = 87
"""Exit code of a process whose import of the program would start a run: nothing else is likely to end with it."""

UNGUARDED_TEXT: Final = (
    "a run on this machine has processes that import the program, and importing it starts a run again; put what starts "
    'the run below `if __name__ == "__main__":`'
)
_DASK_WORKER: Final = "Dask Worker process (from Nanny)"
"""What Dask calls the processes of its nannies."""


def require_main_module() -> None:
    """Refuse to start a run where its processes could not import the program's main module, before any is started.

    A process of an embedded cluster that would start a run while it imports the program ends here instead: its exit
    code is `UNGUARDED`, of which the program is told by its nanny.

    Raises
    ------
    ConfigurationError
        If the program has no file, as one on standard input has none, or this process is still importing the program.
    """
    try:
        path = spawn.get_preparation_data("psplatform").get("init_main_from_path")
    except RuntimeError as error:  # what multiprocessing says in a process that imports the main module
        if multiprocessing.current_process().name == _DASK_WORKER:
            if PRELOADED[0] not in sys.modules:  # its nanny may not be one of an embedded cluster
                sys.stderr.write(f"{UNGUARDED_TEXT}\n")
                sys.stderr.flush()
            os._exit(UNGUARDED)
        raise ConfigurationError(UNGUARDED_TEXT) from error
    if path is not None and not os.path.exists(path):  # noqa: PTH110  as multiprocessing has it, a string
        raise ConfigurationError(
            f"a run on this machine has processes that import the program, and there is no file {path}; save the "
            'program in a file, with what starts the run below `if __name__ == "__main__":`'
        )


def begin() -> None:
    """Start the fork server, unless it runs; it imports while this program goes on.

    It ends with this program.
    """
    with _variables(), keyboard_is_ours():
        multiprocessing.set_forkserver_preload(list(PRELOADED))
        forkserver.ensure_running()


@contextlib.contextmanager
def _variables() -> Iterator[None]:
    missing = {name: value for name, value in BEFORE_START.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)


@contextlib.contextmanager
def keyboard_is_ours() -> Iterator[None]:
    """Let processes that are started meanwhile ignore Ctrl-C, and that their terminal is closed.

    Both reach every process of the terminal, and the run's must not end by it before this program has stopped the run
    in good order.  What a process ignores, those it starts ignore too.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _OF_TERMINALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
