"""Local files written past the system's memory, where their file system can: Linux's ``O_DIRECT``.

What is read again only after a failure has no need to lie in memory: copying it there takes longer than all else that
is done to it, and drives out what others read.  Where it cannot be done, files are written as ever.
"""

from __future__ import annotations

import errno
import os
from fcntl import F_GETFL, F_SETFL, fcntl
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from pathlib import Path
from typing import Final

LEAST_BYTES: Final = 1 << 20
"""Of a smaller file, waiting for the disk costs more than copying."""

BLOCK_BYTES: Final = 4096
"""Where what is written directly begins and ends, in the file and in memory, must be a multiple of the disk's blocks:
they are of this size or of smaller ones that it is a multiple of."""

PIECE_BYTES: Final = 1 << 20
"""Memory that is needed: that of the content need not begin where a block could."""

_DIRECT: Final[int] = getattr(os, "O_DIRECT", 0)


def write(path: Path, data: bytes | memoryview) -> None:
    """Write a file, whatever it held; after a failure nobody may rely on it.

    Raises
    ------
    OSError
        As by `Path.write_bytes`.
    """
    content = memoryview(data)
    with path.open("wb", buffering=0) as file:
        written = _write_blocks(file.fileno(), content) if _DIRECT and len(content) >= LEAST_BYTES else 0
        while written < len(content):
            written += os.pwrite(file.fileno(), content[written:], written)


def _write_blocks(file: int, content: memoryview) -> int:
    """Write as many whole blocks as the file system takes directly; return how many bytes those are."""
    flags = fcntl(file, F_GETFL)
    aligned = memoryview(mmap(-1, PIECE_BYTES, MAP_PRIVATE | MAP_ANONYMOUS))
    written, end = 0, len(content) // BLOCK_BYTES * BLOCK_BYTES
    try:
        fcntl(file, F_SETFL, flags | _DIRECT)
        while written < end and written % BLOCK_BYTES == 0:
            size = min(PIECE_BYTES, end - written)
            aligned[:size] = content[written : written + size]
            written += os.pwrite(file, aligned[:size], written)
    except OSError as error:
        if error.errno != errno.EINVAL:  # "not in this file system", or "not in such blocks"
            raise
    finally:
        fcntl(file, F_SETFL, flags)
    return written
