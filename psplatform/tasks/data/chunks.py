"""Rows of a dask array, whose chunks are kept once they have been computed.

A batch holds samples from many chunks, and each chunk has to be computed as a whole for the first of them.  Without
keeping any, every batch computes most of the array again: its whole graph, optimised and scheduled anew.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

KEPT_BYTES: Final = 256 << 20
"""Of the computed chunks of one array that a process keeps: those that were used last."""

_SCHEDULER: Final = "synchronous"


class KeptChunks:
    """Reads rows of a dask array by computing whole chunks, and keeps as many of those as `kept_bytes` hold.

    The chunks are computed in the thread that asks, because a process computes one gradient at a time.
    """

    def __init__(self, array: Any, kept_bytes: int = KEPT_BYTES) -> None:
        self._array, self._room = array, kept_bytes
        self._ends = np.cumsum(array.chunks[0])
        self._kept: OrderedDict[int, NDArray[Any]] = OrderedDict()
        self._kept_bytes = 0

    def read(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return the rows of these numbers, which ascend."""
        numbers = np.searchsorted(self._ends, rows, side="right")
        if self._row_bytes() * int(self._array.chunks[0][numbers[0]]) > self._room:
            return np.asarray(self._array[rows].compute(scheduler=_SCHEDULER))
        parts = []
        for number in np.unique(numbers).tolist():
            start = int(self._ends[number]) - int(self._array.chunks[0][number])
            parts.append(self._chunk(number)[rows[numbers == number] - start])
        return np.concatenate(parts)

    def _row_bytes(self) -> float:
        elements = float(np.prod(self._array.shape[1:], dtype=float))
        return elements * int(self._array.dtype.itemsize)

    def _chunk(self, number: int) -> NDArray[Any]:
        found = self._kept.get(number)
        if found is None:
            found = self._kept[number] = np.asarray(self._array.blocks[number].compute(scheduler=_SCHEDULER))
            self._kept_bytes += found.nbytes
        self._kept.move_to_end(number)
        while self._kept_bytes > self._room:
            self._kept_bytes -= self._kept.popitem(last=False)[1].nbytes
        return found


def lies_on_a_cluster(array: Any) -> bool:
    """Whether a dask array holds results of a cluster, as after ``persist()``: others cannot compute with them."""
    kinds = {type(one) for one in array.__dask_graph__().values()}
    return any(kind.__name__ == "Future" and kind.__module__.startswith("distributed") for kind in kinds)
