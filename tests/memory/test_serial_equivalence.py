"""Bulk synchronous training equals, bit for bit, a serial loop that knows nothing of workers and shards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from psplatform.core.plan import Stop
from psplatform.jobs.optimizers import SGD, Adam, Group

UPDATES = 6


def plain(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)


def momentum(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3, foreach=False)


OPTIMIZERS = pytest.mark.parametrize(
    ("optimizer", "torch_optimizer"),
    [(SGD(lr=0.1), plain), (SGD(lr=0.05, momentum=0.9, weight_decay=1e-3), momentum)],
    ids=["sgd", "momentum"],
)


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("shards", [1, 2, 5])
@OPTIMIZERS
def test_bsp_equals_the_serial_loop(
    train: Any, serial: Any, assert_equal: Any, convolutional: Any, *, workers: int, shards: int, optimizer: Any,
    torch_optimizer: Any,
) -> None:  # fmt: skip
    task = convolutional()
    trained = train(task, optimizer=optimizer, workers=workers, shards=shards, stop=Stop(updates=UPDATES)).run()
    assert trained.finish.outcome == "updates"
    assert_equal(trained.result, serial(task, torch_optimizer, workers).after(UPDATES))


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_under_epoch_sampling_workers_share_the_passes_of_the_serial_loop(
    train: Any, serial: Any, assert_equal: Any, convolutional: Any, workers: int
) -> None:
    """Worker i of n takes batch n * round + i; 45 samples in batches of 8 leave a smaller last one."""
    task = convolutional()
    trained = train(task, workers=workers, shards=2, sampling="epoch", stop=Stop(updates=UPDATES)).run()
    assert_equal(trained.result, serial(task, plain, workers, sampling="epoch").after(UPDATES))


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("shards", [1, 2])
def test_running_statistics_are_the_mean_over_the_workers(
    train: Any, serial: Any, assert_equal: Any, convolutional: Any, *, workers: int, shards: int
) -> None:
    """With one worker batch norm is that of plain training; counters count rounds."""
    task = convolutional(normalised=True)
    trained = train(task, workers=workers, shards=shards, stop=Stop(updates=UPDATES)).run()
    assert trained.result["norm.num_batches_tracked"] == UPDATES
    assert not torch.equal(trained.result["norm.running_mean"], torch.zeros(3))
    assert_equal(trained.result, serial(task, plain, workers).after(UPDATES))


def test_slow_workers_change_when_things_happen_but_not_what_is_learned(
    train: Any, serial: Any, assert_equal: Any, convolutional: Any
) -> None:
    task = convolutional()
    compute_s: Callable[[int, int], float] = lambda slot, sequence: 1.0 + (slot * 7 + sequence * 5) % 4  # noqa: E731
    trained = train(task, workers=3, shards=2, compute_s=compute_s, stop=Stop(updates=UPDATES)).run()
    assert_equal(trained.result, serial(task, plain, 3).after(UPDATES))


def test_the_gradient_of_a_worker_that_died_after_announcing_it_stays_in_its_round(
    train: Any, serial: Any, assert_equal: Any, convolutional: Any
) -> None:
    task = convolutional()
    trained = train(task, workers=2, compute_s=lambda slot, sequence: 1.0 + slot, stop=Stop(updates=1))
    trained.kill("w0", at=1.5).run()
    assert trained.of_kind("commit")[0]["slots"] == [0, 1]
    assert_equal(trained.result, serial(task, plain, 2).after(1))


def test_messages_that_come_twice_or_out_of_order_change_nothing(train: Any, serial: Any, convolutional: Any) -> None:
    task = convolutional()
    delays = iter(range(10**6))

    def deliver(_sender: Any, _to: Any, _message: Any) -> list[float]:
        number = next(delays)
        return [(number * 7 % 5) / 4, (number * 3 % 7) / 4]

    trained = train(task, workers=3, shards=2, deliver=deliver, clip_norm=0.5, stop=Stop(updates=UPDATES)).run()
    clipped = serial(task, plain, 3, clip_norm=0.5).after(UPDATES)
    for name, tensor in trained.result.items():
        torch.testing.assert_close(tensor, clipped[name], rtol=1e-5, atol=1e-6)


# --- results do not depend on how the vectors are cut ---


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.01, foreach=False)


@pytest.mark.parametrize("shards", [2, 3, 5])
def test_adam_with_clipping_gives_the_same_bits_on_any_number_of_shards(
    train: Any, assert_equal: Any, convolutional: Any, shards: int
) -> None:
    one, several = (
        train(convolutional(), optimizer=Adam(lr=0.01), shards=number, clip_norm=0.3).run() for number in (1, shards)
    )
    assert_equal(several.result, one.result)


@pytest.mark.parametrize("block_elements", [1, 4, 65536])
def test_adam_with_clipping_by_the_global_norm_is_that_of_torch(
    train: Any, serial: Any, convolutional: Any, block_elements: int
) -> None:
    task = convolutional()
    trained = train(task, optimizer=Adam(lr=0.01), shards=3, clip_norm=0.3, block_elements=block_elements).run()
    expected = serial(task, adam, 2, clip_norm=0.3).after(UPDATES)
    for name, tensor in trained.result.items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-6)
    unclipped = serial(task, adam, 2).after(UPDATES)
    assert not torch.allclose(trained.result["output.bias"], unclipped["output.bias"], rtol=0, atol=1e-6)


# --- accumulation, frozen parameters, groups ---


def test_gradients_accumulate_over_micro_batches(
    train: Any, serial: Any, assert_equal: Any, convolutional: Any
) -> None:
    task = convolutional()
    trained = train(task, shards=2, micro_batches=3, stop=Stop(updates=UPDATES)).run()
    assert_equal(trained.result, serial(task, plain, 2, micro_batches=3).after(UPDATES))


def test_frozen_parameters_stay_and_are_not_moved_about(
    train: Any, serial: Any, assert_equal: Any, convolutional: Any
) -> None:
    task = convolutional()
    build = task.model

    def frozen() -> nn.Module:
        model: nn.Module = build()
        model.filters.requires_grad_(False)
        return model

    object.__setattr__(task, "model", frozen)
    trained = train(task, shards=2, stop=Stop(updates=UPDATES)).run()
    assert not any(name.startswith("filters") for name in trained.result)
    assert_equal(trained.result, serial(task, plain, 2).after(UPDATES))


def grouped(model: nn.Module) -> torch.optim.Optimizer:
    biases = [one for name, one in model.named_parameters() if name.endswith("bias")]
    output = [model.output.weight]
    others = [model.filters.weight, model.hidden.weight]
    groups = [
        {"params": others},
        {"params": biases, "weight_decay": 0.0},
        {"params": output, "lr": 0.2, "momentum": 0.5},
    ]
    return torch.optim.SGD(groups, lr=0.05, momentum=0.9, weight_decay=0.01, foreach=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("shards", [1, 4])
def test_parameter_groups_have_their_own_hyper_parameters(
    train: Any, serial: Any, assert_equal: Any, convolutional: Any, shards: int
) -> None:
    groups = (Group("*.bias", weight_decay=0.0), Group("output.*", lr=0.2, momentum=0.5))
    optimizer = SGD(lr=0.05, momentum=0.9, weight_decay=0.01, groups=groups)
    task = convolutional()
    trained = train(task, optimizer=optimizer, shards=shards, stop=Stop(updates=UPDATES)).run()
    assert_equal(trained.result, serial(task, grouped, 2).after(UPDATES))
