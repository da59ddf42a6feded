"""Local files written past the page cache, where the file system allows it: Linux's ``O_DIRECT``.

What is read again only after a failure has no need to lie in memory: copying it there can take longer than all else
that is done to it, and drives out what others read.  Where it cannot be done, files are written as ever.
"""

from __future__ import annotations

import os
from contextlib import suppress
from fcntl import F_GETFL, F_SETFL, fcntl
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from pathlib import Path
from typing import Final

import numpy as np

from psplatform.replication.stores.checksums import Checksum

LEAST_BYTES: Final = 1 << 20
"""Smaller files go through the page cache: for each of many, the disk would be waited for."""

BLOCK_BYTES: Final = 4096
"""Offsets, lengths and addresses of direct writes must be multiples of the disk's logical block: of 512 or 4096 bytes.
Where it is larger, the write is refused, and made as ever."""

PIECE_BYTES: Final = 1 << 20
"""Copied to aligned memory and written at a time: small enough for a core's cache, large enough for a disk."""

_DIRECT: Final[int] = getattr(os, "O_DIRECT", 0)


def write(path: Path, data: bytes | memoryview, total: Checksum) -> None:
    """Write a file, whatever it held, and compute its checksum; after a failure nobody may rely on either.

    The checksum of each piece is computed while that is in the core's cache, where it was copied to be written.

    Raises
    ------
    OSError
        As by `Path.write_bytes`.
    """
    with path.open("wb") as file:
        written = 0
        if _DIRECT and len(data) >= LEAST_BYTES:
            written = _write_blocks(file.fileno(), data, total)
            file.seek(written)
        rest = memoryview(data)[written:]
        total.add(rest)
        file.write(rest)


def _write_blocks(file: int, data: bytes | memoryview, total: Checksum) -> int:
    """Write as many whole blocks as can be written directly; return how many bytes those are."""
    flags = fcntl(file, F_GETFL)
    content = np.frombuffer(data, np.uint8)
    aligned = np.frombuffer(mmap(-1, PIECE_BYTES, MAP_PRIVATE | MAP_ANONYMOUS), np.uint8)
    written, end = 0, len(content) // BLOCK_BYTES * BLOCK_BYTES
    with suppress(OSError):  # what is more than a refusal fails again where it is written as ever
        fcntl(file, F_SETFL, flags | _DIRECT)
        while written < end:
            size = min(PIECE_BYTES, end - written)
            np.copyto(aligned[:size], content[written : written + size])  # unlike a slice's assignment, without the GIL
            done = os.pwrite(file, aligned[:size].data, written)
            total.add(aligned[:done].data)
            written += done
    fcntl(file, F_SETFL, flags)
    return written
