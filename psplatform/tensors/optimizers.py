"""The equations of the optimisers, out of place: the next parameters go to `out`, the present ones stay readable.

Rules
-----
* Only elementwise operations, each the same in torch's vector loops and in the ends they leave over, so that the bits
  do not depend on how a vector is cut.  The operations and their order are those of `torch.optim` (one tensor at a
  time), so that a run on one worker gives what a plain loop in torch gives: for SGD bit for bit.
* `parameter` and `gradient` are only read; `out` serves as scratch until the last line fills it; state advances in
  place, since it belongs to the newest step, published or not.
* A fresh state is all zero; what must start differently starts at `step == 1`.

In the equations `w` is the parameters, `g` the gradient, `lr` the learning rate; all vectors are `float[n]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from psplatform.jobs.optimizers import SGD, AdaGrad, Adam, AdamW, Additive, Optimizer, RMSProp
from psplatform.tensors.fused import FusedSGD, fused_sgd
from psplatform.tensors.own_optimizers import CustomOptimizer
from psplatform.tensors.step_norm import Added, Measure
from psplatform.tensors.vectors import tile


class Equations(Protocol):
    """The arithmetic of one optimiser with the hyper-parameters of one group."""

    def slots(self) -> tuple[str, ...]:
        """Return the names of the state vectors."""

    def advance(
        self, w: Tensor, g: Tensor, state: Mapping[str, Tensor], out: Tensor, rate: float, step: int
    ) -> Added | None:
        """Write the parameters after this step into `out` and advance the state.

        Return what the last operation added to `w`, unless that is gone or never was a vector.
        """


@dataclass(frozen=True, slots=True)
class SGDEquations:
    """Momentum as in Sutskever, Martens, Dahl, Hinton, "On the importance of initialization and momentum" (2013).

    Differences from the paper: the learning rate multiplies the velocity, not the gradient, as in torch.
    """

    hyper: SGD

    def slots(self) -> tuple[str, ...]:
        """Return the names of the state vectors."""
        return ("momentum",) if self.hyper.momentum else ()

    def advance(
        self, w: Tensor, g: Tensor, state: Mapping[str, Tensor], out: Tensor, rate: float, step: int
    ) -> Added | None:
        """`v <- momentum v + (1 - dampening) g;  w <- w - lr v`."""
        h = self.hyper
        if h.weight_decay:
            g = torch.add(g, w, alpha=h.weight_decay, out=out)
        if h.momentum:
            v = state["momentum"]
            if step == 1:
                v.copy_(g)
            else:
                v.mul_(h.momentum).add_(g, alpha=1 - h.dampening)
            g = torch.add(g, v, alpha=h.momentum, out=out) if h.nesterov else v
        torch.add(w, g, alpha=-h.lr * rate, out=out)
        return None if g is out else (g, -h.lr * rate)


@dataclass(frozen=True, slots=True)
class AdamEquations:
    """Kingma, Ba, "Adam: a method for stochastic optimization" (2015), algorithm 1."""

    hyper: Adam

    def slots(self) -> tuple[str, ...]:
        """Return the names of the state vectors."""
        return ("exp_avg", "exp_avg_sq")

    def advance(
        self, w: Tensor, g: Tensor, state: Mapping[str, Tensor], out: Tensor, rate: float, step: int
    ) -> Added | None:
        """`m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g g;  w <- w - lr m' / (sqrt(v') + eps)`, bias corrected."""
        h = self.hyper
        if h.weight_decay:
            g = torch.add(g, w, alpha=h.weight_decay, out=out)
        _adam_step(h, w, g, state, out, rate, step)
        return None


@dataclass(frozen=True, slots=True)
class AdamWEquations:
    """Loshchilov, Hutter, "Decoupled weight decay regularization" (2019), algorithm 2.

    Differences from the paper: the decay is multiplied with the learning rate, as in torch.
    """

    hyper: AdamW

    def slots(self) -> tuple[str, ...]:
        """Return the names of the state vectors."""
        return ("exp_avg", "exp_avg_sq")

    def advance(
        self, w: Tensor, g: Tensor, state: Mapping[str, Tensor], out: Tensor, rate: float, step: int
    ) -> Added | None:
        """`w <- (1 - lr decay) w`, then as Adam without decay."""
        h = self.hyper
        if h.weight_decay:
            w = w.mul(1 - h.lr * rate * h.weight_decay)  # a tile's worth of memory: `out` is needed for the divisor
        _adam_step(h, w, g, state, out, rate, step)
        return None


def _adam_step(
    h: Adam | AdamW, w: Tensor, g: Tensor, state: Mapping[str, Tensor], out: Tensor, rate: float, step: int
) -> None:
    (beta1, beta2), m, v = h.betas, state["exp_avg"], state["exp_avg_sq"]
    m.lerp_(g, 1 - beta1)
    v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
    torch.sqrt(v, out=out).div_((1 - beta2**step) ** 0.5).add_(h.eps)
    torch.addcdiv(w, m, out, value=-(h.lr * rate / (1 - beta1**step)), out=out)


@dataclass(frozen=True, slots=True)
class AdaGradEquations:
    """Duchi, Hazan, Singer, "Adaptive subgradient methods" (2011), the diagonal form of figure 1."""

    hyper: AdaGrad

    def slots(self) -> tuple[str, ...]:
        """Return the names of the state vectors."""
        return ("square_sum",)

    def advance(
        self, w: Tensor, g: Tensor, state: Mapping[str, Tensor], out: Tensor, rate: float, step: int
    ) -> Added | None:
        """`s <- s + g g;  w <- w - lr g / (sqrt(s) + eps)`."""
        h, s = self.hyper, state["square_sum"]
        if step == 1:
            s.fill_(h.initial_accumulator_value)
        if h.weight_decay:
            g = g.add(w, alpha=h.weight_decay)  # a tile's worth of memory: `out` is needed for the divisor
        s.addcmul_(g, g)
        torch.sqrt(s, out=out).add_(h.eps)
        torch.addcdiv(w, g, out, value=-(h.lr * rate / (1 + (step - 1) * h.lr_decay)), out=out)
        return None


@dataclass(frozen=True, slots=True)
class RMSPropEquations:
    """Tieleman, Hinton, "Lecture 6.5: rmsprop" (2012); centred as in Graves, "Generating sequences" (2013), eq. 38-45.

    Differences from Graves: `eps` is added to the root, as in torch, not under it.
    """

    hyper: RMSProp

    def slots(self) -> tuple[str, ...]:
        """Return the names of the state vectors."""
        return ("square_avg", *["grad_avg"] * self.hyper.centered, *["momentum"] * (self.hyper.momentum > 0))

    def advance(
        self, w: Tensor, g: Tensor, state: Mapping[str, Tensor], out: Tensor, rate: float, step: int
    ) -> Added | None:
        """`s <- alpha s + (1 - alpha) g g;  v <- momentum v + g / (sqrt(s) + eps);  w <- w - lr v`."""
        h, s, lr = self.hyper, state["square_avg"], self.hyper.lr * rate
        if h.weight_decay:
            g = g.add(w, alpha=h.weight_decay)  # a tile's worth of memory: `out` is needed for the divisor
        s.mul_(h.alpha).addcmul_(g, g, value=1 - h.alpha)
        if h.centered:
            mean = state["grad_avg"].lerp_(g, 1 - h.alpha)
            s = torch.addcmul(s, mean, mean, value=-1, out=out)
        torch.sqrt(s, out=out).add_(h.eps)
        if h.momentum:
            v = state["momentum"].mul_(h.momentum).addcdiv_(g, out)
            torch.add(w, v, alpha=-lr, out=out)
            return v, -lr
        torch.addcdiv(w, g, out, value=-lr, out=out)
        return None


@dataclass(frozen=True, slots=True)
class AdditiveEquations:
    """What was pushed is a change, not a gradient, and is added."""

    hyper: Additive

    def slots(self) -> tuple[str, ...]:
        """Return the names of the state vectors."""
        return ()

    def advance(
        self, w: Tensor, g: Tensor, state: Mapping[str, Tensor], out: Tensor, rate: float, step: int
    ) -> Added | None:
        """`w <- w + rate g`."""
        torch.add(w, g, alpha=rate, out=out)
        return g, rate


@dataclass(frozen=True, slots=True)
class CustomEquations:
    """Those of an optimiser of the user's own."""

    hyper: CustomOptimizer

    def slots(self) -> tuple[str, ...]:
        """Return the names of the state vectors."""
        return tuple(self.hyper.state_names())

    def advance(
        self, w: Tensor, g: Tensor, state: Mapping[str, Tensor], out: Tensor, rate: float, step: int
    ) -> Added | None:
        """Call `CustomOptimizer.step`."""
        with torch.no_grad():
            self.hyper.step(w, g, {name: state[name] for name in self.slots()}, out, rate, step)
        return None


