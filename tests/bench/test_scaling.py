"""``bench scaling``: samples a second of ours and of DistributedDataParallel, on the same models."""

from __future__ import annotations

import pytest
import torch

from psplatform.bench import scaling
from psplatform.bench.measuring.rounds import Measured
from psplatform.bench.scaling import measure
from psplatform.bench.tasks.models import CLASSES, MODELS
from psplatform.errors import ConfigurationError


def test_all_systems_train_the_same_model() -> None:
    found = measure(tasks=("mlp:4",), workers=(1,), rounds=1, seconds=0.3)["results"]
    assert [row["system"] for row in found] == ["psplatform", "psplatform-unreplicated", "ddp"]
    for row in found:
        assert (row["task"], row["workers"]) == ("mlp:4", 1)
        assert row["samples_per_s"] > 0
        assert row["low"] <= row["ratio_to_ddp"] <= row["high"]
    assert found[-1]["ratio_to_ddp"] == 1.0


def test_a_system_that_takes_half_as_long_has_twice_the_samples() -> None:
    row = scaling._row("ours", "mlp:4", 2, 8, [Measured(5.0, 1.0)] * 3, [Measured(10.0, 1.0)] * 3)
    assert row["samples_per_s"] == 1600.0
    assert row["ratio_to_ddp"] == 2.0


@pytest.mark.parametrize("task", ["vgg:8", "mlp", "mlp:0", "mlp:x", ""])
def test_what_is_no_task_is_named(task: str) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no task .*; give a model of digits, mlp, resnet and its"):
        measure(tasks=(task,))


@pytest.mark.parametrize(("name", "parameters"), [("digits", 86_282), ("mlp", 1_333_770), ("resnet", 11_173_962)])
def test_models_are_as_large_as_is_said_and_take_their_samples(name: str, parameters: int) -> None:
    model = MODELS[name]
    module = model.build()
    assert sum(one.numel() for one in module.parameters()) == parameters
    inputs, classes = model.samples()
    assert module(torch.from_numpy(inputs[:2])).shape == (2, CLASSES)
    assert len(inputs) == len(classes)
