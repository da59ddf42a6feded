"""Learning-rate rules against their equations."""

from __future__ import annotations

import math

import pytest

from psplatform.core.rates import delay_adaptive, proportional


@pytest.mark.parametrize(("accepted", "workers", "factor"), [(4, 4, 1.0), (3, 4, 0.75), (1, 8, 0.125)])
def test_the_proportional_rule_is_the_share_of_accepted_gradients(accepted: int, workers: int, factor: float) -> None:
    assert proportional(accepted, workers) == factor


def test_the_delay_adaptive_rule_is_adadelay_s_rate_over_its_base_rate() -> None:
    """AdaDelay: 1 / (L + c sqrt(t + tau)); with base rate 1/L the factor is L times that."""
    smoothness, c, t, tau = 4.0, 0.2, 90, 10
    assert delay_adaptive(t, tau, c / smoothness) == pytest.approx(smoothness / (smoothness + c * math.sqrt(t + tau)))


def test_the_delay_adaptive_rule_falls_with_staleness_and_is_one_without_damping() -> None:
    assert delay_adaptive(100, 50, 0.1) < delay_adaptive(100, 0, 0.1) < delay_adaptive(0, 0, 0.1) == 1.0
    assert delay_adaptive(100, 50, 0.0) == 1.0
