"""Stop conditions refuse what could never end a run, or end it before it began."""

from __future__ import annotations

import math
from typing import Any

import pytest

from psplatform.core.plan import Plan, Stop
from psplatform.errors import ConfigurationError
from psplatform.jobs.schedules import Constant


@pytest.mark.parametrize("name", ["updates", "epochs", "seconds"])
@pytest.mark.parametrize("value", [0, -1, math.inf, math.nan, True, "5"])
def test_counts_and_times_must_be_positive_finite_numbers(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Stop(**{name: value})
    assert caught.value.field == f"stop.{name}"
    assert repr(value) in str(caught.value)


def test_updates_must_be_whole() -> None:
    with pytest.raises(ConfigurationError, match=r"stop\.updates must be an int of at least 1, not 2\.5"):
        Stop(updates=2.5)  # type: ignore[arg-type]
    assert Stop(updates=2).ends


@pytest.mark.parametrize("value", [math.nan, math.inf, True, "0.1"])
def test_a_target_loss_must_be_a_finite_number(value: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Stop(target_loss=value)
    assert caught.value.field == "stop.target_loss"


@pytest.mark.parametrize("value", [0.0, 1.01, -0.5, math.nan, True])
def test_a_target_accuracy_must_be_a_share(value: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Stop(target_accuracy=value)
    assert caught.value.field == "stop.target_accuracy"


def test_nothing_given_never_ends() -> None:
    assert not Stop().ends
    assert not Stop().needs_evaluation


@pytest.mark.parametrize("given", [{"updates": 1}, {"epochs": 0.5}, {"seconds": 0.1}])
def test_counts_and_times_end_a_run_without_evaluations(given: dict[str, Any]) -> None:
    assert Stop(**given).ends
    assert not Stop(**given).needs_evaluation


def test_a_target_is_reached_at_its_very_value() -> None:
    assert Stop(target_loss=0.0).needs_evaluation
    assert Stop(target_loss=0.5).reached(0.5, None) == "loss 0.5000 <= 0.5"
    assert Stop(target_accuracy=0.9).reached(None, 0.9) == "accuracy 0.9000 >= 0.9"
    assert Stop(target_accuracy=0.9, target_loss=0.1).reached(0.11, 0.89) is None


@pytest.mark.parametrize("given", [{"target_loss": 0.5}, {"target_accuracy": 0.5}])
def test_a_target_ends_a_run_and_needs_evaluations(given: dict[str, Any]) -> None:
    assert Stop(**given).ends
    assert Stop(**given).needs_evaluation


def test_what_is_no_target_is_never_reached() -> None:
    assert Stop(updates=1).reached(0.0, 1.0) is None


def test_what_was_not_measured_reaches_nothing() -> None:
    assert Stop(target_accuracy=0.1, target_loss=9.0).reached(None, None) is None
    assert Stop(target_loss=9.0).reached(math.nan, None) is None


@pytest.mark.parametrize(("samples", "batches"), [(8, 2), (9, 3), (1, 1)])
def test_an_epoch_has_a_last_smaller_batch_where_samples_do_not_divide(samples: int, batches: int) -> None:
    plan = Plan("r", 1, 1, samples, 4, Stop(updates=1), Constant())
    assert plan.batches_per_epoch == batches
