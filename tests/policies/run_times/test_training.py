"""Fitting a model to recorded rounds, and learning one during a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from psplatform.errors import ConfigurationError
from psplatform.policies.run_times.learning import Learning
from psplatform.policies.run_times.state_space import Shape
from psplatform.policies.run_times.training import Fitting, fit

Cluster = Callable[..., Any]


def test_the_same_seed_gives_the_same_model_and_another_seed_another(cluster: Cluster, same: Any) -> None:
    times = cluster(1, rounds=50, nodes=(3, 1))
    torch.manual_seed(1)
    first = fit(times, steps=4, seed=3)
    torch.manual_seed(2)
    assert same(first, fit(times, steps=4, seed=3))
    assert not same(first, fit(times, steps=4, seed=4))


def test_fitting_leaves_the_programs_own_chance_alone(cluster: Cluster) -> None:
    torch.manual_seed(5)
    expected = torch.random.get_rng_state()
    fit(cluster(1, rounds=50, nodes=(3, 1)), steps=1)
    assert torch.equal(torch.random.get_rng_state(), expected)


def test_the_loss_is_reported_after_each_step_and_falls(cluster: Cluster) -> None:
    reports: list[tuple[int, float]] = []
    fit(cluster(1, rounds=80, nodes=(5, 3)), steps=80, report=lambda *one: reports.append(one))
    assert [number for number, _ in reports] == list(range(1, 81))
    losses = [loss for _, loss in reports]
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) - 0.3


@pytest.mark.parametrize(
    ("times", "sentence"),
    [
        (np.ones((39, 4)), r"at least 40 rounds \(two windows\) by workers, not of shape \(39, 4\)"),
        (np.ones(100), "not of shape"),
        (np.full((50, 4), np.nan), "positive and finite; fit on rounds in which no worker was cut off"),
        (np.zeros((50, 4)), "positive and finite"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(times: np.ndarray, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        fit(times, steps=1)


def test_a_gradient_that_is_not_finite_is_not_followed(same: Any) -> None:
    fitting = Fitting(Shape(3), np.ones((40, 3)), seed=0, steps=10)
    before = fitting.model()
    fitting.step(np.full((40, 3), np.inf))
    assert same(fitting.model(), before)
    fitting.step(np.ones((40, 3)))
    assert not same(fitting.model(), before)


# --- during a run ---


class Counting:
    """Stands for the training and counts its steps."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self, scaled: np.ndarray, *, windows: int) -> float:
        self.steps += 1
        assert windows <= 8
        assert len(scaled) <= 400
        return 0.0

    def model(self) -> Any:
        return "a model"


@pytest.fixture
def learning() -> Learning:
    learned = Learning(Shape(3), seed=0)
    learned._fitting = Counting()  # type: ignore[assignment]
    return learned


def test_it_learns_a_few_steps_per_round_of_the_second_window_and_then_one_in_two(learning: Learning) -> None:
    counting: Any = learning._fitting
    learning.observe([np.ones(3)] * 20)
    steps = []
    for _ in range(30):
        before = counting.steps
        learning.observe([np.ones(3)])
        steps.append(counting.steps - before)
    assert steps == [10] * 20 + [0, 1] * 5


def test_a_model_is_relied_on_after_the_second_window(learning: Learning) -> None:
    learning.observe([np.ones(3)] * 20)
    for _ in range(19):
        learning.observe([np.ones(3)])
    assert learning.model is None
    learning.observe([np.ones(3)])
    assert learning.model == "a model"


def test_memory_is_bounded(learning: Learning) -> None:
    learning.observe([np.ones(3)] * 1000)
    assert len(learning._rounds) == 400
