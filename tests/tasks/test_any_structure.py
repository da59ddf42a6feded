"""Gradients and evaluations are those of a plain torch loop, whatever the batches look like."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from psplatform.errors import ConfigurationError
from psplatform.tasks.opening import open_workspace
from psplatform.tasks.supervised import SupervisedTask

RNG = np.random.default_rng(3)
IDS = RNG.integers(1, 9, (40, 6))
MASK = (RNG.random((40, 6)) < 0.8).astype(np.int64)
LABELS = RNG.integers(0, 3, 40)


class Classifier(nn.Module):
    """The mean of the embeddings that the mask leaves, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 5)
        self.output = nn.Linear(5, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        mask = attention_mask.unsqueeze(2).to(self.output.weight.dtype)
        pooled = (self.embedding(input_ids) * mask).sum(1) / mask.sum(1).clamp(min=1)
        return self.output(pooled)  # type: ignore[no-any-return]


@dataclass
class Example:
    """A text and its class."""

    input_ids: Any
    attention_mask: Any
    label: Any


def dict_step(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    return cross_entropy(model(batch["input_ids"], batch["attention_mask"]), batch["labels"])


def triple_step(model: nn.Module, batch: Any) -> Tensor:
    ids, mask, labels = batch
    return cross_entropy(model(ids, mask), labels)


def nested_step(model: nn.Module, batch: Any) -> Tensor:
    (ids, mask), labels = batch
    return cross_entropy(model(ids, mask), labels)


def example_step(model: nn.Module, batch: Example) -> Tensor:
    return cross_entropy(model(batch.input_ids, batch.attention_mask), batch.label)


INPUTS = {"input_ids": IDS, "attention_mask": MASK}
ROWS = list(zip(IDS, MASK, LABELS, strict=True))
WAYS: dict[str, dict[str, Any]] = {
    "arrays in a dict": {"data": {**INPUTS, "labels": LABELS}, "step": dict_step},
    "samples that are dicts": {
        "data": [{"input_ids": ids, "attention_mask": mask, "labels": label} for ids, mask, label in ROWS],
        "step": dict_step,
    },
    "a dict and targets": {"data": (INPUTS, LABELS), "loss": cross_entropy},
    "a dict and small targets": {"data": (INPUTS, LABELS.astype(np.uint8)), "loss": cross_entropy},
    "samples of a dict and a target": {
        "data": [({"input_ids": ids, "attention_mask": mask}, int(label)) for ids, mask, label in ROWS],
        "loss": cross_entropy,
    },
    "a triple": {"data": (IDS, MASK, LABELS), "step": triple_step},
    "nested tuples": {"data": ((IDS, MASK), LABELS), "step": nested_step},
    "dataclasses": {"data": [Example(*row) for row in ROWS], "step": example_step},
    "a collate": {
        "data": ROWS,
        "collate": lambda rows: [torch.from_numpy(np.stack(column)) for column in zip(*rows, strict=True)],
        "step": triple_step,
    },
}


@pytest.fixture
def task() -> Callable[..., SupervisedTask]:
    """Make the classifier's task with one of the ways above."""

    def make(way: str, **fields: Any) -> SupervisedTask:
        return SupervisedTask(**{"model": Classifier, "loss": None, **WAYS[way], **fields})

    return make


def plain(indices: Any, seed: int) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(seed)
    model = Classifier()
    loss = cross_entropy(model(torch.tensor(IDS[indices]), torch.tensor(MASK[indices])), torch.tensor(LABELS[indices]))
    loss.backward()
    return model, loss


@pytest.mark.parametrize("way", WAYS)
def test_the_gradient_is_the_one_of_a_plain_torch_loop(bind: Any, task: Any, way: str) -> None:
    """Bit for bit."""
    bound = bind(task(way), seed=3)
    computed = bound.compute([4, 1, 9])
    model, loss = plain([4, 1, 9], seed=3)
    assert computed.loss == loss.item()
    for name, parameter in model.named_parameters():
        assert torch.equal(bound.update(name), parameter.grad), name


@pytest.mark.parametrize("way", WAYS)
def test_micro_batches_split_any_structure(bind: Any, task: Any, way: str) -> None:
    bound = bind(task(way))
    whole = bound.compute(range(10))
    expected = bound.gradient()
    split = bound.compute(range(10), parts=3)
    assert split.loss == pytest.approx(whole.loss, rel=1e-5)
    torch.testing.assert_close(bound.gradient(), expected, rtol=1e-5, atol=1e-6)
    assert split.samples == 10


@pytest.mark.parametrize("way", WAYS)
def test_evaluation_goes_over_any_structure(bind: Any, task: Any, way: str) -> None:
    """The loss is that of all samples; there is accuracy where outputs and targets are known apart."""
    bound = bind(task(way, test=WAYS[way]["data"]))
    found = bound.evaluate()
    model = bound.workspace.module().eval()
    with torch.no_grad():
        outputs = model(torch.tensor(IDS), torch.tensor(MASK))
    assert found.loss == pytest.approx(cross_entropy(outputs, torch.tensor(LABELS)).item(), rel=1e-6)
    accuracy = (outputs.argmax(1).numpy() == LABELS).mean()
    assert found.accuracy == (accuracy if "loss" in WAYS[way] else None)


def test_the_step_is_in_the_mode_of_the_model(bind: Any) -> None:
    """It computes a gradient while training and none while evaluating."""
    modes: list[tuple[bool, bool]] = []

    def step(model: nn.Module, batch: Tensor) -> Tensor:
        modes.append((model.training, torch.is_grad_enabled()))
        return model(batch).square().mean()  # type: ignore[no-any-return]

    data = torch.ones(4, 2)
    bound = bind(SupervisedTask(lambda: nn.Linear(2, 1), None, data, data, step))
    bound.evaluate()
    bound.compute([0, 1])
    assert modes == [(False, False), (True, True)]


BAD_STEPS: dict[str, Callable[..., Any]] = {
    r"The step has shape \(4,\)": lambda model, batch: model(batch[0]).sum(1),
    "The step returned a dict": lambda model, batch: {"loss": model(batch[0]).sum()},
    "The step returned a SimpleNamespace; return its loss": lambda model, batch: SimpleNamespace(loss=1.0),
    "The step does not depend": lambda model, batch: model(batch[0]).sum().detach(),
}


@pytest.mark.parametrize("message", BAD_STEPS)
def test_a_step_that_cannot_be_trained_on_is_refused(bind: Any, message: str) -> None:
    bound = bind(SupervisedTask(lambda: nn.Linear(2, 3), None, (torch.ones(8, 2), LABELS[:8]), step=BAD_STEPS[message]))
    with pytest.raises(ConfigurationError, match=message) as caught:
        bound.compute(range(4))
    assert caught.value.field == "step"


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ({**INPUTS, "labels": LABELS}, "dicts with the keys input_ids, attention_mask, labels"),
        ((IDS, MASK, LABELS), "tuples of 3"),
        (IDS, "Tensors"),
    ],
)
def test_a_loss_refuses_batches_that_are_no_pairs(bind: Any, data: Any, shown: str) -> None:
    bound = bind(SupervisedTask(Classifier, cross_entropy, data))
    with pytest.raises(ConfigurationError, match=f"{shown}, .* or give step=.* instead of loss") as caught:
        bound.compute(range(4))
    assert caught.value.field == "data"


