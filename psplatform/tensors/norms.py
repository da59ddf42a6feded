"""Sums of squares in float64 whose bits depend on the elements alone, not on shards or threads.

Floating-point sums depend on their order, and torch's order depends on the number of threads once a single sum is
large.  So every block (see `layout`) is summed by itself, as a sum of sums of short lines, each too short for torch to
split.
The blocks' sums then meet in `math.fsum`, which is exact whatever their order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from psplatform.tensors.vectors import TILE

LINE = 1 << 10
"""Elements summed at once: torch splits single sums among threads from 32768 elements on."""


class StepNorm:
    """Adds up how far a step leads while its parts are in the cache: a fraction of what a pass of its own costs.

    Lines are measured in the vectors' own precision u, and added in float64.  Whatever the order in which a line's
    squares are added, its norm is below the truth by less than a part of ``LINE * u`` (N. Higham, "Accuracy and
    stability of numerical algorithms", 2002, section 4.2), and squares too small for the precision lack less than its
    least number each.  `squares` makes up for both: it is never below the truth, and above it by 0.012 % at most.
    """

    def __init__(self) -> None:
        self._difference = torch.empty(0)
        self._lines: list[Tensor] = []
        self._elements = 0

    def begin(self) -> StepNorm:
        """Forget what was taken in, and return this: its memory is used again, as fresh memory costs time."""
        self._lines.clear()
        self._elements = 0
        return self

    def add(self, before: Tensor, after: Tensor) -> None:
        """Take in one part of the vector, `float[n]`, before and after the step."""
        size = before.numel()
        room = _round_up(size, LINE)
        if self._difference.numel() < room or self._difference.dtype != before.dtype:
            self._difference = before.new_empty(room)
        torch.sub(after, before, out=self._difference[:size])
        self._difference[size:room].zero_()  # completes the last line
        self._lines.append(torch.linalg.vector_norm(self._difference[:room].view(-1, LINE), dim=1))
        self._elements += size

    @property
    def squares(self) -> float:
        """The sum of squares of what was taken in, or a little more; 0 only where every square is too small to tell."""
        if not self._lines:
            return 0.0
        kind = torch.finfo(self._difference.dtype)
        found = float(torch.cat(self._lines).double().square().sum())
        return found * (1 + LINE * kind.eps) + self._elements * kind.smallest_normal * kind.eps if found else 0.0


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
    tile, line = max(TILE, block), min(LINE, block)
    room = min(tile, _round_up(vector.numel(), block))
    wide = torch.empty(room, dtype=torch.float64, device=vector.device)
    subtrahend = None if minus is None else torch.empty_like(wide)
    sums = []
    for start in range(0, vector.numel(), tile):
        part = vector[start : start + tile]
        size = part.numel()
        wide[:size].copy_(part)
        if minus is not None and subtrahend is not None:
            wide[:size].sub_(subtrahend[:size].copy_(minus[start : start + tile]))
        squares = wide[: _round_up(size, block)]
        squares[size:].zero_()  # completes the last block
        squares.mul_(squares)
        sums.append(squares.view(-1, line).sum(1).view(-1, block // line).sum(1))
    blocks: list[float] = torch.cat(sums).tolist()
    return blocks


def norm(sums: Iterable[float]) -> float:
    """Return the Euclidean norm of a vector from its blocks' sums of squares, in any order.

    It is infinite or NaN exactly if an element is, short of overflow: `math.isfinite(norm(...))` checks a gradient.
    """
    try:
        return math.sqrt(math.fsum(sums))
    except OverflowError:
        return math.inf


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
