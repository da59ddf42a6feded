"""What an evaluation measures beside the loss: values of all held-out samples, gathered chunk by chunk."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from psplatform.errors import ConfigurationError
from psplatform.jobs.metrics import Metric, accumulates
from psplatform.tasks.data.structures import leaves_of, mapped


class Predictions(NamedTuple):
    """What a model returned for a batch, and what it should have."""

    outputs: Any
    targets: Any


class Measure(Protocol):
    """One metric during one evaluation."""

    def take(self, found: Predictions) -> None:
        """Add the next chunk."""

    def value(self, loss: float) -> Any:
        """Return the metric of all that was noted; `loss` is the mean loss."""


def begin_measures(metrics: Mapping[str, Metric], device: torch.device) -> dict[str, Measure]:
    """Return a measure with nothing noted yet for each metric that is not measured anyway."""
    shared = _Gathered()
    wanted = {name: one.measure for name, one in metrics.items() if not one.is_always_measured}
    return {name: _begun(name, measure, shared, device) for name, measure in wanted.items()}


def _begun(name: str, measure: Any, shared: _Gathered, device: torch.device) -> Measure:
    if isinstance(measure, str):  # objects of others may compare with texts in ways of their own
        return _Perplexity() if measure == "perplexity" else _Whole(name, macro_f1, shared)
    return _Accumulated(measure, device) if accumulates(measure) else _Whole(name, measure, shared)


def require_predictions(metrics: Mapping[str, Metric], found: Predictions | None) -> None:
    """Refuse metrics that are made of outputs where a step tells none."""
    wanting = [name for name, one in metrics.items() if one.needs_outputs]
    if found is None and wanting:
        text = f'the metric "{wanting[0]}" is made of outputs and targets, which a step does not tell'
        raise ConfigurationError(f"{text}; give predict=..., (model, batch) -> (outputs, targets)", field="predict")


def as_number(name: str, value: Any) -> float:
    """Return what a metric returned as a float.

    Raises
    ------
    ConfigurationError
        If it is not one number.
    """
    if isinstance(value, Tensor | np.ndarray) and math.prod(value.shape) == 1:
        value = value.item()
    if isinstance(value, Real) and not isinstance(value, bool):
        return float(value)
    shape = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
    remedy = "give its parts as metrics of their own" if isinstance(value, Mapping) else "return one number"
    text = f'The metric "{name}" is a {type(value).__name__}{shape}; {remedy}.'
    raise ConfigurationError(text, field="metrics")


def right_predictions(found: Predictions) -> Tensor | None:
    """Count right ones where outputs are scores ``[B, classes]`` and targets class ids ``int64[B]``; else None."""
    outputs, targets = scores_of(found.outputs), found.targets
    if outputs is None or not isinstance(targets, Tensor) or targets.dtype != torch.int64:
        return None
    batch, *classes = outputs.shape or (0,)
    if len(classes) != 1 or classes[0] == 1 or targets.shape != (batch,):
        return None
    return (outputs.argmax(dim=1) == targets).sum()


def scores_of(outputs: Any) -> Tensor | None:
    """Return the tensor of a model's scores: its output, or that output's ``logits``; None where there is none."""
    found = outputs if isinstance(outputs, Tensor) else getattr(outputs, "logits", None)
    return found if isinstance(found, Tensor) else None


def macro_f1(outputs: Any, targets: Any) -> float:
    """Return the unweighted mean of the F1 scores of all classes that occur among targets or predictions.

    Parameters
    ----------
    outputs, targets
        Scores ``[N, classes]`` and class ids ``int64[N]``.

    Raises
    ------
    ConfigurationError
        If they are something else.
    """
    scores = scores_of(outputs)
    if right_predictions(Predictions(outputs, targets)) is None or scores is None:
        text = "f1 needs outputs of shape [samples, classes] and integer targets of shape [samples]"
        raise ConfigurationError(f"{text}; give a function of your own instead", field="metrics")
    from sklearn.metrics import f1_score  # noqa: PLC0415  brings SciPy, which nothing else of an evaluation needs

    return float(f1_score(targets.numpy(), scores.argmax(dim=1).numpy(), average="macro", zero_division=0.0))


class _Perplexity:
    """The exponential of the mean loss: of a language model's, where that is the mean over tokens in nats."""

    def take(self, found: Predictions) -> None:
        """Do nothing: the loss says it all."""

    def value(self, loss: float) -> float:
        """Return it; infinite where it exceeds every float."""
        try:
            return math.exp(loss)
        except OverflowError:
            return math.inf


class _Accumulated:
    """An object that takes batches, as those of torchmetrics."""

    def __init__(self, measure: Any, device: torch.device) -> None:
        self._measure = copy.deepcopy(measure)
        if callable(getattr(self._measure, "to", None)):
            self._measure = self._measure.to(device)
        self._measure.reset()

    def take(self, found: Predictions) -> None:
        """Let the object note the chunk."""
        self._measure.update(found.outputs, found.targets)

    def value(self, loss: float) -> Any:
        """Return what the object computes."""
        return self._measure.compute()


class _Gathered:
    """Outputs and targets of all chunks, on the CPU, for all functions together."""

    def __init__(self) -> None:
        self._chunks: list[Predictions] = []
        self._last: Predictions | None = None
        self._whole: Predictions | None = None

    def take(self, found: Predictions) -> None:
        """Add the chunk, once."""
        if found is not self._last:
            self._last = found
            self._chunks.append(Predictions(*(mapped(part, _on_cpu) for part in found)))

    def whole(self, name: str) -> Predictions:
        """Return all chunks as one."""
        if self._whole is None:
            try:
                self._whole = Predictions(*(_joined(list(parts)) for parts in zip(*self._chunks, strict=True)))
            except (RuntimeError, ValueError) as error:
                text = f'The metric "{name}" gets all outputs at once, but those of several batches do not fit together'
                remedy = "give an object with update(), compute() and reset() instead"
                raise ConfigurationError(f"{text} ({error}); {remedy}.", field="metrics") from None
        return self._whole


class _Whole:
    """A function of all outputs and targets."""

    def __init__(self, name: str, function: Callable[[Any, Any], Any], gathered: _Gathered) -> None:
        self._name, self._function, self._gathered = name, function, gathered

    def take(self, found: Predictions) -> None:
        """Keep the chunk."""
        self._gathered.take(found)

    def value(self, loss: float) -> Any:
        """Return what the function makes of all."""
        return self._function(*self._gathered.whole(self._name))


def _on_cpu(leaf: Any) -> Any:
    return leaf.detach().cpu() if isinstance(leaf, Tensor) else leaf


def _joined(parts: list[Any]) -> Any:
    columns = iter([_column(list(column)) for column in zip(*map(leaves_of, parts), strict=True)])
    return mapped(parts[0], lambda _: next(columns))


def _column(leaves: list[Any]) -> Any:
    first = leaves[0]
    return torch.cat(leaves) if isinstance(first, Tensor) and first.dim() else first