def test_a_task_has_one_objective() -> None:
    for loss, step in ((None, None), (cross_entropy, dict_step)):
        with pytest.raises(ConfigurationError, match="either a loss or a step"):
            open_workspace(SupervisedTask(Classifier, loss, ROWS, step=step), 0, torch.device("cpu"))


# --- the types of numbers ---


X = RNG.standard_normal((30, 2))
Y = RNG.standard_normal((30, 1))


def seen_types(bind: Any, dtype: torch.dtype, data: Any, **fields: Any) -> list[torch.dtype]:
    """Return the types of the tensors of a batch as a step sees them."""
    seen: list[torch.dtype] = []

    def step(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        seen.extend(tensor.dtype for tensor in batch.values())
        return next(model.parameters()).sum()

    bind(SupervisedTask(lambda: nn.Linear(2, 1, dtype=dtype), None, data, step=step, **fields)).compute([0, 1])
    return seen


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_data_arrive_in_the_models_floating_point_type_and_other_numbers_as_they_are(
    bind: Any, dtype: torch.dtype
) -> None:
    data = {"x": X, "y": Y.astype(np.float32), "i": np.arange(30, dtype=np.int16), "b": X[:, 0] > 0}
    assert seen_types(bind, dtype, data) == [dtype, dtype, torch.int16, torch.bool]


def test_what_collate_makes_arrives_as_it_is(bind: Any) -> None:
    """Whoever makes the tensors chooses their types."""

    def collate(rows: list[Any]) -> dict[str, Tensor]:
        return {"x": torch.stack([row for row, _ in rows]), "y": torch.zeros(len(rows), dtype=torch.float32)}

    data = torch.from_numpy(X), torch.from_numpy(Y)
    assert seen_types(bind, torch.float32, data, collate=collate) == [torch.float64, torch.float32]


def test_data_stay_as_they_are_where_the_model_has_several_types(bind: Any) -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(2, 1), nn.Linear(2, 1).double()

    seen: list[torch.dtype] = []

    def step(model: Any, batch: dict[str, Tensor]) -> Tensor:
        seen.extend(tensor.dtype for tensor in batch.values())
        return sum(parameter.sum().double() for parameter in model.parameters())  # type: ignore[return-value]

    bind(SupervisedTask(Mixed, None, {"x": X, "y": Y.astype(np.float32)}, step=step)).compute([0])
    assert seen == [torch.float64, torch.float32]


def test_a_double_precision_gradient_loses_no_digit(bind: Any) -> None:
    """Bit for bit that of a plain loop in float64, the reported loss included, also in parts."""
    bound = bind(SupervisedTask(lambda: nn.Linear(2, 1, dtype=torch.float64), mse_loss, (X, Y)), seed=3)
    computed = bound.compute(range(8))
    torch.manual_seed(3)
    model = nn.Linear(2, 1, dtype=torch.float64)
    loss = mse_loss(model(torch.tensor(X[:8])), torch.tensor(Y[:8]))
    loss.backward()
    assert computed.loss == loss.item()
    for name, parameter in model.named_parameters():
        assert torch.equal(bound.update(name), parameter.grad)
    assert bound.compute(range(8), parts=4).loss == pytest.approx(loss.item(), rel=1e-14)
