"""How far a step leads, measured while its parts are in the cache: a fraction of what a pass of its own costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

Added = tuple[Tensor, float]
"""A vector, and what it was multiplied with before it was added to the parameters."""

PRECISION: Final = 0.01
"""The part of a step by which its bound may be above what was measured."""

_PIECE: Final = 1 << 17
"""Elements whose squares are added in the vectors' own precision."""

_UNKNOWN_STEPS: Final = 8
"""Steps measured as differences before |w| is measured for their sake: the first after a promotion is waited for."""


def copy_and_measure(source: Tensor, target: Tensor) -> float:
    """Copy a vector, `float[n]`; return its squared norm, or a little more, without a pass of its own."""
    squares = []
    for old, new in zip(source.split(_PIECE), target.split(_PIECE), strict=True):
        new.copy_(old)
        squares.append(torch.dot(new, new))
    kind = torch.finfo(target.dtype)
    found = _sum(squares, [1.0] * len(squares))
    return found / (1 - _PIECE * kind.eps / 2) + target.numel() * kind.smallest_normal


def _sum(squares: list[Tensor], factors: list[float]) -> float:
    if not squares:
        return 0.0
    values: list[float] = torch.stack(squares).tolist()
    try:
        return math.fsum(value * factor for value, factor in zip(values, factors, strict=True))
    except OverflowError:
        return math.inf


class Measure:
    """What is known of some parts of a step."""

    def __init__(self) -> None:
        self._difference = torch.empty(0)
        self.begin(trusting=True)

    def begin(self, *, trusting: bool) -> None:
        """Begin with nothing taken in; if not `trusting`, with no trust in what is said to have been added."""
        self._trusting = trusting
        self.squares: list[Tensor] = []
        self.factors: list[float] = []
        self.rounded = self.vague = False
        self.eps = self.lost = self.below = 0.0

    def add(self, before: Tensor, after: Tensor, added: Added | None) -> None:
        """Take in one part of the parameters, `float[n]`, before and after the step, and what was added, if known."""
        self.eps = max(self.eps, torch.finfo(before.dtype).eps)
        if not self._trusting:
            added = None
        self.rounded |= added is not None
        vector, factor = added if added is not None else (self._subtracted(before, after), 1.0)
        kind = torch.finfo(vector.dtype)
        self.lost = max(self.lost, _PIECE * kind.eps / 2)
        # Products with a factor that the precision cannot hold are not what they should be.
        self.vague |= 0 < abs(factor) < kind.smallest_normal
        self.below += vector.numel() * kind.smallest_normal * factor * factor
        for piece in vector.split(_PIECE) if vector.numel() > _PIECE else (vector,):
            self.squares.append(torch.dot(piece, piece))
            self.factors.append(factor * factor)

    def _subtracted(self, before: Tensor, after: Tensor) -> Tensor:
        if self._difference.numel() < before.numel() or self._difference.dtype != before.dtype:
            self._difference = torch.empty_like(before)  # kept, as fresh memory costs time
        return torch.sub(after, before, out=self._difference[: before.numel()])


class StepNorm:
    """An upper bound of the Euclidean norm of a step, taken in part by part; seldom `PRECISION` above the truth.

    A part is measured as the vector ``p`` that was added to the parameters ``w``, or else as their difference after and
    before.  In a precision with rounding unit ``u``, an element of ``fl(w + p)`` is off by ``u |w + p|`` at most, so
    that a step is no longer than

        |p| + u (|w| + |p|).

    The squares of a piece of n elements are added in the vectors' own precision, float32 or float64, those of all
    pieces in float64.  Whatever the order in which they are added, a piece's sum is below the truth by a part of
    ``n u`` at most (N. Higham, "Accuracy and stability of numerical algorithms", 2002, section 4.2), and by less than
    the least normal number for each square that the precision cannot tell from 0.

    Parameters
    ----------
    reach
        Measures |w|, the norm of all parameters before the step.
    exact
        Measures the step by itself.
    """

    def __init__(self, reach: Callable[[], float], exact: Callable[[], float]) -> None:
        self._measure_reach, self._exact = reach, exact
        # At most |w|, and what it was when it was measured last.
        self._reach = self._reached = math.nan
        self._unknown = 0
        self._measures: list[Measure] = []

    def forget(self, reach: float = math.nan) -> None:
        """Note that the parameters have become others than by a step that was measured, of a norm up to `reach`."""
        self._reach = self._reached = reach
        self._unknown = _UNKNOWN_STEPS

    def begin(self, threads: int = 1) -> list[Measure]:
        """Begin with a step; return for each thread what takes in its parts."""
        self._unknown = max(0, self._unknown - 1) if math.isnan(self._reach) else 0
        while len(self._measures) < threads:
            self._measures.append(Measure())
        del self._measures[threads:]
        for measure in self._measures:
            measure.begin(trusting=not self._unknown)
        return self._measures

    def end(self) -> float:
        """Return the norm of the step."""
        step = self._step()
        self._reach += step
        return step

    def _step(self) -> float:
        parts = self._measures
        squares = _sum([one for each in parts for one in each.squares], [one for each in parts for one in each.factors])
        # What is too small or too large for the vectors' precision is looked at again, in a wider one.
        if any(each.vague for each in parts) or not 0 < squares < math.inf:
            return self._exact()
        eps, lost = max(each.eps for each in parts), max(each.lost for each in parts)
        taken = math.sqrt(squares / (1 - lost) + sum(each.below for each in parts)) * (1 + 2 * eps)
        rounding = self._rounding(taken, eps / 2) if any(each.rounded for each in parts) else 0.0
        step = taken + rounding
        return step if step <= (1 + PRECISION) * math.sqrt(squares) else self._exact()

    def _rounding(self, taken: float, unit: float) -> float:
        # The reach only grows: it is measured again where that matters, and once it may be far from the truth.
        matters = unit * self._reach > PRECISION / 2 * taken and self._reach > 2 * self._reached
        if matters or math.isnan(self._reach):
            self._reach = self._reached = self._measure_reach()
        return unit * self._reach
