"""Model + loss or step + data: the common task, and its workspace."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from psplatform.core.protocol.messages import Flaw
from psplatform.errors import ConfigurationError, InvariantViolation
from psplatform.jobs.metrics import Metric
from psplatform.tasks.cancellation import Cancellation
from psplatform.tasks.data.loaders import Collate, Data
from psplatform.tasks.data.reading import Reader
from psplatform.tasks.evaluation import Evaluator
from psplatform.tasks.flaws import flaw_of
from psplatform.tasks.objectives import Loss, Predict, Step, objective_of
from psplatform.tasks.randomness import seeded
from psplatform.tasks.seam import BatchRef, Computed, Evaluation
from psplatform.tensors.flat import FlatModel, require_apart, specs_of, tensors_of, trainable_parameters
from psplatform.tensors.layout import Layout

Model = nn.Module | Callable[[], nn.Module]


@dataclass(frozen=True, slots=True)
class SupervisedTask:
    """A module trained by the gradient of a loss on batches of samples.

    Attributes
    ----------
    model
        A callable that builds the module, or a module, whose parameters are then where training starts.
    loss
        Takes the model's output and the targets and returns their mean over the samples, as a scalar tensor.  Batches
        are then pairs (inputs, targets); where the inputs are a dict, they are the model's keyword arguments.
    data, test
        What `psplatform.tasks.data.sources.as_source` accepts; without `test` there are no evaluations.
    step
        Takes the model and a batch of any structure and returns the mean loss of its samples, as a scalar tensor;
        instead of `loss`.
    collate
        Makes a batch of a list of samples; without it torch's `default_collate` does.
    predict
        Takes the model and a batch and returns outputs and targets, for the metrics of a task with a step.
    metrics
        What evaluations measure beside the loss, by name.
    """

    model: Model
    loss: Loss | None
    data: Data
    test: Data = None
    step: Step | None = None
    collate: Collate | None = None
    predict: Predict | None = None
    metrics: Mapping[str, Metric] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.model, nn.Module):  # here, because once it was sent, its parameters have separate memories
            require_apart(self.model)


class SupervisedWorkspace:
    """A supervised task in one process (see `psplatform.tasks.seam.Workspace`).

    The gradient is a function of the bound values and the batch: torch's generator is seeded per batch, and nothing
    of an abandoned computation remains.  With `micro_batches` above one, batch norm sees the parts, not the batch.
    """

    def __init__(self, task: SupervisedTask, seed: int, device: torch.device) -> None:
        self._task, self._seed, self._device = task, seed, device
        self._module = _ready_to_train(build_module(task.model, seed).to(device))
        self._objective = objective_of(task.loss, task.step, device, task.predict)
        self._data = Reader(task.data, task.collate, self._module, device)
        self._evaluator: Evaluator | None = None
        self._flat: FlatModel | None = None
        self._buffers: list[Tensor] = []
        self._cancel = Cancellation()
        self.samples = len(self._data)
        self.evaluates = task.test is not None
        self._at_hand: Reader | None = None
        if self.evaluates and not callable(task.test):  # what a callable returns is read where it is needed
            self._at_hand = _held_out(task, self._module, device)
        self.specs = specs_of(self._module)
        self._ready: Callable[[str], None] | None = None
        self._takes = self._is_last_part = False
        # No cycle: the memory of a workspace that is given up is free at once.
        here = weakref.WeakMethod(self._on_gradient)
        for name, parameter in trainable_parameters(self._module).items():
            parameter.register_post_accumulate_grad_hook(partial(_tell, here, name))

    def initial(self) -> dict[str, Tensor]:
        """Return the tensors to start from, by name; the module is built anew because training changes the other."""
        tensors = tensors_of(build_module(self._task.model, self._seed))
        return {name: tensor.detach() for name, tensor in tensors.items()}

    def bind(
        self,
        layout: Layout,
        values: Mapping[str, Tensor],
        updates: Mapping[str, Tensor] | None,
        ready: Callable[[str], None] | None = None,
    ) -> None:
        """Make parameters and buffers of the module views of `values`, and let gradients end in views of `updates`.

        A gradient is `ready` when its parameter's hooks that were there before have run.
        """
        self._flat = FlatModel(self._module, layout, values, updates)
        self._ready = ready
        self._buffers = [values[region.key] for region in layout.regions if region.kind == "buffer"]

    def compute_from(self, values: Mapping[str, Tensor], *, alone: bool = False) -> None:
        """Make the parameters of the module views of other `values`."""
        self._bound().turn_to(values, alone=alone)

    def compute(self, batch: BatchRef, cancel: Cancellation, micro_batches: int = 1) -> Computed:
        """Write the gradient of the batch's mean loss into the bound updates, accumulated over `micro_batches` parts.

        Raises
        ------
        Cancelled
            If `cancel` is raised: noticed before each part and whenever a parameter's gradient is ready.
        ConfigurationError
            If the loss is not a scalar that depends on the parameters, or wants other batches.
        """
        flat, samples = self._bound(), len(batch.indices)
        self._cancel = cancel
        total: Tensor | float = 0.0  # in the precision of the loss
        with seeded(batch.seed, self._device, cancel), self._buffers_kept_unless_finished(flat):
            flat.expect_gradients()
            parts = np.array_split(batch.indices, min(micro_batches, samples))
            for number, part in enumerate(parts):
                cancel.check()
                self._is_last_part = number == len(parts) - 1
                loss = self._objective.loss(self._module, self._data.fetch(part)) * (len(part) / samples)
                self._takes = True
                try:
                    loss.backward()
                finally:
                    self._takes = False
                total = total + loss.detach()
            for name in flat.collect():
                self._say_ready(name)
        return Computed(loss=float(total), samples=samples)

    def _on_gradient(self, name: str) -> None:
        self._cancel.check()
        if self._flat is None or not self._takes:
            return  # it is not `compute` that wants it
        self._flat.take(name)
        if self._is_last_part:
            self._say_ready(name)

    def _say_ready(self, name: str) -> None:
        if self._ready is not None:
            self._ready(name)

    def examine(self, batch: BatchRef) -> Flaw | None:
        """Return what is not finite: the samples themselves, or the loss or a gradient, and of which samples."""
        with seeded(batch.seed, self._device), self._buffers_kept(self._bound()):
            return flaw_of(self._module, self._objective, self._data.fetch, batch)

    def evaluate(self, cancel: Cancellation) -> Evaluation | None:
        """Return what the held-out data say of the bound values, or None where there are none."""
        self._bound()
        if not self.evaluates:
            return None
        if self._evaluator is None:  # held-out data are read only by the process that evaluates
            data = self._at_hand or _held_out(self._task, self._module, self._device)
            parts = self._module, self._objective, data, self._seed, self._device
            self._evaluator = Evaluator(*parts, self._task.metrics)
        return self._evaluator.evaluate(cancel)

    def try_evaluating(self, most: int) -> None:
        """Measure the loss of up to `most` held-out samples, unless a callable must read them first.

        Metrics are not tried: some have no value of few samples.
        """
        self._bound()
        if self._at_hand is not None:
            parts = self._module, self._objective, self._at_hand, self._seed, self._device
            Evaluator(*parts, most=most).evaluate(Cancellation())

    def module(self) -> nn.Module:
        """Return the module that computes; it is bound to the platform's vectors, so copy it before changing it."""
        return self._module

    def _bound(self) -> FlatModel:
        if self._flat is None:
            raise InvariantViolation("a workspace computes only after bind()")
        return self._flat

    @contextmanager
    def _buffers_kept_unless_finished(self, flat: FlatModel) -> Iterator[None]:
        # The forward pass writes buffers (running statistics) in place, before it is known that it counts.
        saved = [buffer.clone() for buffer in self._buffers]
        try:
            yield
        except BaseException:
            self._put_back(flat, saved)
            raise

    @contextmanager
    def _buffers_kept(self, flat: FlatModel) -> Iterator[None]:
        saved = [buffer.clone() for buffer in self._buffers]
        try:
            yield
        finally:
            self._put_back(flat, saved)

    def _put_back(self, flat: FlatModel, saved: list[Tensor]) -> None:
        flat.collect()  # binds buffers again that the module replaced instead of writing into them
        for buffer, value in zip(self._buffers, saved, strict=True):
            buffer.copy_(value)


