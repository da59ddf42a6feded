"""What training minimises, as users write it: a loss of outputs and targets, or a step of model and batch.

Both are checked where a mistake would otherwise surface as a riddle.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from psplatform.errors import ConfigurationError
from psplatform.tasks.data.structures import mapped
from psplatform.tasks.metrics import Predictions

Batch = Any  # of the user's data: any structure of tensors
Outputs = Any  # of the user's model, for the user's loss
Loss = Callable[[Outputs, Any], Tensor]
Step = Callable[[nn.Module, Batch], Tensor]
Predict = Callable[[nn.Module, Batch], tuple[Outputs, Any]]


class Objective(Protocol):
    """How a batch's loss comes about."""

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        """Return the mean loss over the batch's samples, as a scalar tensor."""

    def measure(self, module: nn.Module, batch: Batch) -> tuple[Tensor, Predictions | None]:
        """Return the mean loss, and what the model returned beside what it should have, None where that is not told."""

    def each(self, module: nn.Module, batch: Batch, samples: int, alone: Callable[[int], Batch]) -> list[Tensor]:
        """Return the loss of each of the batch's samples; `alone` makes a batch of one of them."""


class LossObjective:
    """A loss of the model's output and the targets; batches are pairs (inputs, targets).

    The model is called as ``model(**inputs)`` where the inputs are a dict, else as ``model(inputs)``.  Targets that are
    integers become int64, which torch's losses want.
    """

    def __init__(self, loss: Loss, device: torch.device) -> None:
        self._loss = _checked(loss, device, "loss")

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        """Return the mean loss over the batch's samples."""
        inputs, targets = _pair(batch)
        return self._loss(_outputs(module, inputs), targets)

    def measure(self, module: nn.Module, batch: Batch) -> tuple[Tensor, Predictions]:
        """Return the mean loss, and the model's output beside the targets."""
        inputs, targets = _pair(batch)
        outputs = _outputs(module, inputs)
        return self._loss(outputs, targets), Predictions(outputs, targets)

    def each(self, module: nn.Module, batch: Batch, samples: int, alone: Callable[[int], Batch]) -> list[Tensor]:
        """Return the loss of each sample, of the outputs of the whole batch: batch norm takes no single samples."""
        inputs, targets = _pair(batch)
        outputs = _outputs(module, inputs)
        return [self._loss(_row(outputs, row), _row(targets, row)) for row in range(samples)]


class StepObjective:
    """A step of the user's that computes the loss of a batch of any structure with the model."""

    def __init__(self, step: Step, device: torch.device, predict: Predict | None = None) -> None:
        self._step = _checked(step, device, "step")
        self._predict = predict

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        """Return what the step returns."""
        return self._step(module, batch)

    def measure(self, module: nn.Module, batch: Batch) -> tuple[Tensor, Predictions | None]:
        """Return what the step returns, and what `predict` does; without that nothing is known of outputs."""
        loss = self._step(module, batch)
        if self._predict is None:
            return loss, None
        match self._predict(module, batch):
            case [outputs, targets]:
                return loss, Predictions(outputs, mapped(targets, _as_long))
            case other:
                text = f"returned a {type(other).__name__}; return the pair (outputs, targets)"
                raise _unusable("predict function", text, field="predict")

    def each(self, module: nn.Module, batch: Batch, samples: int, alone: Callable[[int], Batch]) -> list[Tensor]:
        """Return what the step returns for each sample by itself."""
        return [self._step(module, alone(row)) for row in range(samples)]


def objective_of(
    loss: Loss | None, step: Step | None, device: torch.device, predict: Predict | None = None
) -> Objective:
    """Return the objective on `device` of the loss or the step that is given; `predict` belongs to a step.

    Raises
    ------
    ConfigurationError
        If both or neither are given, or the one that is has parameters of its own, which would stay untrained.
    """
    if loss is not None and step is None:
        return LossObjective(loss, device)
    if step is not None and loss is None:
        return StepObjective(step, device, predict)
    raise ConfigurationError("A task has either a loss or a step; give one of them.", field="loss")


def _checked(function: Callable[..., Any], device: torch.device, field: str) -> Callable[..., Tensor]:
    """Return `function` on `device`, refusing what is no scalar tensor or, while training, has no gradient."""
    if isinstance(function, nn.Module):
        if any(parameter.requires_grad for parameter in function.parameters()):
            remedy = "make them part of the model"
            raise _unusable(field, f"has trainable parameters, which would stay untrained; {remedy}")
        function = copy.deepcopy(function).to(device)

    def scalar(*arguments: Any) -> Tensor:
        value = function(*arguments)
        if not isinstance(value, Tensor):
            remedy = "return its loss" if hasattr(value, "loss") else "return a scalar tensor"
            raise _unusable(field, f"returned a {type(value).__name__}; {remedy}")
        if value.dim() != 0:
            raise _unusable(field, f"has shape {tuple(value.shape)}, not (); return its mean over the samples")
        if torch.is_grad_enabled() and not value.requires_grad:
            raise _unusable(field, "does not depend on the model's parameters; compute it without detach() or item()")
        return value

    return scalar


def _pair(batch: Batch) -> tuple[Any, Any]:
    match batch:
        case [inputs, targets]:
            return inputs, mapped(targets, _as_long)
    shown = f"{type(batch).__name__}s"
    if isinstance(batch, Mapping):
        shown += f" with the keys {', '.join(map(str, batch))}"
    elif isinstance(batch, list | tuple):
        shown += f" of {len(batch)}"
    remedy = "let the data be such pairs, or give step=... instead of loss"
    raise ConfigurationError(
        f"The batches are {shown}, but a loss takes pairs (inputs, targets); {remedy}.", field="data"
    )


def _outputs(module: nn.Module, inputs: Any) -> Outputs:
    return module(**inputs) if isinstance(inputs, Mapping) else module(inputs)


def _row(values: Any, row: int) -> Any:
    return mapped(values, lambda leaf: leaf[row : row + 1] if isinstance(leaf, Tensor) else leaf)


def _as_long(target: Any) -> Any:
    if not isinstance(target, Tensor) or target.is_floating_point() or target.is_complex():
        return target
    return target if target.dtype == torch.bool else target.long()


def _unusable(what: str, reason: str, field: str = "") -> ConfigurationError:
    return ConfigurationError(f"The {what} {reason}.", field=field or what)
