"""An optimiser of the user's own on a real cluster: sent by value, replicated, recovered, refused where it raises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from distributed import Client
from torch import Tensor

import psplatform as ps
from psplatform.client.runs.recovery import recover
from psplatform.core.parameters import parameter
from psplatform.errors import ConfigurationError, UserCodeError
from psplatform.replication.checkpoints.retention import checkpoints_of

LIMIT_S = 180.0
Fields = dict[str, Any]


@pytest.fixture(autouse=True)
def _sent_whole(by_value: Callable[[str], None]) -> None:
    by_value(__name__)


@dataclass(frozen=True)
class HeavyBall(ps.CustomOptimizer):
    """The arithmetic of `ps.SGD` with momentum, written by a user."""

    lr: float = parameter(0.1, minimum=0.0, help="learning rate")
    momentum: float = parameter(0.5, minimum=0.0, below=1.0, help="how much of the last step is kept")

    def state_names(self) -> tuple[str, ...]:
        return ("velocity",)

    def step(
        self, parameters: Tensor, gradient: Tensor, state: Mapping[str, Tensor], out: Tensor, rate: float, number: int
    ) -> None:
        velocity = state["velocity"].mul_(self.momentum).add_(gradient)
        torch.add(parameters, velocity, alpha=-self.lr * rate, out=out)


@dataclass(frozen=True)
class Raising(ps.CustomOptimizer):
    def step(self, *given: Any) -> None:
        raise ArithmeticError("not today")


def bits(run: ps.Run) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in run.parameters()[0].items()}


def given(small: Fields, optimizer: Any) -> Fields:
    return {**small, "optimizer": optimizer, "policy": "bsp", "sampling": "epoch"}


@pytest.mark.parametrize("source", ["server", "workers"])
def test_it_computes_on_servers_and_replicas_what_the_same_arithmetic_does(
    finish: Callable[..., ps.Run], small: Fields, source: str
) -> None:
    copied = ps.Chain(source=source)
    own = finish(**given(small, HeavyBall(lr=0.2)), replication=copied)
    built_in = finish(**given(small, ps.SGD(lr=0.2, momentum=0.5)), replication=copied)
    assert bits(own) == bits(built_in)
    assert own.metrics()["optimizer"] == {"name": "heavyball", "lr": 0.2, "momentum": 0.5, "groups": []}


def test_a_run_goes_on_with_it_when_it_is_given_again(
    start: Callable[..., ps.Run], client: Client, small: Fields, request: Any
) -> None:
    """A store contains no code; the state of the optimiser is in its checkpoints."""
    whole = start(**given(small, HeavyBall(lr=0.2)))
    whole.wait(LIMIT_S)
    fields = {**given(small, HeavyBall(lr=0.2)), "checkpoints": ps.Checkpoints(every_updates=10)}
    first = start(**{**fields, "stop": ps.Stop(updates=15)})
    first.wait(LIMIT_S)
    assert checkpoints_of(first.store)
    again = {name: small[name] for name in ("model", "loss", "data", "test")}
    with pytest.raises(ConfigurationError, match=r"ps.recover\(store, optimizer=...\)"):
        recover(first.store, client, **again, stop=small["stop"])
    resumed = recover(first.store, client, **again, optimizer=HeavyBall(lr=0.2), stop=small["stop"])
    request.addfinalizer(resumed.close)
    resumed.wait(LIMIT_S)
    assert bits(resumed) == bits(whole)


def test_one_that_raises_is_told_before_anything_is_started(start: Callable[..., ps.Run], small: Fields) -> None:
    with pytest.raises(UserCodeError, match="not today") as caught:
        start(**given(small, Raising()))
    assert "computing a first step of the optimizer" in str(caught.value)
