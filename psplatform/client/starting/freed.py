"""Memory that was freed, and that the C library keeps for later."""

from __future__ import annotations

import ctypes
import sys


def give_back_freed() -> None:
    """Give it back to the machine where that is possible, with glibc: what starting a run took is not needed again."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)
