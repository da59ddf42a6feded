"""The arithmetic of optimisers: torch's numbers, out of place, whatever the cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from psplatform.jobs.optimizers import SGD, AdaGrad, Adam, AdamW, Additive, Group, Optimizer, RMSProp
from psplatform.tensors import optimizers
from psplatform.tensors.optimizers import make_rule

STEPS = 100
SIZES = (1, 7, 33, 1001)

TorchFactory = Callable[[list[Tensor]], torch.optim.Optimizer]
CASES: dict[str, tuple[Optimizer, TorchFactory]] = {
    "sgd": (SGD(lr=0.1), partial(torch.optim.SGD, lr=0.1)),
    "sgd decay": (SGD(lr=0.1, weight_decay=0.01), partial(torch.optim.SGD, lr=0.1, weight_decay=0.01)),
    "sgd momentum": (SGD(lr=0.1, momentum=0.9), partial(torch.optim.SGD, lr=0.1, momentum=0.9)),
    "sgd damped": (
        SGD(lr=0.03, momentum=0.7, dampening=0.3, weight_decay=0.01),
        partial(torch.optim.SGD, lr=0.03, momentum=0.7, dampening=0.3, weight_decay=0.01),
    ),
    "sgd nesterov": (
        SGD(lr=0.03, momentum=0.7, nesterov=True, weight_decay=0.01),
        partial(torch.optim.SGD, lr=0.03, momentum=0.7, nesterov=True, weight_decay=0.01),
    ),
    "adam": (Adam(), partial(torch.optim.Adam)),
    "adam decay": (
        Adam(lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1),
        partial(torch.optim.Adam, lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1),
    ),
    "adamw": (AdamW(), partial(torch.optim.AdamW)),
    "adamw decay": (
        AdamW(lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.3),
        partial(torch.optim.AdamW, lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.3),
    ),
    "adagrad": (AdaGrad(), partial(torch.optim.Adagrad, lr=0.01)),
    "adagrad decay": (
        AdaGrad(lr=0.1, lr_decay=0.05, eps=1e-6, initial_accumulator_value=0.3, weight_decay=0.1),
        partial(torch.optim.Adagrad, lr=0.1, lr_decay=0.05, eps=1e-6, initial_accumulator_value=0.3, weight_decay=0.1),
    ),
    "rmsprop": (RMSProp(), partial(torch.optim.RMSprop)),
    "rmsprop momentum": (
        RMSProp(lr=0.003, alpha=0.9, momentum=0.8, weight_decay=0.1),
        partial(torch.optim.RMSprop, lr=0.003, alpha=0.9, momentum=0.8, weight_decay=0.1),
    ),
    "rmsprop centered": (
        RMSProp(lr=0.003, eps=1e-4, centered=True, momentum=0.5),
        partial(torch.optim.RMSprop, lr=0.003, eps=1e-4, centered=True, momentum=0.5),
    ),
}
SPECS = [*(spec for spec, _ in CASES.values()), Additive()]


def gradients(size: int, steps: int = STEPS) -> list[Tensor]:
    generator = torch.Generator().manual_seed(size)
    return [torch.randn(size, generator=generator) * 10 ** (step % 5 - 2) for step in range(steps)]


def run(spec: Optimizer, start: Tensor, updates: list[Tensor], rate: float = 1.0, cuts: tuple[int, ...] = ()) -> Tensor:
    """Step pieces of a vector, each with state of its own, and return the vector after the last step."""
    rule, edges = make_rule(spec), (0, *sorted(cuts), start.numel())
    ends = []
    for first, last in pairwise(edges):
        front, back = start[first:last].clone(), torch.empty(last - first)
        state = rule.slots(front)
        for step, update in enumerate(updates, 1):
            rule.step(front, update[first:last], state, back, rate=rate, step=step)
            front, back = back, front
        ends.append(front)
    return torch.cat(ends)


def torch_run(factory: TorchFactory, start: Tensor, updates: list[Tensor]) -> Tensor:
    parameter = start.clone().requires_grad_()
    optimizer = factory([parameter])
    for update in updates:
        parameter.grad = update.clone()
        optimizer.step()
    return parameter.detach()


@pytest.fixture
def threads() -> Iterator[None]:
    """Give the number of threads back after the test."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", CASES)
