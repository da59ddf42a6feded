"""What training starts from, beside a task or inside of it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import cloudpickle
import pytest
import torch
from torch import Tensor, nn

import psplatform as ps
from psplatform.runtime.initial import Initial, initial_of, initial_tensors
from psplatform.runtime.program import open_task, pickle_parts, pickle_task
from psplatform.tasks.supervised import SupervisedTask
from psplatform.tensors.flat import tensors_of


class Tied(nn.Module):
    """A module with everything that a pickle may lose: a tied parameter, a frozen one, buffers of both kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(30, 30)
        self.second = nn.Linear(30, 30)
        self.second.weight = self.first.weight
        self.listed = [self.first.weight]
        self.frozen = nn.Parameter(torch.arange(4.0), requires_grad=False)
        self.register_buffer("mean", torch.full((30,), 2.0))
        self.register_buffer("scale", torch.tensor(3.0), persistent=False)


SETTINGS = {"seed": 0, "shards": 1, "block_elements": 65536}


def test_the_numbers_of_a_module_travel_beside_its_task() -> None:
    """Processes that pull them need no copies of their own."""
    module = Tied()
    task = SupervisedTask(module, nn.functional.mse_loss, (torch.zeros(8, 30), torch.zeros(8, 30)))
    initial = initial_of(task, [task.data])
    light, _ = pickle_parts(task, {"model": module}, initial.stand_ins)
    assert len(pickle_task(task, {})) - len(light) >= 4 * 900 - 100
    workspace, _ = open_task(light, ps.SGD(), SETTINGS, torch.device("cpu"))
    expected = tensors_of(module)
    found = initial_tensors(workspace, initial.pickled)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    opened: Any = workspace.module()
    assert opened.second.weight is opened.first.weight
    assert opened.listed[0] is opened.first.weight
    assert torch.equal(opened.frozen, module.frozen)
    assert float(opened.scale) == 3
    assert float(module.mean[0]) == 2, "the user's own is as it was"


def test_of_a_module_that_is_built_where_it_is_needed_nothing_travels() -> None:
    task = SupervisedTask(Tied, nn.functional.mse_loss, (torch.zeros(8, 30), torch.zeros(8, 30)))
    assert initial_of(task, []) == Initial()
    workspace, _ = open_task(pickle_task(task, {}), ps.SGD(), SETTINGS, torch.device("cpu"))
    assert initial_tensors(workspace, b"").keys() == tensors_of(Tied()).keys()


class Masked(torch.Tensor):
    """A kind of tensor of the user's."""


def test_a_tensor_of_another_kind_stays_in_the_task() -> None:
    module = nn.Linear(3, 3)
    module.register_buffer("mask", torch.ones(3).as_subclass(Masked))
    initial = initial_of(SupervisedTask(module, nn.functional.mse_loss, ()), [])
    assert id(module.mask) not in initial.stand_ins
    assert id(module.weight) in initial.stand_ins
    assert "mask" in cloudpickle.loads(initial.pickled)


def test_a_workspace_that_is_given_up_gives_back_its_memory_at_once() -> None:
    """A cycle would keep it until Python looks for cycles, which may be never."""
    task = SupervisedTask(Tied, nn.functional.mse_loss, (torch.zeros(8, 30), torch.zeros(8, 30)))
    workspace, _ = open_task(pickle_task(task, {}), ps.SGD(), SETTINGS, torch.device("cpu"))
    kept = weakref.ref(workspace.module())
    gc.disable()
    try:
        del workspace
        assert kept() is None
    finally:
        gc.enable()


class Anchored:
    """A step that holds the module as it was at the beginning."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        return (model(batch[0]) - self.module(batch[0])).square().mean()


def _shared_data(module: Tied) -> dict[str, Any]:
    return {"data": (module.mean.expand(8, 30), torch.zeros(8, 30)), "shared": module.mean}


def _shared_weights(module: Tied) -> dict[str, Any]:
    return {"loss": nn.CrossEntropyLoss(weight=module.mean), "shared": module.mean}


def _shared_module(module: Tied) -> dict[str, Any]:
    return {"step": Anchored(module), "loss": None, "shared": module.first.weight}


@pytest.mark.parametrize("share", [_shared_weights, _shared_module])
def test_what_else_the_task_has_keeps_its_numbers(share: Callable[[Tied], dict[str, Any]]) -> None:
    """A loss, a step or data may hold the very tensors of the module."""
    module = Tied()
    fields = {"loss": nn.functional.mse_loss, "step": None, "data": (torch.zeros(8, 30),) * 2} | share(module)
    shared = fields.pop("shared")
    task = SupervisedTask(module, **fields)
    others = [fields[name] for name in ("loss", "step", "data")]
    initial = initial_of(task, others)
    assert id(shared) not in initial.stand_ins
    light, _ = pickle_parts(task, {}, initial.stand_ins)
    loaded: Any = cloudpickle.loads(light)
    for before, after in zip(others, (loaded.loss, loaded.step, loaded.data), strict=True):
        if isinstance(before, nn.CrossEntropyLoss):
            assert torch.equal(after.weight, module.mean)
        elif isinstance(before, Anchored):
            for name, tensor in module.state_dict().items():
                assert torch.equal(after.module.state_dict()[name], tensor)


class Caching(nn.Linear):
    """A module that looks at its numbers when it is unpickled."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.total = float(self.weight.detach().sum())


def test_a_module_with_a_way_of_its_own_to_be_pickled_travels_whole() -> None:
    module = nn.Sequential(nn.LSTM(3, 3), Caching(3, 3))
    assert initial_of(SupervisedTask(module, nn.functional.mse_loss, ()), []) == Initial()
    assert initial_of(SupervisedTask(module[0], nn.functional.mse_loss, ()), []).stand_ins


def test_a_module_without_numbers_has_none_to_send() -> None:
    module = nn.Linear(3, 3, device="meta")
    assert initial_of(SupervisedTask(module, nn.functional.mse_loss, ()), []) == Initial()
