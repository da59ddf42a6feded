"""How much freed memory a process that computes keeps for its next gradient.

Each gradient takes and frees tensors of the same sizes.  Memory that goes back to the kernel in between has to be
cleared page by page when it is taken again, which takes as long as the arithmetic, on virtual machines above all.
Dask's nannies make that worse: to have little memory held, they let the C library return everything above 64 KiB.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from functools import cache
from typing import Final

_KEPT_BYTES: Final = 128 << 20
"""Free bytes at the top of an arena of the C library, above which they are returned to the kernel."""

_LARGE_BYTES: Final = 32 << 20
"""Requests of so many bytes or more get a mapping of their own, which is returned when it is freed.

It is the most that glibc accepts.
"""

_TRIM_THRESHOLD: Final = "MALLOC_TRIM_THRESHOLD_"
_MMAP_THRESHOLD: Final = "MALLOC_MMAP_THRESHOLD_"
_DASKS: Final = "65536"

RETURNING: Final[Mapping[str, str]] = {_TRIM_THRESHOLD: _DASKS}
"""Variables that Dask's nannies set, and embedded clusters as well, for the processes that do not compute."""

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3

_VARIABLES: Final[Mapping[str, str]] = {_TRIM_THRESHOLD: str(_KEPT_BYTES), _MMAP_THRESHOLD: str(_LARGE_BYTES)}


def _is_chosen(environment: Mapping[str, str]) -> bool:
    chosen = environment.get(_TRIM_THRESHOLD, _DASKS) != _DASKS or _MMAP_THRESHOLD in environment
    return chosen or "malloc" in environment.get("GLIBC_TUNABLES", "")


def environment_that_keeps(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which a process does from its start what `keep_freed_memory` does."""
    return dict(environment) if _is_chosen(environment) else {**environment, **_VARIABLES}


@cache
def keep_freed_memory() -> bool:
    """Let this process keep memory that it frees from now on, within limits; return whether this has changed anything.

    Call it after what is made once has been made, so that memory freed until then is still returned.  It does nothing
    where the environment says otherwise, for which what Dask's nannies set does not count, or where the C library is
    another than glibc.  The result is cached: it belongs to the process, and to those that are forked from it.
    """
    if _is_chosen(os.environ):
        return False
    try:
        tune = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(tune(_M_MMAP_THRESHOLD, _LARGE_BYTES) and tune(_M_TRIM_THRESHOLD, _KEPT_BYTES))