def _tell(where: Callable[[], Callable[[str], None] | None], name: str, _: Tensor) -> None:
    if (told := where()) is not None:
        told(name)


def _held_out(task: SupervisedTask, module: nn.Module, device: torch.device) -> Reader:
    """Return what reads the held-out data; what is wrong with it is not taken for a flaw of the other."""
    try:
        return Reader(task.test, task.collate, module, device)
    except ConfigurationError as error:
        raise ConfigurationError(f"Of the held-out data (test): {error}", field="test") from None


def handed_in(task: object) -> dict[str, Tensor]:
    """Return the tensors of the module of a task, by name, if it was handed in as it is: training starts from them."""
    model = task.model if isinstance(task, SupervisedTask) else None
    return tensors_of(model) if isinstance(model, nn.Module) else {}


def build_module(model: Model, seed: int) -> nn.Module:
    """Build a task's module on the CPU, whatever the device, so that every device starts from the same numbers.

    It is a copy: a module of the user's, also one that a callable returns again and again, must not be bound.
    """
    with seeded(seed, torch.device("cpu")):
        built = model if isinstance(model, nn.Module) else model()
        if isinstance(built, nn.Module):
            require_apart(built)
        module = copy.deepcopy(built)
    if not isinstance(module, nn.Module):
        raise ConfigurationError(
            f"The model is a {type(module).__name__}; hand in an nn.Module or a callable that builds one.",
            field="model",
        )
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise ConfigurationError(
            "The model has no trainable parameters; leave requires_grad on for at least one of them.", field="model"
        )
    return module


def _ready_to_train(module: nn.Module) -> nn.Module:
    # A part that its maker put into evaluation mode, a frozen batch norm say, stays there; a model that was left in
    # it as a whole was used before.
    return module if module.training else module.train()
