"""How much freed memory a process that computes keeps for its next gradient.

Each gradient takes and frees tensors of the same sizes.  Memory that goes back to the kernel in between has to be
cleared page by page when it is taken again, which takes as long as the arithmetic, on virtual machines above all.
Dask's nannies make that worse: to have little memory held, they let the C library return everything above 64 KiB.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from typing import Final

_KEPT_BYTES: Final = 128 << 20
"""Of free memory that stays with the process; and so much at most, whatever was freed."""

_LARGE_BYTES: Final = 32 << 20
"""From which on memory is taken from the kernel and returned to it by itself: the most that glibc allows for."""

_TRIM_THRESHOLD: Final = "MALLOC_TRIM_THRESHOLD_"
_MMAP_THRESHOLD: Final = "MALLOC_MMAP_THRESHOLD_"
_DASKS: Final = "65536"
"""What Dask's nannies set, for no reason that a run has."""

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3

VARIABLES: Final[Mapping[str, str]] = {_TRIM_THRESHOLD: str(_KEPT_BYTES), _MMAP_THRESHOLD: str(_LARGE_BYTES)}
"""Of the environment, which do the same for a process that finds them when it starts."""


def keep_freed_memory() -> bool:
    """Let this process keep memory that it frees from now on, within limits; return whether it does.

    To be called when what is made once has been made, which else would leave its memory behind.  It does nothing where
    the environment says otherwise, or where the C library is another than glibc.
    """
    chosen = os.environ.get(_TRIM_THRESHOLD, _DASKS) != _DASKS or _MMAP_THRESHOLD in os.environ
    if chosen or "malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    try:
        tune = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(tune(_M_MMAP_THRESHOLD, _LARGE_BYTES) and tune(_M_TRIM_THRESHOLD, _KEPT_BYTES))
