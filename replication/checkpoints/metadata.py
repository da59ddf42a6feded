"""The Zarr metadata of arrays that others wrote, and the size of their chunks, looked at before Zarr acts on it.

Zarr allocates what a shape says, and a chunk's codec what the chunk says.  So shapes must fit into the memory of this
machine, all arrays together, and a chunk must not claim more than its part of the array.  Codecs are those that
psplatform has written with; no other is looked for.
"""

from __future__ import annotations

import math
import os
import threading
from dataclasses import dataclass, field
from typing import Any, Final

from psplatform.tensors.layout import ITEM_BYTES
from psplatform.untrusted.checks import are_counts
from psplatform.untrusted.files import METADATA_BYTES
from psplatform.untrusted.values import Refused, from_json

DOCUMENT: Final = "zarr.json"
_CODECS: Final = (["bytes"], ["bytes", "zstd"])
_MOST_AXES: Final = 64
_MOST_ARRAYS: Final = 1_000_000
_SMALLEST_CHUNK: Final = 4096
"""Bytes that a chunk has at least, on average: Zarr asks for each, be it there or not."""
_ZSTD: Final = b"\x28\xb5\x2f\xfd"


def memory_bytes() -> int:
    """Return the bytes of memory that this machine has."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return 1 << 40


@dataclass(frozen=True, slots=True)
class Promise:
    """What the metadata of an array says: the bytes of its elements and of one chunk, and whether it is compressed."""

    size: int
    chunk: int
    compressed: bool


@dataclass(slots=True)
class Promises:
    """What the arrays of a store have promised so far; together no more than `most` bytes.

    May be used from several threads: Zarr reads many objects at once.
    """

    most: int = field(default_factory=memory_bytes)
    _arrays: dict[str, Promise] = field(default_factory=dict)
    _total: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def limit(self, key: str) -> int:
        """Return how many bytes the object with that key may have."""
        if key.rpartition("/")[2] == DOCUMENT:
            return METADATA_BYTES
        promise = self._of(key)
        # What does not compress grows a little.
        return METADATA_BYTES if promise is None else promise.chunk + promise.chunk // 64 + 1024

    def check(self, key: str, data: bytes) -> None:
        """Refuse an object that makes its reader allocate more than it should.

        Raises
        ------
        Refused
            Saying in a few words what is wrong with it.
        """
        if key.rpartition("/")[2] == DOCUMENT:
            self._check_document(key.rpartition("/")[0], data)
            return
        promise = self._of(key)
        if promise is not None and promise.compressed and zstd_size(data) != promise.chunk:
            raise Refused(f"{key} is no chunk of {promise.chunk} bytes")

    def _check_document(self, path: str, data: bytes) -> None:
        document = from_json(data)
        if not isinstance(document, dict) or not isinstance(document.get("attributes", {}), dict):
            raise Refused(f"{path}/{DOCUMENT} is no metadata of Zarr")
        if document.get("node_type") == "array":
            self._add(path, promised(document, path))

    def _add(self, path: str, promise: Promise) -> None:
        with self._lock:
            before = self._arrays.get(path)
            self._arrays[path] = promise
            self._total += promise.size - (before.size if before is not None else 0)
            if len(self._arrays) > _MOST_ARRAYS or self._total > self.most:
                raise Refused("its arrays would not fit into the memory of this machine")

    def _of(self, key: str) -> Promise | None:
        path = key
        while path:
            path = path.rpartition("/")[0]
            if path in self._arrays:
                return self._arrays[path]
        return None


def promised(document: dict[str, Any], path: str) -> Promise:
    """Return what the metadata of an array says of its size.

    Raises
    ------
    Refused
        If it is not of the form that psplatform writes.
    """
    grid, kind, codecs = document.get("chunk_grid"), document.get("data_type"), document.get("codecs")
    settings = grid.get("configuration") if isinstance(grid, dict) and grid.get("name") == "regular" else None
    shape: Any = document.get("shape")
    cut: Any = settings.get("chunk_shape") if isinstance(settings, dict) else None
    known = isinstance(kind, str) and kind in ITEM_BYTES and isinstance(codecs, list) and _names(codecs) in _CODECS
    if not (known and are_counts(shape) and are_counts(cut) and len(shape) == len(cut) <= _MOST_AXES and 0 not in cut):
        raise Refused(f"{path}/{DOCUMENT} is not of the form in which psplatform writes arrays")
    chunks = math.prod(-(-length // part) for length, part in zip(shape, cut, strict=True))
    size, chunk = (math.prod(lengths) * ITEM_BYTES[str(kind)] for lengths in (shape, cut))
    if chunks > 1 + size // _SMALLEST_CHUNK:
        raise Refused(f"{path}/{DOCUMENT} speaks of {chunks} chunks for {size} bytes")
    return Promise(size, chunk, compressed=len(codecs or ()) > 1)


def _names(codecs: list[Any]) -> list[Any]:
    return [one.get("name") if isinstance(one, dict) else one for one in codecs]


def zstd_size(data: bytes) -> int | None:
    """Return how many bytes a frame of zstd says that it becomes; ``None`` for another, or where it does not say."""
    if len(data) < 5 or not data.startswith(_ZSTD):
        return None
    single, kind, dictionary = data[4] >> 5 & 1, data[4] >> 6, data[4] & 3
    width = (single, 2, 4, 8)[kind]
    start = 5 + (not single) + (0, 1, 2, 4)[dictionary]
    told = data[start : start + width]
    if not width or len(told) < width:
        return None
    return int.from_bytes(told, "little") + (256 if width == 2 else 0)
