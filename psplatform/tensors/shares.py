"""Long vectors worked on by several threads, each with a share of the elements.

Only what handles every element alike may be shared: then no bit depends on how many threads there are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor

from psplatform.tensors.vectors import part_of

Piece = tuple[int, slice]
"""Number of a vector, and which of its elements."""

Share = list[Piece]

_LEAST: Final = 1 << 20
"""Elements that are worth a thread: for fewer, waking it costs what it saves."""

_MOST: Final = 4
"""Threads: they add up numbers from memory, which more threads do not read faster."""

_LINE: Final = 64
"""Elements between which shares are cut, so that no two threads write to one cache line."""


def threads(*, by_torch: bool = True) -> int:
    """Return among how many threads work is shared: cores that torch does not use by itself, if it does the work."""
    return max(1, min(_MOST, _cores() // (torch.get_num_threads() if by_torch else 1)))


def shares(sizes: Sequence[int], count: int | None = None, *, by_torch: bool = True) -> list[Share]:
    """Cut vectors of those elements into shares of about the same size, in their order; at least one.

    Parameters
    ----------
    count
        How many shares there may be; as many as there are threads, if the vectors are long enough.
    by_torch
        Whether the work is done by torch, which may have threads of its own.
    """
    total = sum(sizes)
    if count is None:
        count = total // _LEAST
        if count > 1:
            count = min(threads(by_torch=by_torch), count)
    each = -(-total // max(1, count) // _LINE) * _LINE
    found: list[Share] = [[]]
    room = each
    for number, size in enumerate(sizes):
        start = 0
        while start < size:
            if not room:
                found.append([])
                room = each
            stop = min(size, start + room)
            found[-1].append((number, slice(start, stop)))
            room -= stop - start
            start = stop
    return found


def together(work: Callable[..., None], *arguments: Sequence[Any]) -> None:
    """Call `work` with the first, the second, ... of each of `arguments`: one here, the others in threads beside.

    Returns when all are done, and raises what the first of those that failed has raised.
    """
    first, *others = zip(*arguments, strict=True)
    beside = [_pool().submit(work, *one) for one in others]
    try:
        work(*first)
    finally:
        failures = [one.exception() for one in beside]
    for failure in failures:
        if failure is not None:
            raise failure


def copy(sources: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
    """Copy vectors to those of `targets` at the same places, which have as many elements."""

    def work(share: Share) -> None:
        for number, piece in share:
            part_of(targets[number], piece).copy_(part_of(sources[number], piece))

    together(work, shares([target.numel() for target in targets]))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_MOST, thread_name_prefix="psplatform-share")
