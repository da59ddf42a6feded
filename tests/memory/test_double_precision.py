"""Models in float64 train in float64: servers, replicas and checkpoints lose no digit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from psplatform.core.plan import Cuts, Protection, Stop
from psplatform.jobs.optimizers import SGD, Adam
from psplatform.memory.processes.losses import Supervision
from psplatform.replication.accounts import Account
from psplatform.tasks.supervised import SupervisedTask

UPDATES = 6


class Doubled(nn.Module):
    """A network in double precision, perhaps with a layer in single precision before it."""

    def __init__(self, *, mixed: bool) -> None:
        super().__init__()
        self.first = nn.Linear(6, 7) if mixed else nn.Linear(6, 7).double()
        self.drop = nn.Dropout(0.2)
        self.norm = nn.BatchNorm1d(7).double()
        self.output = nn.Linear(7, 3).double()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(inputs.to(self.first.weight.dtype)))
        return self.output(self.norm(self.drop(hidden.double())))  # type: ignore[no-any-return]


@pytest.fixture
def task() -> Callable[..., SupervisedTask]:
    """Make the task of a classifier whose data are in double precision."""

    def make(*, mixed: bool = False) -> SupervisedTask:
        rng = np.random.default_rng(5)
        data = rng.standard_normal((45, 6)), rng.integers(0, 3, 45)
        return SupervisedTask(partial(Doubled, mixed=mixed), nn.functional.cross_entropy, data, data)

    return make


def momentum(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, foreach=False)


@pytest.mark.parametrize("mixed", [False, True], ids=["double", "single and double"])
@pytest.mark.parametrize("shards", [1, 3])
def test_bsp_equals_the_serial_loop_in_double_precision(
    train: Any, serial: Any, assert_equal: Any, task: Any, *, shards: int, mixed: bool
) -> None:
    made = task(mixed=mixed)
    trained = train(made, optimizer=SGD(lr=0.05, momentum=0.9), shards=shards, stop=Stop(updates=UPDATES)).run()
    assert trained.finish.outcome == "updates"
    assert trained.result["output.weight"].dtype == torch.float64
    assert_equal(trained.result, serial(made, momentum, 2).after(UPDATES))
    rounded = trained.result["output.weight"].float().double()
    assert not torch.equal(trained.result["output.weight"], rounded), "the digits beyond float32 are there"


@pytest.mark.parametrize("mixed", [False, True], ids=["double", "single and double"])
@pytest.mark.parametrize("account", [partial(Account, 0.0, 0), partial(Account, 0.5)], ids=["chain", "distance"])
def test_a_replica_in_double_precision_takes_over_without_a_trace(
    train: Any, assert_equal: Any, task: Any, *, account: Any, mixed: bool
) -> None:
    """What was lost within a bound is computed again; under chain the result is that of an undisturbed run."""
    given: dict[str, Any] = {
        "optimizer": Adam(lr=0.01),
        "shards": 2,
        "protection": Protection(1),
        "make_account": account,
        "measures_steps": True,
        "latency_s": 0.02,
        "stop": Stop(updates=UPDATES),
    }
    whole = train(task(mixed=mixed), supervision=Supervision(spares=6, notice_s=0.05), **given).run()
    broken = train(task(mixed=mixed), supervision=Supervision(spares=6, notice_s=0.05), **given)
    broken.memory.lose_server(0, at=2.6)
    broken.run()
    assert broken.of_kind("promoted")
    assert broken.finish.outcome == "updates"
    if account.args == (0.0, 0):
        assert_equal(broken.result, whole.result)


def test_a_checkpoint_holds_every_digit(train: Any, task: Any) -> None:
    """Of parameters, running statistics and the optimiser's state."""
    trained = train(task(), optimizer=Adam(lr=0.01), shards=2, cuts=Cuts(UPDATES), stop=Stop(updates=UPDATES)).run()
    _, parts = max(trained.arithmetic.archives.items())
    vectors = {name: vector.dtype for state, _ in parts.values() for name, vector in state.items()}
    integers = {name for name in vectors if "int64" in name}
    assert set(vectors) - integers == {
        "parameter.float64", "buffer.float64", "exp_avg.parameter.float64", "exp_avg_sq.parameter.float64"
    }  # fmt: skip
    assert {vectors[name] for name in vectors.keys() - integers} == {torch.float64}
