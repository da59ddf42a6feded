"""Vectors as they are sent, packed and unpacked beside the event loop where that takes long."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from numpy.typing import NDArray
from torch import Tensor

from psplatform.runtime.dataplane.pulls.content import Vectors
from psplatform.tensors.compression import UNPACKED, Packing
from psplatform.tensors.vectors import bytes_in

SMALL_BYTES: Final = 1 << 20
"""Of vectors that are handled in less time than another thread is asked for it."""


async def packed(packing: Packing, vectors: Vectors) -> list[NDArray[Any]]:
    """Return vectors as they are sent."""
    if packing is UNPACKED or is_small(vectors):
        return packing.pack(vectors)
    return await asyncio.get_running_loop().run_in_executor(None, packing.pack, vectors)


async def unpacked(
    packing: Packing, arrays: list[NDArray[Any]], wanted: Mapping[str, tuple[str, int]]
) -> dict[str, Tensor]:
    """Return the vectors of those dtypes and elements that were sent."""
    if packing is UNPACKED or UNPACKED.size_bytes(wanted) <= SMALL_BYTES:
        return packing.unpack(arrays, wanted)
    return await asyncio.get_running_loop().run_in_executor(None, packing.unpack, arrays, wanted)


def is_small(vectors: Vectors) -> bool:
    """Whether vectors are handled in less time than another thread is asked for it."""
    return bytes_in(vectors) <= SMALL_BYTES
