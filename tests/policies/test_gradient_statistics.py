"""The estimates of V and N against gradients of which both are known exactly."""

from __future__ import annotations

import msgpack
import numpy as np
import pytest
from numpy.typing import NDArray

from psplatform.policies.estimates.gradient_statistics import GradientStatistics, gain_of, squared_norm_of, variance_of

SEED = 20
Vector = NDArray[np.float64]


def noisy(rng: np.random.Generator, true: Vector, deviations: Vector, shape: tuple[int, ...]) -> Vector:
    """Draw gradients: the true one plus independent Gaussian noise; V is the sum of the squared deviations."""
    return true + deviations * rng.standard_normal((*shape, len(true)))


def norms(gradients: Vector) -> tuple[Vector, Vector]:
    """Return per round the sum of the squared norms, and the squared norm of the mean: axes round, worker, element."""
    return (gradients**2).sum(axis=(1, 2)), (gradients.mean(axis=1) ** 2).sum(axis=1)


def test_two_norms_tell_what_the_vectors_tell() -> None:
    gradients = noisy(np.random.default_rng(SEED), np.arange(5.0), np.ones(5), (1, 4))
    squares, mean_squared = norms(gradients)
    direct = ((gradients[0] - gradients[0].mean(axis=0)) ** 2).sum() / 3
    assert variance_of(4, float(squares[0]), float(mean_squared[0])) == pytest.approx(direct, rel=1e-12)


def test_rounding_never_makes_a_variance_negative() -> None:
    assert variance_of(2, 2.0, 1.0 + 1e-15) == 0.0


@pytest.mark.parametrize("count", [2, 5, 16])
def test_the_estimates_are_unbiased_before_clipping(count: int) -> None:
    """Within four standard errors of the exact values, over 4000 rounds."""
    true, deviations = np.array([0.5, -0.3, 0.1, 0.0]), np.array([1.0, 0.5, 0.2, 2.0])
    gradients = noisy(np.random.default_rng(SEED), true, deviations, (4000, count))
    rounds = list(zip(*(one.tolist() for one in norms(gradients)), strict=True))
    variances = [variance_of(count, squares, mean) for squares, mean in rounds]
    found = [squared_norm_of(count, mean, one) for (_, mean), one in zip(rounds, variances, strict=True)]
    assert_unbiased(variances, float((deviations**2).sum()))
    assert_unbiased(found, float((true**2).sum()))
    assert min(found) < 0


def assert_unbiased(values: list[float], exact: float) -> None:
    assert abs(np.mean(values) - exact) < 4 * np.std(values) / np.sqrt(len(values)), f"seed {SEED}"


def test_clipping_biases_the_squared_norm_upwards_where_the_gradient_vanishes() -> None:
    """With N = 0 and V = 4 in 4 dimensions, rounds of 4 find about 0.3; where N is 100, clipping does nothing."""
    found = [average_of(np.full(4, value)).squared_norm for value in (0.0, 5.0)]
    assert 0.1 < found[0] < 0.5
    assert found[1] == pytest.approx(100.0, rel=0.02)


def average_of(true: Vector) -> GradientStatistics:
    statistics = GradientStatistics(window=4000)
    gradients = noisy(np.random.default_rng(SEED), true, np.ones(4), (4000, 4))
    for squares, mean in zip(*(one.tolist() for one in norms(gradients)), strict=True):
        statistics.add(4, squares, mean)
    return statistics


def test_only_the_last_rounds_count() -> None:
    statistics = GradientStatistics(window=2)
    for variance in (100.0, 1.0, 3.0):
        statistics.add(2, 2 * (5.0 + variance), 5.0 + variance / 2)
    assert (statistics.variance, statistics.squared_norm) == (2.0, 5.0)


def test_a_round_of_one_tells_nothing_of_the_variance_and_uses_what_is_known() -> None:
    statistics = GradientStatistics(window=3)
    statistics.add(2, 2 * 9.0, 7.0)  # V = 4, N = 5
    statistics.add(1, 11.0, 11.0)
    assert statistics.variance == 4.0
    assert statistics.squared_norm == (5.0 + (11.0 - 4.0)) / 2
    assert statistics.rounds_since_variance == 1


def test_rounds_of_one_before_any_other_tell_nothing() -> None:
    statistics = GradientStatistics(window=3)
    statistics.add(1, 11.0, 11.0)
    assert not statistics.known
    statistics.add(2, 2 * 9.0, 7.0)
    assert (statistics.known, statistics.squared_norm, statistics.rounds_since_variance) == (True, 5.0, 0)


def test_what_was_learned_can_be_written_down() -> None:
    statistics = GradientStatistics(window=2)
    for count, squares, mean in [(3, 30.0, 8.0), (2, 20.0, 7.0), (1, 9.0, 9.0)]:
        statistics.add(count, squares, mean)
    restored = GradientStatistics(window=2)
    restored.restore(msgpack.unpackb(msgpack.packb(statistics.state())))
    assert restored.state() == statistics.state()
    assert (restored.variance, restored.squared_norm) == (statistics.variance, statistics.squared_norm)


def test_the_gain_of_the_paper_is_that_of_a_rate_of_one_over_the_curvature() -> None:
    assert gain_of(4, squared_norm=3.0, variance=8.0) == (3.0 - 8.0 / 4) / 2
    assert gain_of(4, squared_norm=3.0, variance=8.0, curvature=0.5) == 0.75 * 3.0 - 0.25 * 8.0 / 4


@pytest.mark.parametrize("count", [2, 8])
def test_the_gain_is_a_lower_bound_nearly_proportional_to_the_decrease_of_the_loss(count: int) -> None:
    """On a quadratic with eigenvalues from 0.2 to 1 and eta = 1 / L = 1, down a path of 30 steps.

    The decrease is realised by steps along noisy means, 1000 at each point; the gain comes from their norms alone.
    """
    curvatures, deviations = np.linspace(0.2, 1.0, 9), np.full(9, 0.3)
    rng = np.random.default_rng(SEED)
    point, gains, decreases, errors = np.full(9, 3.0), [], [], []
    for _ in range(30):
        gradients = noisy(rng, curvatures * point, deviations, (1000, count))
        after = point - gradients.mean(axis=1)
        losses = 0.5 * (curvatures * after**2).sum(axis=1)
        decreases.append(float(0.5 * (curvatures * point**2).sum() - losses.mean()))
        errors.append(float(losses.std() / np.sqrt(1000)))
        gains.append(estimated_gain(count, gradients))
        point = point - 0.2 * curvatures * point
    found, bound = np.array(decreases), np.array(gains)
    assert (found > bound - 4 * np.array(errors)).all(), f"seed {SEED}"
    assert np.corrcoef(found, bound)[0, 1] > 0.99
    assert (found[:10] / bound[:10]).max() < 2.0


def estimated_gain(count: int, gradients: Vector) -> float:
    statistics = GradientStatistics(window=len(gradients))
    for squares, mean in zip(*(one.tolist() for one in norms(gradients)), strict=True):
        statistics.add(count, squares, mean)
    return gain_of(count, statistics.squared_norm, statistics.variance)
