"""Sums of squares whose bits depend on the elements alone, not on shards or threads.

Floating-point sums depend on their order, and torch's order depends on the number of threads once a single sum is
large.  So every block (see `layout`) is summed by itself, as a sum of sums of short lines, each too short for torch to
split.
The sums then meet in `math.fsum`, which is exact whatever their order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Final

import torch
from torch import Tensor

from psplatform.tensors.vectors import tile

LINE = 1 << 10
"""Elements summed at once: torch splits single sums among threads from 32768 elements on."""

_SHORT: Final = 1 << 13
"""Elements of which the squares are added in fewer steps rather than in less precision."""


def squared_norms(vector: Tensor, block: int, *, minus: Tensor | None = None) -> list[float]:
    """Return the sum of squares of each block of `vector`, or of `vector - minus`.

    Parameters
    ----------
    vector, minus
        `float[n]`; differences are formed in float64.
    block
        Elements per block, a power of two; the last block may be shorter.
    """
    if not vector.numel():
        return []
    tiled, line = _round_up(tile(), block), min(LINE, block)
    room = min(tiled, _round_up(vector.numel(), block))
    wide = torch.empty(room, dtype=torch.float64, device=vector.device)
    subtrahend = None if minus is None else torch.empty_like(wide)
    sums = []
    for start in range(0, vector.numel(), tiled):
        part = vector[start : start + tiled]
        size = part.numel()
        wide[:size].copy_(part)
        if minus is not None and subtrahend is not None:
            wide[:size].sub_(subtrahend[:size].copy_(minus[start : start + tiled]))
        squares = wide[: _round_up(size, block)]
        squares[size:].zero_()  # completes the last block
        squares.mul_(squares)
        sums.append(squares.view(-1, line).sum(1).view(-1, block // line).sum(1))
    blocks: list[float] = torch.cat(sums).tolist()
    return blocks


def squared_norm(vectors: Iterable[Tensor]) -> float:
    """Return the sum of squares of all elements of `float[n]` vectors, in half the time that `squared_norms` takes.

    It is measured in the vectors' own precision, float32 at least, or in float64 where that takes no longer because
    they are short, and off by a part of 1e-4 at most, mostly of 1e-7:
    enough for a statistic.  What that precision cannot tell from 0 or infinity is measured in float64: the sum is
    infinite or NaN exactly if an element is, short of overflow.
    """
    kept = [vector for vector in vectors if vector.numel()]
    if sum(vector.numel() for vector in kept) <= _SHORT:
        return _total([[_short_square(vector) for vector in kept]])
    found = _total(_line_squares(vector) for vector in kept)
    # Squares below the least normal number may have been lost, each.
    lost = sum(vector.numel() for vector in kept) * torch.finfo(torch.float32).smallest_normal
    if 1e5 * lost < found < math.inf or not kept:
        return found
    return _total(squared_norms(vector, LINE) for vector in kept)


def _short_square(vector: Tensor) -> float:
    wide = vector.double()
    return float(torch.dot(wide, wide))


def _line_squares(vector: Tensor) -> list[float]:
    kind = torch.float64 if vector.dtype == torch.float64 else torch.float32
    lengths = []
    # One call for all lines, unless each element is converted first: those are to stay in the cache.
    converted = vector.device.type == "cpu" and vector.dtype != kind
    for part in vector.split(_round_up(tile() if converted else vector.numel(), LINE)):
        whole = part.numel() // LINE * LINE
        lengths.append(torch.linalg.vector_norm(part[:whole].view(-1, LINE), dim=1, dtype=kind))
        lengths.append(torch.linalg.vector_norm(part[whole:], dtype=kind).view(1))
    return [float(squares.sum()) for squares in torch.cat(lengths).double().square_().split(LINE)]


def _total(sums: Iterable[Iterable[float]]) -> float:
    try:
        return math.fsum(itertools.chain.from_iterable(sums))
    except OverflowError:
        return math.inf


def norm(sums: Iterable[float]) -> float:
    """Return the Euclidean norm of a vector from its blocks' sums of squares, in any order.

    It is infinite or NaN exactly if an element is, short of overflow: `math.isfinite(norm(...))` checks a gradient.
    """
    return math.sqrt(_total([sums]))


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
