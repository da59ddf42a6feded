"""The forecast of divergence from norms: the closed form in constant time, and never below the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psplatform.errors import ConfigurationError
from psplatform.replication.forecast import Forecast

MOMENTA = pytest.mark.parametrize("gamma", [0.0, 0.5, 0.9, 0.99, 1.0])
NORMS = st.lists(st.floats(0.0, 1e6), min_size=1, max_size=40)


def closed_form(gamma: float, h: float, updates: list[float]) -> float:
    """Return gamma S_q |h_f| + sum_j S_{m-j+1} |u_j|."""
    series = [math.fsum(gamma**power for power in range(count)) for count in range(len(updates) + 1)]
    return gamma * series[-1] * h + math.fsum(
        series[len(updates) - number] * norm for number, norm in enumerate(updates)
    )


@MOMENTA
@given(h=st.floats(0.0, 1e6), updates=NORMS)
@settings(max_examples=60, deadline=None)
def test_the_recursion_is_the_closed_form(gamma: float, h: float, updates: list[float]) -> None:
    forecast = Forecast(gamma, h)
    for norm in updates:
        forecast.apply(norm)
    assert forecast.divergence == pytest.approx(closed_form(gamma, h, updates), rel=1e-9, abs=1e-9)
    assert Forecast(gamma, h).after(updates) == forecast.divergence


@MOMENTA
@given(h=st.floats(0.0, 1e3), updates=NORMS, data=st.data())
@settings(max_examples=60, deadline=None)
def test_what_the_replica_has_applied_no_longer_counts(
    gamma: float, h: float, updates: list[float], data: st.DataObject
) -> None:
    """Without further word, its momentum is taken for as large as it can be."""
    forecast = Forecast(gamma, h)
    for norm in updates:
        forecast.apply(norm)
    replicated = data.draw(st.integers(0, len(updates)))
    for norm in updates[:replicated]:
        forecast.replicate()
        h = gamma * h + norm
    expected = closed_form(gamma, h, updates[replicated:])
    scale = max(1.0, closed_form(gamma, 0.0, updates), h * len(updates))
    assert forecast.outstanding == len(updates) - replicated
    assert forecast.divergence == pytest.approx(expected, rel=1e-9, abs=1e-9 * scale)


@MOMENTA
@pytest.mark.parametrize("reports", ["always", "sometimes", "never"])
def test_it_is_never_below_the_true_distance(gamma: float, reports: str) -> None:
    """Random vectors, server and replica in any order; tighter where the replica tells of its momentum."""
    rng = np.random.default_rng(int(gamma * 100))
    for _ in range(20):
        h_server = h_replica = rng.standard_normal(5)
        gap, outstanding = np.zeros(5), list[np.ndarray]()
        forecast, silent = (Forecast(gamma, float(np.linalg.norm(h_server))) for _ in range(2))
        for _ in range(60):
            if outstanding and rng.random() < 0.48:
                h_replica = gamma * h_replica + outstanding.pop(0)
                gap = gap - h_replica
                tells = reports == "always" or (reports == "sometimes" and rng.random() < 0.3)
                forecast.replicate(float(np.linalg.norm(h_replica)) if tells else None)
                silent.replicate()
            else:
                update = rng.standard_normal(5) * 10 ** rng.uniform(-3, 3)
                h_server = gamma * h_server + update
                gap = gap + h_server
                outstanding.append(update)
                for one in (forecast, silent):
                    one.apply(float(np.linalg.norm(update)))
            slack = 1e-9 * (1 + silent.divergence)
            assert np.linalg.norm(gap) <= forecast.divergence + slack
            assert forecast.divergence <= silent.divergence + slack


def test_two_outstanding_updates_give_the_paper_s_formula_with_its_misprint_mended() -> None:
    """a1 |h0|^2 + a2 |u1|^2 + a3 |u2|^2 and three cross terms, of which the paper prints one twice."""
    g, h0, u1, u2 = 0.9, 2.0, 3.0, 5.0
    squared = ((g + g**2) * h0) ** 2 + ((1 + g) * u1) ** 2 + u2**2
    squared += 2 * (g + g**2) * (1 + g) * h0 * u1 + 2 * (1 + g) * u1 * u2 + 2 * (g + g**2) * h0 * u2
    assert Forecast(g, h0).after([u1, u2]) == pytest.approx(math.sqrt(squared))


def test_a_replica_that_has_everything_is_nowhere_else() -> None:
    forecast = Forecast(0.9, 0.1)
    for norm in (0.3, 1e9, 0.7):
        forecast.apply(norm)
    for _ in range(3):
        forecast.replicate()
    assert forecast.divergence == 0.0


@pytest.mark.parametrize("gamma", [-0.1, 1.1, math.nan])
def test_a_momentum_that_is_none_is_refused(gamma: float) -> None:
    with pytest.raises(ConfigurationError, match="momentum must be from 0 to 1"):
        Forecast(gamma)
