"""The examples' jobs, and the plain loop of PyTorch that their results are compared with."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import cloudpickle
import pytest
import torch
from distributed import Client
from torch import Tensor, nn

import psplatform as ps
from psplatform.client.clusters.embedded import end_cluster, start_cluster
from psplatform.tasks.data.sampling import gradient_seed, replacement

EXAMPLES: Final = Path(__file__).resolve().parents[2] / "examples"
UPDATES: Final = 50
ALIKE: Final = 1e-4
"""Largest relative difference between what psplatform and plain PyTorch learn."""

PROCESSES: Final = 5
"""Two workers, two servers and one that evaluates."""

EXTRAS: Final = {"gpt2": "transformers", "bert_classifier": "transformers"}
"""Libraries that an example needs and that are not installed with psplatform."""

Commits = Sequence[Sequence[tuple[int, int]]]


@dataclass(frozen=True)
class Learned:
    """What a training came to.

    Attributes
    ----------
    state
        Parameters and persistent buffers, by name; tied ones may be there once or under each name.
    losses
        The mean loss of the workers' batches, of each update.
    held_out
        The loss on the held-out data after the last one.
    """

    state: Mapping[str, Tensor]
    losses: Sequence[float]
    held_out: float


@dataclass(frozen=True)
class Architecture:
    """An example that trains a model, and torch's optimiser for the same training, written by hand."""

    example: ModuleType
    optimizer: Callable[[nn.Module], torch.optim.Optimizer]

    def job_of(self, **changes: Any) -> ps.Job:
        """Return the example's job for 50 updates of two workers, whose batches follow from slot and sequence."""
        fields = {
            "policy": "bsp",
            "workers": 2,
            "max_workers": 2,  # a process that is started again after a kill shall not become a third
            "shards": 2,
            "sampling": "replacement",
            "stop": ps.Stop(updates=UPDATES),
            "evaluate_every": None,
            "torch_threads": 1,
            "seed": 3,
        }
        job: ps.Job = self.example.job(**{**fields, **changes})
        return job

    def plain(self, job: ps.Job, commits: Commits | None = None) -> Learned:
        """Train in one loop of PyTorch: each step on the mean of the gradients of (slot, sequence)."""
        whole = [[(slot, number) for slot in range(2)] for number in range(1, UPDATES + 1)]
        with torch.random.fork_rng():
            torch.manual_seed(job.seed)
            model = job.model()
            optimizer = self.optimizer(model)
            losses = [_update(job, model, optimizer, commit) for commit in commits or whole]
            state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            model.eval()
            with torch.no_grad():
                held_out = float(_loss(job, model, _batch(job, job.test, range(_length(job.test)))))
        return Learned(state, losses, held_out)


def _update(
    job: ps.Job, model: nn.Module, optimizer: torch.optim.Optimizer, commit: Sequence[tuple[int, int]]
) -> float:
    """Step once; running statistics become the mean of what each batch makes of those before the step."""
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    losses: list[Tensor] = []
    gradients: list[tuple[Tensor, ...]] = []
    after: list[dict[str, Tensor]] = []
    for slot, sequence in commit:
        for name, buffer in model.named_buffers():
            buffer.copy_(before[name])
        indices = replacement(job.seed, slot, sequence, _length(job.data), job.batch_size).tolist()
        torch.manual_seed(gradient_seed(job.seed, slot, sequence))
        losses.append(_loss(job, model, _batch(job, job.data, indices)))
        gradients.append(torch.autograd.grad(losses[-1], list(model.parameters())))
        after.append({name: buffer.clone() for name, buffer in model.named_buffers()})
    for parameter, *parts in zip(model.parameters(), *gradients, strict=True):
        parameter.grad = torch.stack(parts).mean(0)
    for name, buffer in model.named_buffers():
        values = torch.stack([one[name] for one in after])
        buffer.copy_(values.mean(0) if buffer.is_floating_point() else values.amax(0))
    if job.clip_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), job.clip_norm)
    optimizer.step()
    return sum(float(loss.detach()) for loss in losses) / len(losses)


