"""Which number of gradients is worth its time."""

from __future__ import annotations

import pytest

from psplatform.policies.chosen_count import best_count
from psplatform.policies.estimates.gradient_statistics import gain_of

# For V / N = rho and independent rounds of 16 workers with times 1 - alpha + alpha Exp(1), the best k.
BEST = {
    0.2: {0: 1, 0.1: 3, 0.5: 5, 1: 7, 2: 9, 4: 12, 8: 15, 12: 16, 15: 16, 20: 16},
    0.7: {0: 1, 0.1: 1, 0.5: 2, 1: 4, 2: 5, 4: 8, 8: 13, 12: 15, 15: 16, 20: 16},
    1.0: {0: 1, 0.1: 1, 0.5: 1, 1: 2, 2: 4, 4: 7, 8: 12, 12: 15, 15: 16, 20: 16},
}


@pytest.mark.parametrize(("alpha", "rho", "k"), [(a, rho, k) for a, row in BEST.items() for rho, k in row.items()])
def test_the_best_k_weighs_noise_against_time(alpha: float, rho: float, k: int) -> None:
    gains = [gain_of(one, 1.0, rho) for one in range(1, 17)]
    tails = [sum(1 / number for number in range(17 - one, 17)) for one in range(1, 17)]
    assert best_count(gains, [1 - alpha + alpha * tail for tail in tails]) == k


def test_the_largest_of_equals_is_best_whatever_rounding_does() -> None:
    assert best_count([1.0, 1.0, 1.0], [1.0, 1.0 + 1e-15, 2.0]) == 2
    assert best_count([1.0, 2.0, 3.0], [0.0, 0.0, 0.0]) == 3


def test_without_a_positive_gain_all_are_best_and_none_is_ranked() -> None:
    """Divided by a time, the least of the losses would be that of the longest round."""
    assert best_count([-3.0, -2.0, -2.5], [1.0, 1.0, 100.0]) == 3
    assert best_count([-3.0, -1.0, 0.0], [1.0, 1.0, 1.0]) == 3
