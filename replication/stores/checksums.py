"""Checksums of what a store holds, told with their kind: ``crc32c:`` and eight hexadecimal digits, for instance.

They are to notice damage, not forgery.  Time counts, because the bulk of a checkpoint goes through them while training
goes on: CRC-32C, for which processors have an instruction, takes less than half the time of CRC-32.  Where the package
google-crc32c has no compiled part for the platform, what is written has a CRC-32, and CRC-32C is read slowly.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final
from zlib import crc32

import google_crc32c
import numpy as np

Data = bytes | memoryview

PIECE_BYTES: Final = 1 << 20
"""Checked at a time where the library holds the interpreter: other threads wait meanwhile."""

_CRC32: Final = "crc32"
_CRC32C: Final = "crc32c"

_KIND: Final = _CRC32C if google_crc32c.implementation == "c" else _CRC32
"""Of what is written here: where google-crc32c has no compiled part, CRC-32 is faster."""


class Checksum:
    """A checksum computed piece by piece; as text it is what stores keep.

    It differs after any change within 32 bits in a row; of all other damage, one case in 2**32 passes unnoticed.

    Parameters
    ----------
    kind
        ``crc32c``, or ``crc32`` as stores had before.
    """

    def __init__(self, kind: str = _KIND) -> None:
        self._kind = kind
        self._value = 0

    @classmethod
    def like(cls, told: str) -> Checksum:
        """Return one to compute what a store keeps anew: of the same kind, over no bytes yet."""
        return cls(_kind_of(told))

    def add(self, data: Data) -> None:
        """Go on with the bytes that follow."""
        if self._kind == _CRC32:
            self._value = crc32(data, self._value)
        elif isinstance(data, bytes):
            self._value = google_crc32c.extend(self._value, data)
        else:  # the library takes bytes and arrays, and no memoryviews
            content = np.frombuffer(data, np.uint8)
            for start in range(0, len(content), PIECE_BYTES):
                self._value = google_crc32c.extend(self._value, content[start : start + PIECE_BYTES])

    def __str__(self) -> str:
        return f"{self._kind}:{self._value:08x}"


def checksum(data: Data, kind: str = _KIND) -> str:
    """Return the checksum of bytes, with its kind."""
    total = Checksum(kind)
    total.add(data)
    return str(total)


def agrees(told: str, data: Data) -> bool:
    """Whether bytes have the checksum that a store keeps of them, of whatever kind it is."""
    if ":" not in told:  # before checksums named their kind, they were fingerprints
        return told == fingerprint(data)
    return told == checksum(data, _kind_of(told))


def _kind_of(told: str) -> str:
    return _CRC32 if told.startswith(f"{_CRC32}:") else _CRC32C


def fingerprint(data: Data) -> str:
    """Return the checksum of what vouches for other objects, a manifest for instance: BLAKE2b of 128 bits."""
    return blake2b(data, digest_size=16).hexdigest()
