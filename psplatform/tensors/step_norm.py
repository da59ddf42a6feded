"""How far a step leads, measured while its parts are in the cache: a fraction of what a pass of its own costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cache
from typing import Final, NamedTuple

import torch
from torch import Tensor

from psplatform.tensors.vectors import split

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
    for old, new in zip(split(source, _PIECE), split(target, _PIECE), strict=True):
        new.copy_(old)
        squares.append(float(torch.dot(new, new)))
    kind = _limits(target.dtype)
    found = _sum(squares)
    return found / (1 - _PIECE * kind.eps / 2) + target.numel() * kind.smallest_normal


def _sum(squares: Iterable[float]) -> float:
    try:
        return math.fsum(squares)
    except OverflowError:
        return math.inf


class Taken(NamedTuple):
    """The sum of squares of one piece of a vector, and the factor that its elements are to be multiplied with.

    What follows from type and number of its elements is left for the end: several threads measure at once, and hold
    each other up with every line of Python.
    """

    squares: Tensor | float
    factor: float
    elements: int
    dtype: torch.dtype
    parameters_dtype: torch.dtype


class Measure:
    """What one thread has taken in of a step.

    Attributes
    ----------
    trusting
        Whether what was added may be measured, rather than the difference of the parameters after and before.
    """

    def __init__(self) -> None:
        self._difference = torch.empty(0)
        self.begin(trusting=True)

    def begin(self, *, trusting: bool) -> None:
        """Begin with nothing taken in; if not `trusting`, with no trust in what is said to have been added."""
        self.trusting = trusting
        self.taken: list[Taken] = []
        self.rounded = False

    def add(self, before: Tensor, after: Tensor, added: Added | None) -> None:
        """Take in one part of the parameters, `float[n]`, before and after the step, and what was added, if known."""
        if added is not None and self.trusting:
            vector, factor = added
            self.rounded = True
        else:
            vector, factor = self._subtracted(before, after), 1.0
        for piece in split(vector, _PIECE):
            self.taken.append(Taken(torch.dot(piece, piece), factor, piece.numel(), vector.dtype, before.dtype))

    def add_squares(self, squares: float, factor: float, parameters: Tensor) -> None:
        """Take in a part that was measured already: what was added if `trusting`, else the difference."""
        self.rounded |= self.trusting
        self.taken.append(Taken(squares, factor, parameters.numel(), parameters.dtype, parameters.dtype))

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

    @property
    def reach(self) -> float | None:
        """A norm that the newest parameters do not exceed; ``None`` while none is known."""
        return None if math.isnan(self._reach) else self._reach

    def forget(self, reach: float = math.nan, *, measured: bool = True) -> None:
        """Account for a change of the parameters that was no measured step, of a norm up to `reach`.

        Parameters
        ----------
        measured
            Whether that is about their norm.  Else it may be far above, and is measured as soon as that matters.
        """
        self._reach, self._reached = reach, reach if measured else 0.0
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
        taken = [one for measure in self._measures for one in measure.taken]
        squares = _sum([float(one.squares) * (one.factor * one.factor) for one in taken])
        lost = below = eps = 0.0
        too_small = False
        for one in taken:
            kind = _limits(one.dtype)
            too_small |= 0 < abs(one.factor) < kind.smallest_normal
            lost = max(lost, _PIECE * kind.eps / 2)
            below += one.elements * kind.smallest_normal * one.factor * one.factor
            eps = max(eps, _limits(one.parameters_dtype).eps)
        # What is too small or too large for the vectors' precision is looked at again, in a wider one.
        if too_small or not 0 < squares < math.inf:
            return self._exact()
        length = math.sqrt(squares / (1 - lost) + below) * (1 + 2 * eps)
        rounding = self._rounding(length, eps / 2) if any(measure.rounded for measure in self._measures) else 0.0
        step = length + rounding
        return step if step <= (1 + PRECISION) * math.sqrt(squares) else self._exact()

    def _rounding(self, length: float, unit: float) -> float:
        # The reach only grows: it is measured again where that matters, and once it may be far from the truth.
        matters = unit * self._reach > PRECISION / 2 * length and self._reach > 2 * self._reached
        if matters or math.isnan(self._reach):
            self._reach = self._reached = self._measure_reach()
        return unit * self._reach


@cache
def _limits(dtype: torch.dtype) -> torch.finfo:
    # Asked for of every piece; torch makes it anew each time.
    return torch.finfo(dtype)