def test_a_rule_follows_torch(case: str, size: int) -> None:
    spec, factory = CASES[case]
    start, updates = torch.randn(size, generator=torch.Generator().manual_seed(0)), gradients(size)
    torch.testing.assert_close(run(spec, start, updates), torch_run(factory, start, updates), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("options", [{"foreach": False}, {}], ids=["foreach=False", "default"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("sgd")])
def test_sgd_has_the_bits_of_torch(case: str, size: int, options: dict[str, bool]) -> None:
    spec, factory = CASES[case]
    start, updates = torch.randn(size, generator=torch.Generator().manual_seed(0)), gradients(size)
    expected = torch_run(partial(factory, **options), start, updates)
    assert torch.equal(run(spec, start, updates), expected)


@pytest.mark.parametrize("spec", SPECS, ids=repr)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(size=st.integers(1, 200), cuts=st.lists(st.integers(0, 200), max_size=4), tile=st.integers(1, 64))
def test_the_bits_do_not_depend_on_cuts_or_tiles(
    spec: Optimizer, size: int, cuts: list[int], tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, updates = torch.randn(size, generator=torch.Generator().manual_seed(1)), gradients(size, 4)
    expected = run(spec, start, updates, 0.7)
    with monkeypatch.context() as patch:
        patch.setattr(optimizers, "tile", partial(int, tile))
        assert torch.equal(run(spec, start, updates, 0.7, tuple(min(cut, size) for cut in cuts)), expected)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_the_bits_do_not_depend_on_threads(spec: Optimizer) -> None:
    """Torch splits large vectors among threads, each with an end of its own."""
    start, updates = torch.randn(200_003, generator=torch.Generator().manual_seed(1)), gradients(200_003, 3)
    results = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        results.append(run(spec, start, updates))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_a_step_writes_only_the_result_and_the_state(spec: Optimizer) -> None:
    rule, parameter = make_rule(spec), torch.randn(33)
    gradient, out = torch.randn(33), torch.empty(33)
    before = parameter.clone(), gradient.clone()
    state = rule.slots(parameter)
    for step in (1, 2):
        rule.step(parameter, gradient, state, out, rate=1.0, step=step)
    assert torch.equal(parameter, before[0])
    assert torch.equal(gradient, before[1])
    assert not torch.equal(out, parameter)


@pytest.mark.parametrize(
    "spec", [SGD(lr=0.5, momentum=0.9), Adam(lr=0.5), AdamW(lr=0.5), AdaGrad(lr=0.5), RMSProp(lr=0.5)], ids=repr
)
def test_the_rate_multiplies_the_learning_rate(spec: Optimizer) -> None:
    start, updates = torch.randn(33), gradients(33, 5)
    halved = type(spec).from_plain({**spec.to_plain(), "lr": 0.25})
    assert torch.equal(run(spec, start, updates, rate=0.5), run(halved, start, updates))


def test_additive_adds_the_update_times_the_rate() -> None:
    start, update = torch.randn(33), torch.randn(33)
    assert torch.equal(run(Additive(), start, [update], rate=0.5), start + 0.5 * update)


def test_a_group_steps_with_its_own_hyper_parameters() -> None:
    spec = SGD(lr=0.1, groups=(Group("*.bias", lr=0.2, momentum=0.5), Group("*", lr=0.0)))
    rule, members = make_rule(spec), spec.members()
    start, updates = torch.randn(9), gradients(9, 6)
    for group, member in enumerate(members):
        front, back = start.clone(), torch.empty(9)
        state = rule.slots(front)
        for step, update in enumerate(updates, 1):
            rule.step(front, update, state, back, rate=1.0, step=step, group=group)
            front, back = back, front
        assert torch.equal(front, run(member, start, updates))


def test_state_vectors_are_those_that_any_group_needs() -> None:
    assert make_rule(SGD()).slots(torch.ones(3)) == {}
    slots = make_rule(RMSProp(groups=(Group("*", centered=True, momentum=0.5),))).slots(torch.ones(3))
    assert sorted(slots) == ["grad_avg", "momentum", "square_avg"]
    assert not any(slot.any() for slot in slots.values())
