"""Reader of IDX files, the format of MNIST and its relatives.

A file is two zero bytes, a byte for the element type, a byte for the number of dimensions, each dimension as a
big-endian 32-bit number, and the elements, big-endian, last dimension fastest.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psplatform.errors import ConfigurationError

_ELEMENT_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_GZIP_MAGIC = b"\x1f\x8b"


def read_idx(path: Path, *, dimensions: int) -> NDArray[Any]:
    """Read an array of so many dimensions from an IDX file, plain or compressed by gzip.

    Raises
    ------
    ConfigurationError
        With field ``folder``, if the file cannot be read, is no IDX file, has other dimensions or another length.
    """
    content = _content(path)
    zeros, code, found = struct.unpack(">HBB", content[:4].ljust(4, b"\xff"))
    if zeros != 0 or code not in _ELEMENT_TYPES:
        raise _unusable(path, f"does not start like an IDX file (magic {content[:4].hex() or 'missing'})")
    if found != dimensions:
        raise _unusable(path, f"has {found} dimensions where {dimensions} are due")
    start = 4 + 4 * dimensions
    shape = np.frombuffer(content[4:start], dtype=">u4").tolist() if len(content) >= start else []
    element = np.dtype(_ELEMENT_TYPES[code])
    due = start + math.prod(shape) * element.itemsize
    if not shape or len(content) != due:
        raise _unusable(path, f"is truncated or damaged: {len(content)} bytes where {due} are due")
    return np.frombuffer(content, dtype=element, offset=start).reshape(shape).astype(element.newbyteorder("="))


def _content(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if raw.startswith(_GZIP_MAGIC) else raw
    except (OSError, EOFError, zlib.error) as error:
        raise _unusable(path, f"cannot be read ({error})") from error


def _unusable(path: Path, reason: str) -> ConfigurationError:
    return ConfigurationError(f"The file {path} {reason}; download it again.", field="folder")
