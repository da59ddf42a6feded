"""A first gradient before anything is started: most mistakes in a task show here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cloudpickle
import pytest
import torch
from torch import Tensor, nn

from psplatform.errors import ConfigurationError, UserCodeError
from psplatform.jobs.optimizers import SGD, Group
from psplatform.runtime.trial import Trial, try_task
from psplatform.tasks.supervised import SupervisedTask

SETTINGS = {
    "seed": 0,
    "device": "cpu",
    "batch_size": 4,
    "micro_batches": 1,
    "shards": 2,
    "block_elements": 65536,
}
DATA = torch.zeros(8, 2), torch.zeros(8, dtype=torch.long)


def model() -> nn.Module:
    return nn.Linear(2, 3)


class WithBuffer(nn.Linear):
    """A model with a buffer of a dtype."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__(2, 3)
        self.register_buffer("scale", torch.ones(5).to(dtype))


@pytest.fixture
def attempt() -> Callable[..., Trial]:
    """Try a classifier of eight samples, with parts of it replaced."""

    def run(optimizer: Any = None, test: Any = None, **changes: Any) -> Trial:
        parts = {"model": model, "loss": nn.functional.cross_entropy, "data": DATA}
        parts |= {name: changes.pop(name) for name in list(changes) if name in parts}
        task = SupervisedTask(**parts, test=test)
        return try_task(cloudpickle.dumps(task), b"", optimizer or SGD(), {**SETTINGS, **changes})

    return run


def test_a_trial_tells_what_the_run_needs_to_know(attempt: Callable[..., Trial]) -> None:
    assert attempt() == Trial(samples=8, parameters=9, evaluates=False, gradient_bytes=(16, 20))
    assert attempt(test=DATA).evaluates


def test_a_batch_larger_than_the_data_is_refused(attempt: Callable[..., Trial]) -> None:
    with pytest.raises(ConfigurationError, match="batch_size must be at most the number of samples: 9 > 8") as caught:
        attempt(batch_size=9)
    assert caught.value.field == "batch_size"


def test_more_shards_than_parameters_are_refused_with_both_numbers(attempt: Callable[..., Trial]) -> None:
    said = "shards must be at most 9, not 10: the model has 9 parameters, and each shard needs one of its own"
    with pytest.raises(ConfigurationError, match=f"^{said}; give fewer shards$") as caught:
        attempt(shards=10)
    assert caught.value.field == "shards"
    assert attempt(shards=9).parameters == 9


def test_more_shards_than_blocks_are_refused_with_both_remedies(attempt: Callable[..., Trial]) -> None:
    """A shard owns whole blocks: 603 parameters are cut into 302 blocks of two."""
    large = {"model": lambda: nn.Linear(200, 3), "data": (torch.zeros(8, 200), DATA[1])}
    said = (
        "shards must be at most 302, not 303: the model has 603 parameters in 302 blocks, and each shard needs a block"
    )
    with pytest.raises(ConfigurationError, match=f"{said} of its own; give fewer shards, or a smaller block_elements"):
        attempt(shards=303, **large)
    assert attempt(shards=303, block_elements=1, **large).parameters == 603


def test_a_group_that_matches_nothing_is_refused(attempt: Callable[..., Trial]) -> None:
    """The names of the parameters are known only when the model is built."""
    with pytest.raises(ConfigurationError, match="head"):
        attempt(optimizer=SGD(groups=(Group("head*", lr=0.1),)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.int64, torch.bool, torch.uint8])
def test_buffers_of_every_dtype_that_stores_know_can_travel(attempt: Callable[..., Trial], dtype: torch.dtype) -> None:
    assert attempt(model=lambda: WithBuffer(dtype)).parameters == 9


def test_a_buffer_that_no_store_can_hold_is_refused(attempt: Callable[..., Trial]) -> None:
    """NumPy has no bfloat16, so such a buffer could neither be sent nor saved."""
    with pytest.raises(ConfigurationError, match="scale.* is bfloat16.*; keep it in float32") as caught:
        attempt(model=lambda: WithBuffer(torch.bfloat16))
    assert caught.value.field == "model"


def test_an_error_of_the_users_code_is_the_users(attempt: Callable[..., Trial]) -> None:
    def loss(output: Tensor, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(output, target[:-1])

    with pytest.raises(UserCodeError, match="ValueError in the user's code while computing a first gradient") as caught:
        attempt(loss=loss)
    assert "in loss" in caught.value.user_traceback
