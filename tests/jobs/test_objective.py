"""A job says what is minimised, and how batches are made, in one way."""

from __future__ import annotations

from typing import Any

import pytest

from psplatform.core.plan import Stop
from psplatform.errors import ConfigurationError
from psplatform.jobs.job import Job

GIVEN: dict[str, Any] = {"model": list, "data": [1, 2]}


def test_a_step_takes_the_place_of_the_loss() -> None:
    assert Job(**GIVEN, step=min).step is min


@pytest.mark.parametrize(
    ("fields", "field", "sentence"),
    [
        ({**GIVEN}, "loss", r"loss \(or step\) is missing"),
        ({**GIVEN, "loss": min, "step": max}, "step", "loss and step are both given"),
        ({"model": list, "step": max}, "data", "data is missing"),
        ({"data": [1], "step": max}, "model", "model is missing"),
        ({**GIVEN, "step": "train"}, "step", "step must be a callable of model and batch, not 'train'"),
        ({**GIVEN, "step": max, "collate": 3}, "collate", "collate must be a callable of a list of samples, not 3"),
        ({**GIVEN, "step": max, "stop": Stop(target_accuracy=0.9)}, "stop", "no accuracy to reach; stop by"),
        ({"workload": "digits", "step": max}, "model", "say what to train in one way"),
        ({"workload": "digits", "collate": max}, "model", "say what to train in one way"),
    ],
)
def test_what_does_not_go_together_is_refused(fields: dict[str, Any], field: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence) as caught:
        Job(**fields)
    assert caught.value.field == field


def test_step_and_collate_must_be_given_again() -> None:
    """No store holds code."""
    plain = Job(**GIVEN, step=min, collate=max).to_plain()
    assert plain["callables"] == ["model", "step", "data", "collate"]
    with pytest.raises(ConfigurationError, match="give step, collate again"):
        Job.from_plain(plain, **GIVEN)
    again = Job.from_plain(plain, **GIVEN, step=min, collate=None)
    assert (again.step, again.collate) == (min, None)


@pytest.mark.parametrize(("before", "after"), [("loss", "step"), ("step", "loss")])
def test_a_run_may_go_on_with_a_step_instead_of_a_loss(before: str, after: str) -> None:
    """Only one of them is asked for again."""
    job = Job.from_plain(Job(**GIVEN, **{before: min}).to_plain(), **GIVEN, **{after: max})
    assert (getattr(job, before), getattr(job, after)) == (None, max)
