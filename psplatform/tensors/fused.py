"""Merging, stepping and measuring in one pass over memory, by a small compiled function, for SGD.

With torch each operation is a pass over a tile of its own, between which threads wait for each other's lines of Python.

The function is compiled when psplatform is installed, where there is a C compiler.  It is used only if, tried on every
kind of step, it gives torch's bits on this machine: what is learned does not depend on it.  The norm of a step is added
up in another order, and bounded as in `step_norm`.  It is no module of Python's: it takes addresses, and other threads
of Python go on while it computes.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Final, Protocol

import torch
from torch import Tensor

from psplatform.jobs.optimizers import SGD

LOGGER: Final = logging.getLogger(__name__)

_NAME: Final = "psplatform_sgd_1"
_TRIED: Final = 2500
"""Elements: more than one block, and not a whole number of any processor's registers."""

_ALIGNMENT: Final = 4
"""Bytes of a float32."""

_PRECISION: Final = 1e-4
"""By which the norm of a step may differ from the truth when it is tried: it is rounded, as the parameters are."""


class Plain(Protocol):
    """The same step in torch's operations; see `optimizers.Equations`."""

    def advance(self, w: Tensor, g: Tensor, state: Mapping[str, Tensor], out: Tensor, rate: float, step: int) -> object:
        """Write the parameters after this step into `out` and advance the state."""


class _Step(ctypes.Structure):
    """`struct step` of fused.c."""

    _fields_ = [
        *((name, ctypes.c_float) for name in ("divisor", "decay", "momentum", "undamped", "scale")),
        *((name, ctypes.c_int) for name in ("nesterov", "first", "by_difference")),
    ]


class FusedSGD:
    """`optimizers.SGDEquations` with the merging before it.

    Parameters
    ----------
    function
        That of fused.c.
    """

    def __init__(self, function: Callable[..., float], hyper: SGD) -> None:
        self._function, self.hyper = function, hyper

    def step(
        self,
        w: Tensor,
        contributions: Sequence[Tensor],
        momentum: Tensor | None,
        out: Tensor,
        rate: float,
        step: int,
        *,
        room: Tensor | None = None,
        by_difference: bool = False,
    ) -> tuple[float, float]:
        """Write the parameters after a step along the mean of the contributions into `out`, and advance the momentum.

        All vectors are ``float32[n]`` without gaps, in memory of the CPU.

        Parameters
        ----------
        room
            Where the mean is left, if it is needed.
        by_difference
            Whether to measure ``out - w`` rather than what was added.

        Returns
        -------
        tuple
            The sum of squares of a vector v, and the factor f for which the step is f v.
        """
        h = self.hyper
        scale = -h.lr * rate
        count = len(contributions)
        how = _Step(
            *(count, h.weight_decay, h.momentum, 1 - h.dampening, scale), *(h.nesterov, step == 1, by_difference)
        )
        addresses = (ctypes.c_void_p * count)(*[one.data_ptr() for one in contributions])
        others = [None if one is None else one.data_ptr() for one in (room, w, momentum, out)]
        squares = self._function(ctypes.byref(how), w.numel(), count, addresses, *others)
        return squares, 1.0 if by_difference else scale


def fused_sgd(hyper: SGD, plain: Callable[[SGD], Plain]) -> FusedSGD | None:
    """Return the compiled step, or ``None`` where there is none that gives the bits of the plain one."""
    function = _function(plain)
    return FusedSGD(function, hyper) if function is not None else None


def fits(vectors: Iterable[Tensor]) -> bool:
    """Whether the compiled step takes such vectors."""
    return all(
        one.is_cpu and one.dtype == torch.float32 and one.is_contiguous() and not one.data_ptr() % _ALIGNMENT
        for one in vectors
    )


@cache
def _function(plain: Callable[[SGD], Plain]) -> Callable[..., float] | None:
    for path in sorted(Path(__file__).parent.glob("_fused*.so")):
        try:
            function: Any = getattr(ctypes.CDLL(str(path)), _NAME)
        except (OSError, AttributeError) as error:
            LOGGER.info("the compiled step %s cannot be loaded: %s", path, error)
            continue
        function.restype = ctypes.c_double
        function.argtypes = [ctypes.c_void_p, *[ctypes.c_size_t] * 2, *[ctypes.c_void_p] * 5]
        if agrees(function, plain):
            found: Callable[..., float] = function
            return found
        LOGGER.info("the compiled step %s is not used: it does not give torch's bits on this machine", path)
    return None


def agrees(function: Callable[..., float], plain: Callable[[SGD], Plain]) -> bool:
    """Whether the compiled step gives the bits of the plain one, for every kind of step."""
    momenta = (0.0, 0.0, False), (0.9, 0.3, False), (0.9, 0.0, True)
    kinds = product((0.0, 0.01), momenta, (1, 2, 3), (False, True), (False, True))
    return all(
        _agrees(
            FusedSGD(function, SGD(0.1, momentum, dampening, nesterov, decay)),
            plain,
            count,
            kept=kept,
            by_difference=by,
        )
        for decay, (momentum, dampening, nesterov), count, kept, by in kinds
    )


def _agrees(fused: FusedSGD, plain: Callable[[SGD], Plain], count: int, *, kept: bool, by_difference: bool) -> bool:
    # Whatever a program has made torch's defaults.
    plainly: dict[str, Any] = {"dtype": torch.float32, "device": "cpu"}
    w, *gradients = torch.randn(1 + count, _TRIED, generator=torch.Generator("cpu").manual_seed(0), **plainly)
    v, mean, out = torch.zeros(3, _TRIED, **plainly)
    fused_v, fused_mean, fused_out = torch.zeros(3, _TRIED, **plainly)
    for step in (1, 2):
        mean.copy_(gradients[0])
        for one in gradients[1:]:
            mean.add_(one)
        if count > 1:
            mean.div_(count)
        plain(fused.hyper).advance(w, mean, {"momentum": v}, out, 0.7, step)
        squares, factor = fused.step(
            *(w, gradients, fused_v if fused.hyper.momentum else None, fused_out, 0.7, step),
            room=fused_mean if kept else None,
            by_difference=by_difference,
        )
        both = (v, fused_v), (out, fused_out), *([(mean, fused_mean)] if kept else [])
        if not all(torch.equal(one, other) for one, other in both):
            return False
        length, truth = abs(factor) * squares**0.5, float((out.double() - w.double()).norm())
        if not abs(length - truth) <= _PRECISION * truth:
            return False
        gradients = [one.neg() for one in reversed(gradients)]
    return True
