"""What is found to be not finite in a gradient, and in which samples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from psplatform.core.protocol.messages import Flaw
from psplatform.jobs.optimizers import SGD
from psplatform.tasks.cancellation import Cancellation
from psplatform.tasks.flaws import find_flaw
from psplatform.tasks.layouts import layout_of
from psplatform.tasks.opening import open_workspace
from psplatform.tasks.seam import BatchRef, Task, Update
from psplatform.tasks.supervised import SupervisedTask
from psplatform.tensors.vectors import allocate, fill

CPU = torch.device("cpu")
BATCH = BatchRef(np.array([8, 3, 5, 1]), 1)


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((10, 3)).astype(np.float32), rng.random((10, 2)).astype(np.float32)


def opened(task: Any) -> Any:
    workspace = open_workspace(task, 0, CPU)
    layout = layout_of(workspace, SGD(), 1, 64)
    values, updates = allocate(layout), allocate(layout)
    fill(layout, values, workspace.initial())
    workspace.bind(layout, values, updates)
    return workspace, values, updates


def flaw_in(task: Any, batch: BatchRef = BATCH) -> Flaw | None:
    workspace, values, _ = opened(task)
    done = workspace.compute(batch, Cancellation())
    before = {key: vector.clone() for key, vector in values.items()}
    found = find_flaw(workspace, batch, done.loss, math.nan)
    for key, vector in before.items():
        torch.testing.assert_close(values[key], vector, rtol=0, atol=0, equal_nan=True)
    return found


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


@pytest.mark.parametrize(("which", "tensor"), [(0, "the input"), (1, "the target")])
def test_samples_that_are_not_finite_are_named(which: int, tensor: str) -> None:
    both = data()
    both[which][[3, 8, 9]] = math.inf
    found = flaw_in(SupervisedTask(model, nn.functional.mse_loss, both))
    assert found == Flaw(tensor, (3, 8), 2, alone=True, of_data=True)
    assert str(found) == f"{tensor} of 2 samples (3, 8) is not finite"


def logarithm(output: Tensor, target: Tensor) -> Tensor:
    return (torch.log(target) * output).mean()


def test_a_sample_whose_own_loss_is_not_finite_is_named() -> None:
    inputs, targets = data()
    targets[5] = 0.0
    assert flaw_in(SupervisedTask(model, logarithm, (inputs, targets))) == Flaw("the loss", (5,), 1)


class Root(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.shift = nn.Parameter(torch.zeros(1))

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.sqrt(inputs[:, :1].abs() * self.scale) + self.shift


def test_a_gradient_that_is_not_finite_is_named_by_its_parameter() -> None:
    """The root of zero is finite, its derivative is not."""
    inputs, targets = data()
    inputs[1] = 0.0
    task = SupervisedTask(Root, nn.functional.mse_loss, (inputs, targets[:, :1]))
    workspace, _, _ = opened(task)
    assert math.isfinite(workspace.compute(BATCH, Cancellation()).loss)
    assert flaw_in(task) == Flaw("the gradient of scale", (1,), 1)


def overflowing(output: Tensor, target: Tensor) -> Tensor:
    """Finite for each sample, infinite for four of them."""
    return (output * 0 + 1e38).sum() + 0 * target.sum()


def test_where_no_sample_shows_it_by_itself_the_batch_is_named() -> None:
    found = flaw_in(SupervisedTask(model, overflowing, data()))
    assert found == Flaw("the loss", (1, 3, 5, 8), 4, alone=False)
    assert str(found) == "the loss in a batch of 4 samples (1, 3, 5, 8) is not finite"


def choosy(output: Tensor, target: Tensor) -> Tensor:
    if len(output) == 1:
        raise ValueError("no single samples, please")
    return (torch.log(target * 0) * output).mean()


def test_code_that_cannot_be_run_sample_by_sample_leaves_the_batch() -> None:
    assert flaw_in(SupervisedTask(model, choosy, data())) == Flaw("the loss", (1, 3, 5, 8), 4, alone=False)


def test_a_gradient_is_found_in_a_model_that_takes_no_single_samples() -> None:
    """Batch norm does not; the parameter and the batch are named all the same."""
    inputs, targets = data()
    inputs[1] = 0.0
    given = lambda: nn.Sequential(Root(), nn.BatchNorm1d(1))  # noqa: E731
    task = SupervisedTask(given, nn.functional.mse_loss, (inputs, targets[:, :1]))
    assert flaw_in(task) == Flaw("the gradient of 0.scale", (1, 3, 5, 8), 4, alone=False)


def step(module: nn.Module, batch: Any) -> Tensor:
    return nn.functional.mse_loss(module(batch["x"]), batch["y"])


@pytest.mark.parametrize("key", ["x", "y"])
def test_in_a_batch_of_another_structure_the_part_is_named(key: str) -> None:
    inputs, targets = data()
    both = {"x": inputs, "y": targets}
    both[key][5] = math.nan
    found = flaw_in(SupervisedTask(model, None, both, step=step))
    assert found == Flaw(f"{key!r} of the input", (5,), 1, alone=True, of_data=True)


def test_a_step_is_tried_sample_by_sample() -> None:
    inputs, targets = data()
    targets[5] = 0.0

    def of_logarithm(module: nn.Module, batch: Any) -> Tensor:
        return logarithm(module(batch["x"]), batch["y"])

    task = SupervisedTask(lambda: nn.Linear(3, 2), None, {"x": inputs, "y": targets}, step=of_logarithm)
    assert flaw_in(task) == Flaw("the loss", (5,), 1)


class Additive(Task):
    samples = 10

    def initial(self) -> dict[str, Tensor]:
        return {"a": torch.zeros(2), "b": torch.zeros(2)}

    def compute(self, parameters: Any, batch: Any, rng: Any) -> Update:
        return Update({"a": torch.ones(2), "b": torch.tensor([1.0, math.nan])}, 0.5)


def test_of_a_task_the_update_is_named() -> None:
    assert flaw_in(Additive()) == Flaw("the update of b", (1, 3, 5, 8), 4, alone=False)


def test_a_gradient_that_is_finite_is_not_looked_at() -> None:
    assert find_flaw(None, BATCH, 1.0, 2.0) is None  # type: ignore[arg-type]  # it is not asked
