"""Merging, stepping and measuring in one pass over memory, by a small compiled function, for SGD.

With torch each operation is a pass over a tile of its own, between which threads wait for each other's lines of Python.
For 25 million parameters, two contributions and a momentum, two cores take 47 ms in that way and 31 ms in this one.

The function is compiled when psplatform is installed, where there is a C compiler.  It is used only if, tried on every
kind of step, it gives the bits that torch gives on this machine; so nothing but time depends on it.  It is no module of
Python's: it takes addresses, and the interpreter is free while it computes.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Final, Protocol

import torch
from torch import Tensor

from psplatform.jobs.optimizers import SGD

LOGGER: Final = logging.getLogger(__name__)

_TRIED: Final = 2500
"""Elements: more than one block, and not a whole number of any processor's registers."""


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
        `psplatform_sgd` of fused.c.
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
            The sum of squares of a vector, and the factor by which it is the step.
        """
        h = self.hyper
        scale = -h.lr * rate
        how = _Step(
            *(len(contributions), h.weight_decay, h.momentum, 1 - h.dampening, scale),
            *(h.nesterov, step == 1, by_difference),
        )
        addresses = (ctypes.c_void_p * len(contributions))(*(one.data_ptr() for one in contributions))
        others = (None if one is None else one.data_ptr() for one in (room, w, momentum, out))
        squares = self._function(ctypes.byref(how), w.numel(), len(contributions), addresses, *others)
        return squares, 1.0 if by_difference else scale


def fused_sgd(hyper: SGD, plain: Callable[[SGD], Plain]) -> FusedSGD | None:
    """Return the compiled step, or ``None`` where there is none that gives the bits of the plain one."""
    function = _function(plain)
    return FusedSGD(function, hyper) if function is not None else None


def fits(vectors: Iterable[Tensor]) -> bool:
    """Whether the compiled step takes such vectors."""
    return all(one.dtype == torch.float32 and one.device.type == "cpu" and one.is_contiguous() for one in vectors)


@cache
def _function(plain: Callable[[SGD], Plain]) -> Callable[..., float] | None:
    for path in sorted(Path(__file__).parent.glob("_fused*.so")):
        try:
            function = ctypes.CDLL(str(path)).psplatform_sgd
        except (OSError, AttributeError) as error:
            LOGGER.info("the compiled step %s cannot be loaded: %s", path, error)
            continue
        function.restype = ctypes.c_double
        function.argtypes = [ctypes.c_void_p, *[ctypes.c_size_t] * 2, *[ctypes.c_void_p] * 5]
        if agrees(function, plain):
            return function
        LOGGER.info("the compiled step %s is not used: torch rounds in another way on this machine", path)
    return None


def agrees(function: Callable[..., float], plain: Callable[[SGD], Plain]) -> bool:
    """Whether the compiled step gives the bits of the plain one, for every kind of step."""
    momenta = (0.0, 0.0, False), (0.9, 0.3, False), (0.9, 0.0, True)
    kinds = product((0.0, 0.01), momenta, (1, 2, 3))
    return all(
        _agrees(function, plain, SGD(0.1, momentum, dampening, nesterov, decay), count)
        for decay, (momentum, dampening, nesterov), count in kinds
    )


def _agrees(function: Callable[..., float], plain: Callable[[SGD], Plain], hyper: SGD, count: int) -> bool:
    generator = torch.Generator().manual_seed(0)
    w, *gradients = torch.randn(1 + count, _TRIED, generator=generator)
    v, mean, out = torch.zeros(3, _TRIED)
    fused_v, fused_mean, fused_out = torch.zeros(3, _TRIED)
    for step in (1, 2):
        mean.copy_(gradients[0])
        for one in gradients[1:]:
            mean.add_(one)
        if count > 1:
            mean.div_(count)
        plain(hyper).advance(w, mean, {"momentum": v}, out, 0.7, step)
        momentum = fused_v if hyper.momentum else None
        FusedSGD(function, hyper).step(w, gradients, momentum, fused_out, 0.7, step, room=fused_mean)
        gradients = [one.neg() for one in reversed(gradients)]
    both = (v, fused_v), (mean, fused_mean), (out, fused_out)
    return all(torch.equal(one, other) for one, other in both)
