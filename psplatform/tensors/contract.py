"""What every optimiser must keep to, checked: for the authors of their own, and for those that come with psplatform."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Final

import torch
from torch import Tensor

from psplatform.errors import ConfigurationError
from psplatform.jobs.optimizers import Optimizer
from psplatform.tensors.optimizers import Rule, make_rule

_SIZE: Final = 1003
_CUTS: Final = (0, 1, 34, 512, 1000, _SIZE)
_STEPS: Final = 5
_DTYPES: Final = (torch.float32, torch.float64)

State = dict[str, Tensor]


def check_optimizer(optimizer: Optimizer) -> None:
    """Return if the optimiser keeps to what servers rely on; call it in a test of your own.

    Checked is, with its hyper-parameters as given and for each of its groups: that steps keep shape and type, that only
    the result and the state are written, that nothing is remembered elsewhere (so that a replica, and a run that goes
    on from a checkpoint, do the same), that the same steps give the same bits, that no element depends on the others
    (so that it does not matter how the model is divided), and that the rate of policy and schedule is heeded.

    Raises
    ------
    ConfigurationError
        If it does not, in a sentence that says what was found.
    """
    rule = make_rule(optimizer)
    for group in range(rule.groups):
        for dtype in _DTYPES:
            _Steps(optimizer, rule, group, dtype).check()


class _Steps:
    """The steps of one group on vectors of one type.

    Cut into pieces, they begin with the same step for each, as on several servers.
    """

    def __init__(self, optimizer: Optimizer, rule: Rule, group: int, dtype: torch.dtype) -> None:
        self._optimizer, self._rule, self._group = optimizer, rule, group
        generator = torch.Generator().manual_seed(7)
        self._start = torch.randn(_SIZE, generator=generator, dtype=dtype)
        self._gradients = [torch.randn(_SIZE, generator=generator, dtype=dtype) for _ in range(_STEPS)]

    def check(self) -> None:
        for name, vector in self._rule.slots(self._start).items():
            self._require(vector.shape == self._start.shape, f"makes the state {name!r} of another shape")
        whole = self._run()
        self._check_what_is_written()
        self._require(_equal(whole, self._run()), "gives other numbers the second time; leave chance out of it")
        self._require(
            _equal(whole, self._run(copied=True)),
            "gives other numbers from a copy of its state; remember nothing elsewhere than in the state",
        )
        pieces = [self._run(first, last) for first, last in pairwise(_CUTS)]
        self._require(
            _equal(whole, {name: torch.cat([one[name] for one in pieces]) for name in whole}),
            "gives other numbers for a vector in pieces; let each element follow from the same elements alone",
        )
        moved = not torch.equal(whole[""], self._start)
        heeded = not torch.equal(whole[""], self._run(rate=0.5)[""])
        self._require(heeded or not moved, "takes no heed of the rate; multiply the learning rate with it")

    def _run(self, first: int = 0, last: int = _SIZE, *, rate: float = 1.0, copied: bool = False) -> State:
        """Take all steps on a piece; return the state after them, with the parameters under an empty name."""
        rule, w = self._rule, self._start[first:last].clone()
        state = rule.slots(w)
        for number, gradient in enumerate(self._gradients, 1):
            if copied:  # as a checkpoint does, and in another process
                rule = make_rule(replace(self._optimizer))
                state = {name: torch.from_numpy(vector.numpy().copy()) for name, vector in state.items()}
            out = torch.full_like(w, torch.nan)
            rule.step(w, gradient[first:last].clone(), state, out, rate=rate, step=number, group=self._group)
            w = out
        self._require(not bool(w.isnan().any()), "leaves elements of the result unwritten, or makes them NaN")
        return {"": w, **state}

    def _check_what_is_written(self) -> None:
        w, gradient, out = self._start.clone(), self._gradients[0].clone(), torch.empty_like(self._start)
        state = self._rule.slots(w)
        held = {name: vector.data_ptr() for name, vector in state.items()}
        self._rule.step(w, gradient, state, out, rate=0.5, step=1, group=self._group)
        self._require(torch.equal(w, self._start), "writes to the parameters, which workers are reading; write to out")
        self._require(torch.equal(gradient, self._gradients[0]), "writes to the gradient, which is only to be read")
        kept = {name: vector.data_ptr() for name, vector in state.items()} == held
        self._require(kept, "replaces vectors of its state; write into them, as with copy_")

    def _require(self, holds: bool, found: str) -> None:
        if not holds:
            raise ConfigurationError(f"the optimizer {type(self._optimizer).__name__} {found}", field="optimizer")


def _equal(one: State, other: State) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)
