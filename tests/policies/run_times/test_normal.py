"""Order statistics of a normal, with the numbers of the paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from psplatform.policies.run_times.normal import BLOM, Normal, expected_order
from psplatform.policies.run_times.predictor import best_cutoff

MEAN, DEVIATION = 1.057, 0.393
PAPER_MAXIMUM = 2.1063


def exact_maximum(count: int) -> float:
    """Integrate the density of the largest of `count` normals."""
    density = lambda x: x * count * stats.norm.pdf(x) * stats.norm.cdf(x) ** (count - 1)  # noqa: E731
    return MEAN + DEVIATION * float(integrate.quad(density, -10, 10)[0])


def test_the_expected_maximum_of_158_workers_is_the_papers() -> None:
    assert abs(expected_order(MEAN, DEVIATION, 158)[-1] - PAPER_MAXIMUM) < 0.002


def test_the_paper_counted_all_160_cores() -> None:
    assert abs(expected_order(MEAN, DEVIATION, 160)[-1] - PAPER_MAXIMUM) < 1e-4


def test_the_formula_comes_within_a_thousandth_of_the_integral() -> None:
    assert exact_maximum(158) == pytest.approx(2.1051, abs=1e-4)
    assert expected_order(MEAN, DEVIATION, 158)[-1] == pytest.approx(exact_maximum(158), abs=1e-3)
    assert expected_order(MEAN, DEVIATION, 158, offset=BLOM)[-1] == pytest.approx(2.1009, abs=1e-4)


def test_the_others_wait_a_second_for_the_last() -> None:
    assert exact_maximum(158) - MEAN == pytest.approx(1.048, abs=1e-3)


def test_the_tail_near_zero_is_a_trap_that_the_floor_closes() -> None:
    expected = expected_order(MEAN, DEVIATION, 158)
    assert best_cutoff(expected) == 1
    assert best_cutoff(expected, floor=0.15) == 136
    assert best_cutoff(expected, least=79) == 136
    assert 136 / expected[135] == pytest.approx(92.1, abs=0.1)
    assert 158 / expected[157] == pytest.approx(75.1, abs=0.1)


@pytest.mark.parametrize("floored", [True, False])
def test_on_normal_times_it_chooses_an_interior_cutoff(floored: bool, play: Callable[..., Any]) -> None:
    rng = np.random.default_rng(2)
    times = np.maximum(rng.normal(MEAN, DEVIATION, (40, 158)), 0.15)
    cutoffs = play(Normal(0, floored=floored), times).cutoffs[5:]
    assert 130 <= cutoffs.min() <= cutoffs.max() <= 142


def test_before_anything_was_seen_all_are_waited_for() -> None:
    assert Normal(0).choose(np.arange(4)).cutoff == 4
