"""The equations of the model, each against what it must do whatever the weights are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from psplatform.policies.run_times.predictor import Stream, random_stream
from psplatform.policies.run_times.state_space import (
    NUMPY,
    Functions,
    Shape,
    emission,
    first_weights,
    guide,
    predict,
    sides,
    transition,
)
from psplatform.policies.run_times.training import TORCH

SHAPE = Shape(workers=5, state=3, hidden=4, window=6)


def weights(shape: Shape = SHAPE) -> dict[str, np.ndarray]:
    return first_weights(shape, np.full((6, 5), 0.5), random_stream(0, Stream.WEIGHTS))


def some(*size: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(size).astype(np.float32)


@pytest.mark.parametrize("equation", [transition, emission])
def test_numpy_and_torch_agree_on_each_equation(equation: Any) -> None:
    both = [evaluate(equation, f, *arrays) for f, *arrays in both_kinds(some(7, 3))]
    for one, other in zip(*both, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_numpy_and_torch_agree_on_the_guide() -> None:
    found = []
    for f, given, window in both_kinds(some(2, 6, 5)):
        side = sides(given, window, SHAPE, f)
        found.append([np.asarray(one) for one in guide(given, side[3][..., :3], side[3], f)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def both_kinds(x: np.ndarray) -> list[tuple[Functions, Any, Any]]:
    plain = weights()
    return [(NUMPY, plain, x), (TORCH, {name: torch.from_numpy(w) for name, w in plain.items()}, torch.from_numpy(x))]


def evaluate(equation: Any, f: Functions, given: Any, x: Any) -> list[np.ndarray]:
    return [np.asarray(one) for one in equation(given, x, f)]


def test_the_transition_begins_as_the_identity_where_its_gate_is_shut() -> None:
    given = weights()
    given["gate.out.bias"][:] = -50.0
    z = some(4, 3)
    np.testing.assert_allclose(transition(given, z, NUMPY)[0], z, rtol=1e-6)


def test_the_identity_can_be_switched_off() -> None:
    shape = Shape(workers=5, state=3, hidden=4, identity=False)
    assert not np.array_equal(weights(shape)["carry.matrix"], np.eye(3))


def test_the_emission_begins_at_each_workers_mean() -> None:
    given = first_weights(SHAPE, np.tile([1.0, 2.0, 3.0, 4.0, 5.0], (6, 1)), random_stream(0, Stream.WEIGHTS))
    np.testing.assert_allclose(emission(given, np.zeros(3, np.float32), NUMPY)[0], [1, 2, 3, 4, 5], atol=1e-6)


def rounds_seen(shape: Shape, t: int) -> set[int]:
    """Return the rounds of the window that what the guide is told of round `t` depends on."""
    window = some(6, 5)
    before = sides(weights(shape), window, shape, NUMPY)[t]
    seen = set()
    for number in range(6):
        changed = window.copy()
        changed[number] += 1.0
        if not np.array_equal(sides(weights(shape), changed, shape, NUMPY)[t], before):
            seen.add(number)
    return seen


def test_the_guide_sees_the_whole_window_and_the_round_it_speaks_of() -> None:
    assert rounds_seen(SHAPE, 5) == {0, 1, 2, 3, 4, 5}
    assert rounds_seen(SHAPE, 0) == {0, 1, 2, 3, 4, 5}


def test_as_printed_the_guide_does_not_see_the_round_it_speaks_of() -> None:
    printed = Shape(workers=5, state=3, hidden=4, window=6, sees_now=False)
    assert rounds_seen(printed, 5) == {0, 1, 2, 3, 4}
    assert rounds_seen(printed, 3) == {0, 1, 2, 4, 5}


def test_predictions_are_as_many_as_asked_for_and_follow_the_stream() -> None:
    means, deviations = predict(weights(), SHAPE, some(6, 5), 9, random_stream(0, Stream.STATES, 4))
    again = predict(weights(), SHAPE, some(6, 5), 9, random_stream(0, Stream.STATES, 4))
    other = predict(weights(), SHAPE, some(6, 5), 9, random_stream(0, Stream.STATES, 5))
    assert means.shape == deviations.shape == (9, 5)
    assert means.dtype == np.float32
    assert np.all(deviations > 0)
    assert np.array_equal(means, again[0])
    assert not np.array_equal(means, other[0])
