"""The contract of optimisers: those that come with psplatform keep to it, and each breach is found and named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from psplatform.core.parameters import parameter
from psplatform.errors import ConfigurationError
from psplatform.jobs.optimizers import SGD, AdaGrad, Adam, AdamW, Additive, Group, Optimizer, RMSProp
from psplatform.tensors.contract import check_optimizer
from psplatform.tensors.optimizers import make_rule
from psplatform.tensors.own_optimizers import CustomOptimizer


@dataclass(frozen=True)
class Lion(CustomOptimizer):
    """Chen et al., "Symbolic discovery of optimization algorithms" (2023), algorithm 2, without decay."""

    lr: float = parameter(0.01, minimum=0.0, help="learning rate")
    beta1: float = parameter(0.9, minimum=0.0, below=1.0, help="of the direction")
    beta2: float = parameter(0.99, minimum=0.0, below=1.0, help="of the momentum")

    def state_names(self) -> tuple[str, ...]:
        return ("momentum",)

    def step(
        self, parameters: Tensor, gradient: Tensor, state: Mapping[str, Tensor], out: Tensor, rate: float, number: int
    ) -> None:
        momentum = state["momentum"]
        torch.lerp(gradient, momentum, self.beta1, out=out).sign_()
        torch.add(parameters, out, alpha=-self.lr * rate, out=out)
        momentum.lerp_(gradient, 1 - self.beta2)


@pytest.mark.parametrize(
    "optimizer",
    [
        SGD(lr=0.1, momentum=0.9, nesterov=True),
        Adam(groups=(Group("*.bias", lr=0.1),)),
        AdamW(weight_decay=0.1),
        AdaGrad(),
        RMSProp(centered=True, momentum=0.5),
        Additive(),
        Lion(),
        Lion(groups=(Group("*.bias", lr=0.1),)),
    ],
    ids=repr,
)
def test_what_comes_with_psplatform_and_a_sound_class_keep_to_it(optimizer: Optimizer) -> None:
    check_optimizer(optimizer)


SEEN: list[Tensor] = []


def plain(w: Tensor, g: Tensor, state: Any, out: Tensor, rate: float, number: int) -> None:
    torch.add(w, g, alpha=-0.1 * rate, out=out)


def in_place(w: Tensor, g: Tensor, state: Any, out: Tensor, rate: float, number: int) -> None:
    out.copy_(w.sub_(g, alpha=rate))


def on_the_gradient(w: Tensor, g: Tensor, state: Any, out: Tensor, rate: float, number: int) -> None:
    torch.sub(w, g.mul_(rate), out=out)


def by_chance(w: Tensor, g: Tensor, state: Any, out: Tensor, rate: float, number: int) -> None:
    torch.add(w, g * torch.rand_like(g), alpha=-rate, out=out)


def by_the_norm(w: Tensor, g: Tensor, state: Any, out: Tensor, rate: float, number: int) -> None:
    torch.add(w, g / g.norm(), alpha=-rate, out=out)


def half_of_it(w: Tensor, g: Tensor, state: Any, out: Tensor, rate: float, number: int) -> None:
    out[: len(out) // 2] = (w - rate * g)[: len(out) // 2]


def without_the_rate(w: Tensor, g: Tensor, state: Any, out: Tensor, rate: float, number: int) -> None:
    torch.add(w, g, alpha=-0.1, out=out)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (in_place, "writes to the parameters"),
        (on_the_gradient, "writes to the gradient"),
        (by_chance, "gives other numbers the second time"),
        (by_the_norm, "gives other numbers for a vector in pieces"),
        (half_of_it, "unwritten"),
        (without_the_rate, "takes no heed of the rate"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_breach_is_named(steps: Any, message: str) -> None:
    @dataclass(frozen=True)
    class Breach(CustomOptimizer):
        def step(self, *given: Any) -> None:
            steps(*given)

    with pytest.raises(ConfigurationError, match=f"the optimizer Breach .*{message}") as caught:
        check_optimizer(Breach())
    assert caught.value.field == "optimizer"


def test_what_is_remembered_elsewhere_than_in_the_state_is_found() -> None:
    @dataclass(frozen=True)
    class Forgetful(CustomOptimizer):
        def __post_init__(self) -> None:
            super().__post_init__()
            object.__setattr__(self, "kept", {})

        def step(self, w: Tensor, g: Tensor, state: Any, out: Tensor, rate: float, number: int) -> None:
            kept: dict[str, Tensor] = self.kept  # type: ignore[attr-defined]
            before = kept.get("momentum", torch.zeros_like(g)) if number > 1 else torch.zeros_like(g)
            kept["momentum"] = before * 0.9 + g
            torch.add(w, kept["momentum"], alpha=-rate, out=out)

    with pytest.raises(ConfigurationError, match="from a copy of its state; remember nothing elsewhere"):
        check_optimizer(Forgetful())


def test_a_class_is_named_after_itself_and_its_fields_are_its_hyper_parameters() -> None:
    assert Lion(lr=1).to_plain() == {"name": "lion", "lr": 1.0, "beta1": 0.9, "beta2": 0.99, "groups": []}
    with pytest.raises(ConfigurationError, match="lr must be"):
        Lion(lr=-1.0)
    with pytest.raises(ConfigurationError, match='lion has no hyper-parameter "lrr"|lrr'):
        Lion(groups=(Group("*", lrr=1.0),))


def test_a_class_that_is_not_whole_is_refused_with_what_to_write() -> None:
    class Plain(CustomOptimizer):
        def step(self, *given: Any) -> None:
            plain(*given)

    with pytest.raises(ConfigurationError, match=r"Plain is no dataclass; write @dataclass\(frozen=True\)"):
        Plain()

    @dataclass(frozen=True)
    class Empty(CustomOptimizer):
        pass

    with pytest.raises(ConfigurationError, match="Empty has no step"):
        Empty()


def test_its_steps_are_those_of_the_equations() -> None:
    rule, w, g = make_rule(Lion(lr=0.5)), torch.tensor([1.0, -1.0]), torch.tensor([3.0, -0.1])
    state, out = rule.slots(w), torch.empty(2)
    rule.step(w, g, state, out, rate=0.5, step=1)
    assert out.tolist() == [0.75, -0.75]
    torch.testing.assert_close(state["momentum"], torch.tensor([0.03, -0.001]))
