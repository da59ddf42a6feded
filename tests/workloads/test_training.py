"""The settings of the registry reach the accuracy it promises."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from psplatform.tasks.cancellation import Cancellation
from psplatform.tasks.data.sampling import batches_per_epoch, epoch_batch, gradient_seed
from psplatform.tasks.opening import open_workspace
from psplatform.tasks.seam import BatchRef
from psplatform.tensors.layout import Layout
from psplatform.tensors.vectors import allocate, fill
from psplatform.workloads.registry import find_workload


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Thousands of tiny steps: threads would spend their time waiting for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def epochs_to_target(name: str) -> float:
    """Train by shuffled batches and SGD with momentum, on vectors as the platform binds them."""
    workload = find_workload(name)
    defaults = workload.defaults
    workspace = open_workspace(workload.make(), 0, torch.device("cpu"))
    layout = Layout.of(workspace.specs, shards=1)
    values, updates, velocities = (allocate(layout) for _ in range(3))
    workspace.bind(layout, values, updates)
    fill(layout, values, workspace.initial())
    (weights,), (gradient,), (velocity,) = values.values(), updates.values(), velocities.values()
    size = int(defaults["batch_size"])
    batches = batches_per_epoch(workspace.samples, size)
    for epoch in range(int(defaults["epochs"])):
        for number in range(batches):
            indices = epoch_batch(0, epoch, number, workspace.samples, size)
            seed = gradient_seed(0, 0, epoch * batches + number)
            workspace.compute(BatchRef(indices, seed), Cancellation())
            velocity.mul_(defaults["momentum"]).add_(gradient)
            weights.add_(velocity, alpha=-defaults["lr"])
        evaluation = workspace.evaluate(Cancellation())
        if evaluation and evaluation.accuracy and evaluation.accuracy >= defaults["target_accuracy"]:
            return epoch + 1
    return float("inf")


@pytest.mark.parametrize(("name", "expected"), [("digits", 10), ("mlp", 2)])
def test_a_plain_local_loop_reaches_the_promised_accuracy(name: str, expected: int) -> None:
    """A third of the epochs is left in reserve for staleness and other seeds."""
    assert epochs_to_target(name) <= expected
