"""Gradients that are summed by another worker's process on their way, on a real cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from distributed import Client
from summed_gradients import sum_all_gradients

import psplatform as ps

Finish = Callable[..., ps.Run]
Log = Callable[..., list[dict[str, Any]]]
Fields = dict[str, Any]

SUMMED = {"fabric": {"tick_s": 0.05, "aggregators": 1}}
UPDATES = 12


@pytest.fixture(scope="module", autouse=True)
def summed(client: Client) -> None:
    """Have gradients summed whenever two wait."""
    sum_all_gradients(client)


@pytest.mark.parametrize("optimizer", [ps.SGD(lr=0.2, momentum=0.5), ps.Adam(lr=0.01)], ids=["sgd", "adam"])
def test_under_bsp_a_sum_is_worth_its_gradients(
    finish: Finish, log: Log, small: Fields, optimizer: ps.Optimizer
) -> None:
    """The model is that of a run in which each came by itself, but for the order of additions."""
    fields = {**small, "policy": "bsp", "workers": 3, "stop": ps.Stop(updates=UPDATES), "transport": "comms"}
    fields |= {"optimizer": optimizer}
    straight = finish(**fields)
    run = finish(**fields, network=SUMMED)
    commits = log(run, "commit")
    assert [one["version"] for one in commits] == list(range(1, UPDATES + 1))
    assert all((one["slots"], one["staleness"]) == ([0, 1, 2], [0, 0, 0]) for one in commits)
    assert any("bundles" in one for one in commits)
    assert run.metrics()["network"]["aggregation"] > 1.0
    expected = straight.model().state_dict()
    assert all(torch.allclose(value, expected[name], atol=1e-5) for name, value in run.model().state_dict().items())


def test_each_gradient_of_a_sum_is_an_update(finish: Finish, log: Log, small: Fields) -> None:
    """Under asp a sum of n gradients makes n versions, each as stale as if the others had come right before it."""
    run = finish(
        **{**small, "policy": "asp", "workers": 3, "stop": ps.Stop(updates=30), "transport": "comms"}, network=SUMMED
    )
    commits = log(run, "commit")
    assert sum(len(one["slots"]) for one in commits) == run.metrics()["updates"] == 30
    assert any(len(one["slots"]) > 1 for one in commits)
    before = 0
    for one in commits:
        assert one["version"] - before == len(one["slots"])
        before = one["version"]


def test_replicas_that_take_gradients_from_workers_take_sums(finish: Finish, log: Log, small: Fields) -> None:
    bounded = ps.Bounded(max_divergence=8, unit="updates", source="workers")
    fields = {**small, "policy": "asp", "workers": 3, "stop": ps.Stop(updates=60), "transport": "comms"}
    run = finish(**fields, replication=bounded, network=SUMMED)
    assert any(len(one["slots"]) > 1 for one in log(run, "commit"))
    assert run.metrics()["outcome"] == "updates"
    assert not log(run, "lost positions")
