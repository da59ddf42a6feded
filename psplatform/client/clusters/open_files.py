"""Open files: how many a process may have, and how many a run needs, seen before anything is started.

Where they run out, connections are neither made nor taken, and nobody can tell that from processes that are gone.
"""

from __future__ import annotations

import os
from itertools import chain
from typing import Final

from distributed import Client

from psplatform.core.supervision.placement import Placement
from psplatform.errors import ClusterError, ConfigurationError

_PROGRAM: Final = 26
_PROGRAM_EACH: Final = 10
"""Of a program that makes a cluster, for itself and for each of the processes: 68 files with 4, 101 with 7."""

_SERVING_EACH: Final = 9
"""Of a Dask worker that leads a run or has a server, for each process of the run: with 4 it opened some 36 more than it
had, with 7 some 89."""

_WORKING_EACH: Final = 1
"""Of a Dask worker that computes gradients: with 4 processes it opened some 6 more than it had, with 7 some 12.

All three ask for a little less than was used: what is refused would have failed."""


def files_left() -> int | None:
    """Return how many more files this process may open; ``None`` where there is no limit, or none is known."""
    try:
        import resource  # noqa: PLC0415  only Unix has it

        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return None if limit == resource.RLIM_INFINITY else max(0, limit - len(os.listdir("/dev/fd")))  # noqa: PTH208
    except (ImportError, OSError):
        return None


def require_files(processes: int) -> None:
    """Refuse to make a cluster of so many processes where this program may not open as many files as that takes.

    Raises
    ------
    ConfigurationError
        With both numbers and the remedy.
    """
    left, needed = files_left(), _PROGRAM + _PROGRAM_EACH * processes
    if left is not None and left < needed:
        raise ConfigurationError(
            f"this program may open only {left} more files, and a cluster of {processes} processes on this machine "
            f"takes {needed}; raise the limit with `ulimit -n 1024`, or ask for fewer workers and shards",
            field="workers",
        )


async def require_files_on(client: Client, placement: Placement) -> None:
    """Refuse Dask workers that may not open as many files as their part of a run takes.

    Raises
    ------
    ClusterError
        Naming the first, with both numbers and the remedy.
    """
    serving = {placement.coordinator, *placement.servers, *chain(*placement.replicas)}
    everybody = sorted(serving | {placement.evaluator, *placement.workers})
    found = await client.run(files_left, workers=everybody, on_error="return")
    for address in everybody:
        left = found.get(address)
        needed = (_SERVING_EACH if address in serving else _WORKING_EACH) * len(everybody)
        if isinstance(left, int) and left < needed:
            raise ClusterError(
                f"the Dask worker {address} may open only {left} more files, and its part of a run of "
                f"{len(everybody)} processes takes {needed}; start it again after `ulimit -n 1024`",
                peer=address,
            )
