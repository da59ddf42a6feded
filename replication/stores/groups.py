"""Zarr's groups and arrays: the only module that knows Zarr."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, Literal, Self

import zarr
from zarr import Array, Group
from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.errors import BaseZarrError
from zarr.storage import WrapperStore

from psplatform.replication.checkpoints.metadata import Promises
from psplatform.replication.stores.objects import file_system_of
from psplatform.untrusted.files import read_object

__all__ = ["ZARR_FORMAT", "Array", "BaseZarrError", "Group", "make_group", "open_group"]

ZARR_FORMAT: Final = 3


def make_group(store: str, attributes: Mapping[str, Any]) -> None:
    """Make the root group of a store in which there is none."""
    zarr.open_group(store, mode="w-", zarr_format=ZARR_FORMAT, attributes=dict(attributes))


def open_group(store: str, mode: Literal["r", "r+"]) -> Group:
    """Return the root group of a store; where it is only read, within limits of what is read."""
    # The format is given, or Zarr asks for the files of both at once and leaves the rest alone when one fails.
    group = zarr.open_group(store, mode=mode, zarr_format=ZARR_FORMAT, use_consolidated=False)
    if mode == "r+":
        return group
    guarded = _Guarded(group.store, *file_system_of(store), Promises())
    return zarr.open_group(guarded, mode=mode, zarr_format=ZARR_FORMAT, use_consolidated=False)


class _Guarded(WrapperStore[Any]):
    """A store of Zarr's of which only what lies in it is read, and only as much as fits together and into memory."""

    def __init__(self, store: Any, files: Any, root: str, promises: Promises) -> None:
        super().__init__(store)
        self._files, self._root, self._promises = files, root, promises

    def _with_store(self, store: Any) -> Self:
        return type(self)(store, self._files, self._root, self._promises)

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        data = await asyncio.to_thread(self._read, key)
        return None if data is None else prototype.buffer.from_bytes(data)

    def _read(self, key: str) -> bytes | None:
        try:
            data = read_object(self._files, self._root, key, self._promises.limit(key))
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None
        self._promises.check(key, data)
        return data
