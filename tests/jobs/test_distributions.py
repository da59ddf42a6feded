"""Run-time distributions and their words."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psplatform.errors import ConfigurationError
from psplatform.jobs.distributions import (
    DISTRIBUTIONS,
    Constant,
    Distribution,
    LogNormal,
    Pareto,
    ShiftedExponential,
    Uniform,
    parse,
)

_SECONDS = st.floats(0, 1e6)
_POSITIVE = st.floats(1e-6, 1e6)
_PAIRS = st.tuples(_SECONDS, _SECONDS).map(sorted)
ANY = st.one_of(
    _SECONDS.map(Constant),
    _PAIRS.map(lambda pair: Uniform(*pair)),
    _PAIRS.map(lambda pair: ShiftedExponential(*pair)),
    st.builds(Pareto, _POSITIVE, st.floats(0.1, 100)),
    st.builds(LogNormal, _POSITIVE, st.floats(0, 10)),
)


@pytest.mark.parametrize(
    ("distribution", "mean", "deviation"),
    [
        (Constant(0.3), 0.3, 0.0),
        (Uniform(0.1, 0.5), 0.3, 0.4 / math.sqrt(12)),
        (ShiftedExponential(0.02, 0.05), 0.05, 0.03),
        (ShiftedExponential.unit(0.2), 1.0, 0.2),
        (ShiftedExponential.unit(0.0), 1.0, 0.0),
        (Pareto(0.1, 3.0), 0.15, 0.1 * math.sqrt(0.75)),
        (LogNormal(0.1, 0.5), 0.1 * math.exp(0.125), 0.1 * math.sqrt((math.exp(0.25) - 1) * math.exp(0.25))),
    ],
    ids=str,
)
def test_samples_have_the_mean_and_spread_they_should(
    distribution: Distribution, mean: float, deviation: float
) -> None:
    """The mean of many samples is within four standard errors, their deviation within a few per cent."""
    rng = np.random.default_rng(7)
    samples = np.array([distribution.sample(rng) for _ in range(20_000)])
    assert distribution.mean() == pytest.approx(mean)
    assert samples.mean() == pytest.approx(mean, abs=4 * deviation / math.sqrt(len(samples)) + 1e-12)
    assert samples.std() == pytest.approx(deviation, rel=0.1, abs=1e-12)


@given(ANY, st.integers(0, 2**32))
def test_a_sample_is_a_time_and_the_same_for_the_same_seed(distribution: Distribution, seed: int) -> None:
    """Samples are never negative, and plain floats."""
    sample = distribution.sample(np.random.default_rng(seed))
    assert type(sample) is float
    assert sample >= 0
    assert sample == distribution.sample(np.random.default_rng(seed))


@given(ANY)
def test_words_and_distributions_are_the_same(distribution: Distribution) -> None:
    """What a distribution says of itself is read back as the same distribution."""
    assert parse(str(distribution), field="round_trip") == distribution


def test_distributions_are_written_as_people_write_them() -> None:
    """Spaces are allowed, keys come in any order, and a shifted exponential can be given by alpha."""
    assert parse(" uniform: high=2, low=1 ", field="f") == Uniform(1, 2)
    assert str(parse("shifted-exponential:shift=0.02,mean=0.05", field="f")) == (
        "shifted-exponential:shift=0.02,mean=0.05"
    )
    assert parse("shifted-exponential:alpha=0.25", field="f") == ShiftedExponential(0.75, 1.0)


def test_a_tail_too_heavy_has_an_infinite_mean() -> None:
    """Pareto with a shape of 1 or less is allowed, and honest."""
    assert Pareto(1.0, 1.0).mean() == math.inf


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", '"" is no distribution; choose from constant, uniform, shifted-exponential, pareto, log-normal'),
        ("shifted-exponentail:shift=1", 'is no distribution; did you mean "shifted-exponential"?'),
        ("uniform:low=1", "uniform lacks high; write low=...,high=..."),
        ("uniform", "uniform lacks low and high; write low=...,high=..."),
        ("uniform:low=1,hihg=2", 'uniform has no "hihg"; did you mean "high"?'),
        ("uniform:low=1,low=2,high=3", 'uniform: "low=2" should give low once'),
        ("uniform:low,high=3", 'uniform: "low" should give low once'),
        ("uniform:low=2,high=1", "low=2.0 is above high=1.0; exchange them"),
        ("constant:seconds=soon", 'constant: seconds="soon" is not a number; write it like 0.05'),
        ("constant:seconds=nan", "constant: seconds must be a finite number of at least 0, not nan"),
        ("constant:seconds=inf", "constant: seconds must be a finite number of at least 0, not inf"),
        ("constant:seconds=-1", "constant: seconds must be a finite number of at least 0, not -1.0"),
        ("shifted-exponential:shift=2,mean=1", "mean=1.0 is below shift=2.0; the mean includes the shift"),
        ("shifted-exponential:alpha=2", "alpha=2.0 must lie between 0 (constant) and 1 (exponential)"),
        ("shifted-exponential:alpha=nan", "alpha=nan must lie between"),
        ("shifted-exponential:alpha=0.5,mean=1", 'has no "mean"'),
        ("pareto:scale=0,shape=2", "pareto: scale must be a finite number above 0, not 0.0"),
        ("pareto:scale=1,shape=nan", "pareto: shape must be a finite number above 0, not nan"),
        ("log-normal:median=1,sigma=-1", "log-normal: sigma must be a finite number from 0 to 10, not -1.0"),
        ("log-normal:median=1,sigma=11", "log-normal: sigma must be a finite number from 0 to 10, not 11.0"),
    ],
)
def test_bad_words_end_in_one_clear_sentence(text: str, sentence: str) -> None:
    """The error names the option, the part that is wrong, and the remedy."""
    with pytest.raises(ConfigurationError) as caught:
        parse(text, field="round_trip")
    assert str(caught.value).startswith("round_trip: ")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.field == "round_trip"


@given(st.text(max_size=30) | st.builds("{}:{}".format, st.sampled_from(sorted(DISTRIBUTIONS)), st.text(max_size=20)))
def test_any_text_is_a_distribution_or_a_configuration_error(text: str) -> None:
    """No input ends in another error."""
    with suppress(ConfigurationError):
        assert isinstance(parse(text, field="f"), Distribution)


@pytest.mark.parametrize("make", [lambda: Constant(-1), lambda: Pareto(1, 0), lambda: LogNormal("1", 1)])  # type: ignore[arg-type]
def test_values_are_checked_without_words_too(make: Callable[[], Any]) -> None:
    """A distribution that cannot be sampled cannot be made."""
    with pytest.raises(ConfigurationError, match="must be a finite number"):
        make()
