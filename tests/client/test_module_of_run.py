"""What builds a run's module in the program that has started it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import psplatform as ps
from psplatform.client.starting.prepared import prepare


class Tied(nn.Module):
    """Two layers with one weight, one that is frozen, and running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3, bias=False), nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.frozen = nn.Linear(3, 3)
        self.frozen.requires_grad_(False)
        self.norm = nn.BatchNorm1d(3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs."""
        outputs: torch.Tensor = self.second(self.norm(self.frozen(self.first(inputs))))
        return outputs


def job(model: nn.Module | Callable[[], nn.Module], samples: np.ndarray, folder: Path) -> ps.Job:
    """Return a job that fits samples to themselves."""
    return ps.Job(
        model=model,
        device="cpu",
        loss=nn.functional.mse_loss,
        data=(samples, samples),
        batch_size=2,
        optimizer=ps.SGD(lr=0.1),
        stop=ps.Stop(updates=3),
        store=str(folder / "run.zarr"),
    )


def test_it_keeps_neither_the_numbers_of_a_module_that_was_handed_in_nor_the_data(tmp_path: Path) -> None:
    """A run may live long, and its program may need the memory."""
    model, samples = Tied(), np.ones((4, 3), dtype=np.float32)
    frozen = model.frozen.weight.clone()
    kept = weakref.ref(model.first.weight), weakref.ref(samples)
    build = prepare(job(model, samples, tmp_path)).module
    del model, samples
    gc.collect()
    assert [one() for one in kept] == [None, None]

    assert build is not None
    first, second = build(), build()
    assert isinstance(first, Tied)
    assert first.second.weight is first.first.weight
    assert torch.equal(first.frozen.weight, frozen)
    first.load_state_dict({name: torch.full_like(value, 7) for name, value in first.state_dict().items()})
    assert torch.equal(first.first.weight, torch.full((3, 3), 7.0))
    assert not second.first.weight.any()  # each has memory of its own
    assert first.first.weight.requires_grad
    assert not first.frozen.weight.requires_grad


@pytest.mark.parametrize("model", [Tied, lambda: nn.Linear(3, 3)])
def test_what_a_callable_builds_is_built_again(model: Callable[[], nn.Module], tmp_path: Path) -> None:
    samples = np.ones((4, 3), dtype=np.float32)
    kept = weakref.ref(samples)
    build = prepare(job(model, samples, tmp_path)).module
    del samples
    gc.collect()
    assert kept() is None
    assert build is not None
    expected, found = build().state_dict(), build().state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in found.items())


def test_a_module_whose_tensors_lie_otherwise_in_memory_is_copied_as_it_is(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    layer = model[0]
    assert isinstance(layer, nn.Linear)
    layer.weight = nn.Parameter(torch.arange(9.0).reshape(3, 3).T)
    build = prepare(job(model, np.ones((4, 3), dtype=np.float32), tmp_path)).module
    assert build is not None
    weight = build().state_dict()["0.weight"]
    assert weight.stride() == (1, 3)
    assert torch.equal(weight, layer.weight)
