"""Workloads are found by name, and their options are checked before anything is built."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from psplatform.errors import ConfigurationError
from psplatform.tasks.data.sources import as_source
from psplatform.workloads.registry import WORKLOADS, find_workload

OPTIONS: dict[str, dict[str, Any]] = {
    "digits": {},
    "mlp": {"samples": "100"},
    "mnist": {"folder": "somewhere"},
    "cifar10": {"folder": "somewhere"},
}


def test_every_workload_is_covered_here() -> None:
    """A new workload needs its line above."""
    assert OPTIONS.keys() == WORKLOADS.keys()


@pytest.mark.parametrize("name", WORKLOADS)
def test_tasks_travel_to_workers(name: str) -> None:
    """Pickled and read back, the task builds a network that trains on it; data are read where they are used."""
    task = pickle.loads(pickle.dumps(find_workload(name).make(OPTIONS[name])))  # noqa: S301  # our own bytes
    assert isinstance(task.model(), torch.nn.Module)
    assert callable(task.data)
    assert callable(task.test)


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_says_what_suits_it(name: str) -> None:
    """The defaults are fields of a job, complete and in range."""
    defaults = find_workload(name).defaults
    assert defaults.keys() == {"lr", "momentum", "batch_size", "epochs", "target_accuracy"}
    assert defaults["batch_size"] in (32, 64)
    assert 0 < defaults["target_accuracy"] < 1


def test_listing_workloads_loads_neither_torch_nor_scikit_learn() -> None:
    """The command line stays quick."""
    code = "import sys, psplatform.workloads.registry; sys.exit('torch' in sys.modules or 'sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("workload", "options", "field", "message"),
    [
        ("mlp", {"sample": 3}, "sample", 'workload mlp has no parameter "sample"; did you mean "samples"'),
        ("digits", {"size": 3}, "size", "choose from network"),
        ("digits", {"network": "deep"}, "network", "network must be 'convolutional' or 'perceptron', not 'deep'"),
        ("mlp", {"samples": "many"}, "samples", "samples must be an int from 10 to 1000000000, not 'many'"),
        ("mlp", {"samples": 9}, "samples", "an int from 10 to 1000000000, not 9"),
        ("mlp", {"samples": 20.5}, "samples", "an int from 10 to 1000000000, not 20.5"),
        ("mlp", {"spread": True}, "spread", "a float from 0 to 1000000000, not True"),
        ("mlp", {"spread": "inf"}, "spread", "a float from 0 to 1000000000, not inf"),
        ("mlp", {"spread": "nan"}, "spread", "a float from 0 to 1000000000, not nan"),
        ("mlp", {"spread": -1}, "spread", "a float from 0 to 1000000000, not -1"),
        (
            "mnist",
            {},
            "folder",
            "folder is missing: local folder that holds .*; give it a value",
        ),
        ("mnist", {"folder": None}, "folder", "folder must be a str, not None"),
    ],
)
def test_wrong_options_are_refused_by_name(workload: str, options: dict[str, Any], field: str, message: str) -> None:
    """The error names the option and the remedy."""
    with pytest.raises(ConfigurationError, match=message) as caught:
        find_workload(workload).make(options)
    assert caught.value.field == field


def test_an_unknown_workload_is_refused_with_the_nearest_name() -> None:
    """A typing error is mended without looking up the list."""
    with pytest.raises(ConfigurationError, match='did you mean "digits"') as caught:
        find_workload("digit")
    assert caught.value.field == "workload"


@pytest.mark.parametrize(("text", "value"), [("7", 7), (7, 7), (7.0, 7)])
def test_options_may_be_text(text: Any, value: int) -> None:
    """The command line hands over text, a job file numbers."""
    inputs, _ = find_workload("mlp").make({"samples": 50, "dimension": text}).data()
    assert inputs.shape == (40, value)


def test_the_mixture_splits_into_a_training_and_a_held_out_part() -> None:
    """One sample in five is held out; parts are the same in every process, and other options draw other data."""
    task = find_workload("mlp").make({"samples": 1000, "dimension": 3, "classes": 4})
    (inputs, labels), (test_inputs, _) = task.data(), task.test()
    assert inputs.shape == (800, 3)
    assert test_inputs.shape == (200, 3)
    assert np.bincount(labels).min() > 150
    np.testing.assert_array_equal(inputs, task.data()[0])
    assert not {row.tobytes() for row in inputs} & {row.tobytes() for row in test_inputs}


def test_the_digits_split_is_fixed_and_stratified() -> None:
    """A fifth is held out, with every digit in the same proportion."""
    task = find_workload("digits").make()
    training, held_out = as_source(task.data), as_source(task.test)
    assert (len(training), len(held_out)) == (1437, 360)
    inputs, targets = held_out.fetch(np.arange(360))
    assert inputs.shape == (360, 1, 8, 8)
    assert inputs.max().item() == 16
    assert 34 <= torch.bincount(targets).min().item() <= torch.bincount(targets).max().item() <= 38
