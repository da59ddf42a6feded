"""Whole trainings in memory in a few words, and the serial loop that they are compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from psplatform.core.plan import Plan, Stop
from psplatform.core.policy import Scope
from psplatform.core.protocol.effects import Finish
from psplatform.jobs.optimizers import SGD
from psplatform.jobs.schedules import Constant
from psplatform.memory import MemoryRun
from psplatform.memory.training import TensorArithmetic
from psplatform.policies.registry import make_policy
from psplatform.tasks.data.sampling import batches_per_epoch, epoch_batch, gradient_seed, replacement
from psplatform.tasks.supervised import SupervisedTask

SEED = 11


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Compute in one thread: several wait for each other on a loaded machine, for tensors of a few elements."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Convolutional(nn.Module):
    """A small network of odd sizes that draws random numbers (dropout), perhaps with running statistics."""

    def __init__(self, *, normalised: bool = False) -> None:
        super().__init__()
        self.filters = nn.Conv2d(1, 3, 3)
        self.norm = nn.BatchNorm2d(3) if normalised else nn.Identity()
        self.drop = nn.Dropout(0.3)
        self.hidden = nn.Linear(3 * 5 * 3, 11)
        self.output = nn.Linear(11, 5)

    def forward(self, inputs: Tensor) -> Tensor:
        maps = torch.relu(self.norm(self.filters(inputs)))
        return self.output(torch.relu(self.hidden(self.drop(maps).flatten(1))))  # type: ignore[no-any-return]


def samples(count: int = 45) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    inputs = rng.standard_normal((count, 1, 7, 5), dtype=np.float32)
    return inputs, rng.integers(0, 5, count)


@pytest.fixture
def convolutional() -> Callable[..., SupervisedTask]:
    """Make the task of a small convolutional network, perhaps with held-out data."""

    def make(*, normalised: bool = False, count: int = 45, test: bool = False) -> SupervisedTask:
        held_out = samples(23) if test else None
        model = lambda: Convolutional(normalised=normalised)  # noqa: E731
        return SupervisedTask(model, nn.functional.cross_entropy, samples(count), held_out)

    return make


@dataclass
class Training:
    """One training in memory: say what shall happen, then `run`."""

    arithmetic: TensorArithmetic
    memory: MemoryRun

    def join(self, name: str, at: float) -> Training:
        self.memory.join(name, at)
        return self

    def kill(self, name: str, at: float) -> Training:
        self.memory.kill(name, at)
        return self

    def stop(self, at: float) -> Training:
        self.memory.stop(at)
        return self

    def run(self) -> Training:
        self.memory.run()
        return self

    @property
    def finish(self) -> Finish:
        assert self.memory.finish is not None
        return self.memory.finish

    @property
    def result(self) -> dict[str, Tensor]:
        return self.arithmetic.saved

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return self.memory.of_kind(kind)


@pytest.fixture
def train() -> Callable[..., Training]:
    """Prepare a training of a task: ``train(task, workers=4, shards=2).kill("w1", at=2.5).run()``."""

    def prepare(task: Any, policy: str = "bsp", options: dict[str, Any] | None = None, **given: Any) -> Training:
        arithmetic_fields = ("shards", "batch_size", "block_elements", "micro_batches", "measures_steps")
        driver_fields = (
            "compute_s", "deliver", "evaluation_s", "latency_s", "make_account", "supervision", "resume", "world",
        )  # fmt: skip
        fields: dict[str, Any] = {"workers": 2, "shards": 1, "batch_size": 8, "stop": Stop(updates=6), **given}
        sampling, optimizer = fields.pop("sampling", "replacement"), fields.pop("optimizer", SGD(lr=0.1))
        kind: type[TensorArithmetic] = fields.pop("kind", TensorArithmetic)
        chosen = {name: fields[name] for name in arithmetic_fields if name in fields}
        made = make_policy(policy, options)
        per_block = made.traits.scope is Scope.BLOCK
        arithmetic = kind(task, optimizer, seed=SEED, per_block=per_block, **chosen)
        driven = {name: fields.pop(name) for name in driver_fields if name in fields}
        for name in ("block_elements", "micro_batches", "measures_steps"):
            fields.pop(name, None)
        plan = Plan(
            run="memory",
            samples=arithmetic.samples,
            evaluates=arithmetic.evaluates,
            schedule=Constant(),
            deal_epochs=sampling == "epoch",
            **fields,
        )
        memory = MemoryRun(plan, made, arithmetic=arithmetic, **driven)
        for number in range(plan.workers):
            memory.join(f"w{number}")
        return Training(arithmetic, memory)

    return prepare


@dataclass
class Serial:
    """Plain training in one loop: mini-batches one after the other, averaged, one step of a torch optimiser.

    Parameters
    ----------
    optimizer
        Makes the torch optimiser for a model.
    clip_norm, micro_batches
        As in a job.
    """

    task: SupervisedTask
    optimizer: Callable[[nn.Module], torch.optim.Optimizer]
    workers: int
    batch_size: int = 8
    sampling: str = "replacement"
    clip_norm: float | None = None
    micro_batches: int = 1

    def after(self, updates: int) -> dict[str, Tensor]:
        """Return the state after so many rounds."""
        with torch.random.fork_rng():
            torch.manual_seed(SEED)
            model = self.task.model()
            optimizer = self.optimizer(model)
            for number in range(updates):
                self._round(model, optimizer, number)
        return {name: tensor.detach() for name, tensor in model.state_dict().items()}

    def _round(self, model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
        before = {name: buffer.clone() for name, buffer in model.named_buffers()}
        gradients, buffers = [], []
        for slot in range(self.workers):
            for name, buffer in model.named_buffers():
                buffer.copy_(before[name])
            gradients.append(self._gradient(model, slot, number))
            buffers.append({name: buffer.clone() for name, buffer in model.named_buffers()})
        for name, parameter in trainable(model):
            parameter.grad = mean([one[name] for one in gradients])
        for name, buffer in model.named_buffers():
            buffer.copy_(mean([one[name] for one in buffers]) if buffer.is_floating_point() else buffers[0][name])
        if self.clip_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), self.clip_norm)
        optimizer.step()

    def _gradient(self, model: nn.Module, slot: int, number: int) -> dict[str, Tensor]:
        torch.manual_seed(gradient_seed(SEED, slot, number + 1))
        model.zero_grad()
        indices = self._indices(slot, number)
        for part in np.array_split(indices, self.micro_batches):
            inputs, targets = (torch.from_numpy(array[part]) for array in self.task.data)
            (self.task.loss(model(inputs), targets) * (len(part) / len(indices))).backward()
        return {name: parameter.grad.clone() for name, parameter in trainable(model) if parameter.grad is not None}

    def _indices(self, slot: int, number: int) -> np.ndarray:
        count = len(self.task.data[0])
        if self.sampling == "replacement":
            return replacement(SEED, slot, number + 1, count, self.batch_size)
        batches = batches_per_epoch(count, self.batch_size)
        epoch, batch = divmod(number * self.workers + slot, batches)
        return epoch_batch(SEED, epoch, batch, count, self.batch_size)


def trainable(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    return ((name, one) for name, one in model.named_parameters() if one.requires_grad)


def mean(tensors: list[Tensor]) -> Tensor:
    total = tensors[0].clone()
    for one in tensors[1:]:
        total += one
    return total / len(tensors) if len(tensors) > 1 else total


@pytest.fixture
def serial() -> type[Serial]:
    """Return the serial loop."""
    return Serial


@pytest.fixture
def assert_equal() -> Callable[[dict[str, Tensor], dict[str, Tensor]], None]:
    """Compare states bit for bit."""

    def compare(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
        assert found.keys() <= expected.keys()
        assert found
        for name, tensor in found.items():
            assert torch.equal(tensor, expected[name]), f"{name} differs by {(tensor - expected[name]).abs().max():g}"

    return compare
