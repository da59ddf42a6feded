"""How long gradients take: what is asked for, drawn from the seed alone."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from numpy.typing import NDArray

from psplatform.errors import ConfigurationError
from psplatform.jobs.distributions import Constant, LogNormal, ShiftedExponential, Uniform
from psplatform.jobs.stragglers import Stragglers
from psplatform.simulation.run_times import Correlated, Independent, Nodes, RunTimes, Slowed, Traced, seconds_of

SEED = 3


def table(times: RunTimes, slots: int, iterations: int) -> NDArray[np.float64]:
    """Return the times by slot and iteration."""
    return np.array([[times.seconds(slot, number) for number in range(iterations)] for slot in range(slots)])


@pytest.mark.parametrize(
    ("distribution", "mean", "variance"),
    [
        (Uniform(1, 3), 2, 4 / 12),
        (ShiftedExponential(0.5, 2), 2, 1.5**2),
        (LogNormal(2, 0.3), 2 * math.exp(0.045), 4 * math.exp(0.09) * (math.exp(0.09) - 1)),
        (Constant(0.7), 0.7, 0),
    ],
    ids=["uniform", "shifted-exponential", "log-normal", "constant"],
)
def test_independent_times_have_the_moments_of_their_distribution(
    distribution: Uniform, mean: float, variance: float
) -> None:
    """Mean and variance within four standard errors over slots and iterations, beyond one chunk of draws."""
    found = table(Independent(distribution, SEED), 30, 300).ravel()
    deviations = (found - mean) ** 2
    for sample, expected in ((found, mean), (deviations, variance)):
        assert abs(sample.mean() - expected) <= 4 * sample.std() / math.sqrt(len(sample)) + 1e-12, f"seed {SEED}"


TIMES = [
    lambda seed: Independent(Uniform(0, 1), seed),
    lambda seed: Correlated(Nodes(2, 1.0, 0.2, 0.5, 0.9), seed),
]


@pytest.mark.parametrize("times", TIMES, ids=["independent", "nodes"])
def test_a_time_depends_on_seed_slot_and_iteration_and_not_on_who_asked_before(times: object) -> None:
    asked = [(slot, number) for slot in range(4) for number in range(600)]
    straight, shuffled = times(SEED), times(SEED)  # type: ignore[operator]
    expected = {key: straight.seconds(*key) for key in asked}
    random.Random(1).shuffle(asked)
    assert {key: shuffled.seconds(*key) for key in asked} == expected
    assert len(set(expected.values())) == len(expected)
    other = times(SEED + 1)  # type: ignore[operator]
    assert not any(other.seconds(*key) == value for key, value in expected.items())


def test_gradients_count_from_one_and_iterations_from_zero() -> None:
    assert seconds_of(Traced(((5.0, 6.0),)), slot=0, sequence=1) == 5.0


# --- nodes ---

SHARE, MEMORY, SD = 0.6, 0.5, 0.1


@pytest.fixture(scope="module")
def deviations() -> NDArray[np.float64]:
    """Standardised times of 300 nodes of two slots, ``float64[node, slot, iteration]``."""
    found = table(Correlated(Nodes(2, 1.0, SD, SHARE, MEMORY), SEED), 600, 64)
    return ((found - 1.0) / SD).reshape(300, 2, 64)


def test_times_of_nodes_have_mean_and_standard_deviation(deviations: NDArray[np.float64]) -> None:
    """Their effective number is that of an autoregression of the node's share."""
    assert deviations.mean() == pytest.approx(0, abs=0.03), f"seed {SEED}"
    assert deviations.std() == pytest.approx(1, abs=0.03), f"seed {SEED}"


def test_slots_of_a_node_share_their_part_of_the_variance_and_slots_of_two_nodes_nothing(
    deviations: NDArray[np.float64],
) -> None:
    first, second = deviations[:, 0], deviations[:, 1]
    assert (first * second).mean() == pytest.approx(SHARE, abs=0.04), f"seed {SEED}"
    assert (first[:-1] * second[1:]).mean() == pytest.approx(0, abs=0.04), f"seed {SEED}"


@pytest.mark.parametrize("lag", [1, 2, 3])
def test_only_the_nodes_part_remembers_and_forgets_geometrically(deviations: NDArray[np.float64], lag: int) -> None:
    """Autocorrelation of a slot, and of two slots of a node, at a distance of `lag` iterations."""
    expected = SHARE * MEMORY**lag
    for one in (deviations, deviations[:, ::-1]):
        found = (one[:, :, lag:] * deviations[:, :, :-lag]).mean()
        assert found == pytest.approx(expected, abs=0.04), f"seed {SEED}"


def test_a_time_is_at_least_a_tenth_of_the_mean() -> None:
    found = table(Correlated(Nodes(1, 2.0, 3.0, 0.0, 0.0), SEED), 5, 200)
    assert found.min() == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ((0, 1.0, 0.1, 0.5, 0.5), "size must be an int of at least 1, not 0"),
        ((1.5, 1.0, 0.1, 0.5, 0.5), "size must be an int of at least 1, not 1.5"),
        ((2, 0.0, 0.1, 0.5, 0.5), "mean must be a finite number above 0, not 0.0"),
        ((2, math.nan, 0.1, 0.5, 0.5), "mean must be a finite number above 0, not nan"),
        ((2, 1.0, -0.1, 0.5, 0.5), "sd must be a finite number of at least 0, not -0.1"),
        ((2, 1.0, 0.1, 1.5, 0.5), "share must be a float from 0 to 1, not 1.5"),
        ((2, 1.0, 0.1, 0.5, 1.0), "memory must be a float from 0 to 0.999999, not 1.0"),
    ],
)
def test_nodes_that_make_no_sense_are_refused(fields: tuple[float, ...], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Nodes(*fields)  # type: ignore[arg-type]
    assert sentence in str(caught.value)


# --- traces and stragglers ---


def test_a_trace_begins_again_when_it_is_over_and_serves_slots_beyond_it_in_turn() -> None:
    times = Traced(((1.0, 2.0, 3.0), (4.0,)))
    assert table(times, 3, 5).tolist() == [[1, 2, 3, 1, 2], [4, 4, 4, 4, 4], [1, 2, 3, 1, 2]]


@pytest.mark.parametrize(
    "stragglers",
    [
        Stragglers(Uniform(0.1, 0.4), factors=(1, 2), slow_chance=0.3, slow_factor=4),
        Stragglers(factors=(1, 1, 3), slow_chance=0.3, slow_factor=4),
        Stragglers(trace=((0.1, 0.5), (0.3,))),
    ],
    ids=["target", "factors", "trace"],
)
def test_stragglers_are_slow_in_the_iterations_in_which_those_of_a_real_run_are(stragglers: Stragglers) -> None:
    """A worker waits until its time is the slow-down times the target, or times its own; never less than its own."""
    own = Independent(Uniform(0.1, 0.2), SEED)
    times = Slowed(own, stragglers, SEED)
    for slot in range(4):
        for number in range(40):
            computed = own.seconds(slot, number)
            target = stragglers.iteration_seconds(SEED, slot, number)
            wanted = stragglers.slow_down(SEED, slot, number) * (computed if target is None else target)
            assert times.seconds(slot, number) == max(computed, wanted)