# A specification belongs to the class beside it, which its type cannot tell a checker.
EQUATIONS: Mapping[type[Optimizer], Callable[[Any], Equations]] = {
    SGD: SGDEquations,
    Adam: AdamEquations,
    AdamW: AdamWEquations,
    AdaGrad: AdaGradEquations,
    RMSProp: RMSPropEquations,
    Additive: AdditiveEquations,
}


class Rule:
    """An optimiser: the equations of its parameter groups."""

    def __init__(self, groups: Sequence[Equations]) -> None:
        self._groups = tuple(groups)
        self._fused = [
            fused_sgd(one.hyper, SGDEquations) if isinstance(one, SGDEquations) else None for one in self._groups
        ]

    @property
    def groups(self) -> int:
        """Number of parameter groups, group 0 included."""
        return len(self._groups)

    @property
    def slot_names(self) -> list[str]:
        """Names of the state vectors beside the parameters, whatever groups lie in them."""
        return sorted({name for equations in self._groups for name in equations.slots()})

    def fused(self, group: int) -> FusedSGD | None:
        """Return what merges and takes a step of a group in one pass, with the bits of `step`, where there is such."""
        return self._fused[group]

    def slots(self, parameter: Tensor) -> dict[str, Tensor]:
        """Return fresh state vectors for a piece of the parameters, whatever groups lie in it."""
        return {name: torch.zeros_like(parameter) for name in self.slot_names}

    def step(
        self,
        parameter: Tensor,
        gradient: Tensor,
        state: Mapping[str, Tensor],
        out: Tensor,
        *,
        rate: float,
        step: int,
        group: int = 0,
        norm: Measure | None = None,
    ) -> None:
        """Write the parameters after a step into `out` and advance the state in place.

        Parameters
        ----------
        parameter, gradient
            `float[n]`, elements of one parameter group; only read.
        state
            The same elements of the vectors that `slots` returned.
        out
            `float[n]`, apart from all others.
        rate
            Multiplies the group's learning rate.
        step
            Number of this commit, from 1.
        group
            Number of the parameter group.
        norm
            Takes in how far the step leads, if that is wanted.
        """
        equations, tiled = self._groups[group], tile()
        if parameter.numel() <= tiled:
            added = equations.advance(parameter, gradient, state, out, rate, step)
            if norm is not None:
                norm.add(parameter, out, added)
            return
        vectors = (parameter, gradient, out, *state.values())
        for w, g, target, *slots in zip(*(vector.split(tiled) for vector in vectors), strict=True):
            added = equations.advance(w, g, dict(zip(state, slots, strict=True)), target, rate, step)
            if norm is not None:
                norm.add(w, target, added)


def make_rule(spec: Optimizer) -> Rule:
    """Return the arithmetic that a specification asks for."""
    return Rule([_equations(member) for member in spec.members()])


def _equations(member: Optimizer) -> Equations:
    return CustomEquations(member) if isinstance(member, CustomOptimizer) else EQUATIONS[type(member)](member)