def _batch(job: ps.Job, data: Any, indices: Sequence[int]) -> Any:
    chosen = list(indices)
    if isinstance(data, list):
        return job.collate([data[index] for index in chosen])
    if isinstance(data, tuple):
        return tuple(part[chosen] for part in data)
    return {name: data[name][chosen] for name in data}


def _length(data: Any) -> int:
    if isinstance(data, list):
        return len(data)
    return len(data[0]) if isinstance(data, tuple) else len(data["input_ids"])


def _loss(job: ps.Job, model: nn.Module, batch: Any) -> Tensor:
    if job.step is not None:
        return job.step(model, batch)  # type: ignore[no-any-return]
    inputs, targets = batch
    return job.loss(model(inputs), targets)  # type: ignore[no-any-return]


def _gpt2(model: nn.Module) -> torch.optim.Optimizer:
    plain = [one for name, one in model.named_parameters() if name.endswith(".bias") or ".ln_" in name]
    decayed = [one for name, one in model.named_parameters() if not (name.endswith(".bias") or ".ln_" in name)]
    groups = [{"params": decayed}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=0.01, weight_decay=0.1)


OPTIMIZERS: Final[dict[str, Callable[[nn.Module], torch.optim.Optimizer]]] = {
    "gpt2": _gpt2,
    "bert_classifier": lambda model: torch.optim.AdamW(model.parameters(), lr=0.003, weight_decay=0.01),
    "resnet18": lambda model: torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4),
    "lstm_text": lambda model: torch.optim.Adam(model.parameters(), lr=0.003),
}


@pytest.fixture(scope="session")
def architecture() -> Callable[[str], Architecture]:
    """Import an example; the test is skipped where a library is missing that the example needs."""

    def find(name: str) -> Architecture:
        if name in EXTRAS:
            pytest.importorskip(EXTRAS[name], reason=f"{EXTRAS[name]} is not installed; it is an optional extra")
        module = f"examples_{name}"
        if module not in sys.modules:
            spec = importlib.util.spec_from_file_location(module, EXAMPLES / f"{name}.py")
            assert spec is not None
            assert spec.loader is not None
            sys.modules[module] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[module])
            cloudpickle.register_pickle_by_value(sys.modules[module])  # other processes cannot import it
        return Architecture(sys.modules[module], OPTIMIZERS[name])

    return find


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Start the cluster that programs start by themselves, in which a killed process is replaced; return its client."""
    cluster, found = start_cluster(PROCESSES)
    yield found
    end_cluster(found, cluster)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Compute in one thread, as the workers do."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def difference(found: Learned, expected: Learned) -> dict[str, float]:
    """Return the relative differences by what differs.

    That of a tensor is the Euclidean norm of the difference over the norm of what plain PyTorch learned; that of the
    losses is the largest of any update.
    """
    relative = {name: _apart(tensor, expected.state[name]) for name, tensor in found.state.items()}
    ratios = [abs(one - other) / abs(other) for one, other in zip(found.losses, expected.losses, strict=True)]
    relative["losses"] = max(ratios)
    relative["held-out loss"] = abs(found.held_out - expected.held_out) / abs(expected.held_out)
    return relative


def _apart(found: Tensor, expected: Tensor) -> float:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    apart, norm = ((one.double()).norm().item() for one in (found.double() - expected.double(), expected))
    return apart / norm if norm else apart


@pytest.fixture
def assert_alike() -> Callable[[Learned, Learned], None]:
    """See that two trainings came to the same, within 1e-4 of each tensor and loss; print how close they came."""

    def compare(found: Learned, expected: Learned) -> None:
        relative = difference(found, expected)
        worst = max(relative, key=lambda name: relative[name])
        print(f"largest relative difference {relative[worst]:.2e}, of {worst}")
        assert {name: one for name, one in relative.items() if not one <= ALIKE} == {}

    return compare
