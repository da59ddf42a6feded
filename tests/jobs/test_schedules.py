"""What a learning-rate schedule accepts, refuses and computes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from psplatform.errors import ConfigurationError
from psplatform.jobs.job import Job
from psplatform.jobs.schedules import SCHEDULES, AnySchedule, Constant, Cosine, StepDecay
from psplatform.jobs.schedules import schedule_from_plain as from_plain
from psplatform.jobs.schedules import schedule_to_plain as to_plain

SPECS = [Constant(), Constant(warmup=5), StepDecay(), StepDecay((3, 1), 0.5), Cosine(100, floor=0.1, warmup=10)]


@pytest.mark.parametrize("schedule", SPECS, ids=repr)
def test_a_schedule_survives_its_plain_form(schedule: AnySchedule) -> None:
    assert from_plain(json.loads(json.dumps(to_plain(schedule)))) == schedule
    assert set(SCHEDULES.values()) == {type(one) for one in SPECS}


def test_milestones_are_sorted() -> None:
    assert StepDecay([60, 30]).milestones == (30.0, 60.0)  # type: ignore[arg-type]  # a list is taken, too


def test_factors_follow_the_equations() -> None:
    assert [Constant(4).factor(updates, 0.0) for updates in (0, 1, 3, 9)] == [0.25, 0.5, 1.0, 1.0]
    assert [StepDecay((1.0, 2.0), 0.5).factor(0, epochs) for epochs in (0.5, 1.0, 2.5)] == [1.0, 0.5, 0.25]
    falling = [Cosine(10, floor=0.2).factor(updates, 0.0) for updates in (0, 5, 10, 99)]
    assert falling == pytest.approx([1, 0.6, 0.2, 0.2])


@pytest.mark.parametrize(
    ("plain", "sentence"),
    [
        ({"name": "linear"}, 'There is no schedule "linear"; choose from constant, step, cosine'),
        ({"name": "cosin", "updates": 1}, 'did you mean "cosine"?'),
        ({"name": "step", "gama": 0.5}, 'schedule step has no parameter "gama"; did you mean "gamma"?'),
        ({"name": "cosine"}, "schedule: updates is missing: updates after which"),
        ({"name": "cosine", "updates": 0}, "schedule.updates must be an int of at least 1, not 0"),
        ({"name": "cosine", "updates": "many"}, "schedule.updates must be an int of at least 1, not 'many'"),
        ({"name": "cosine", "updates": 5, "warmup": 5}, "schedule.warmup must be below updates: 5 >= 5"),
        ({"name": "step", "gamma": 0}, "schedule.gamma must be a float above 0 and at most 1, not 0"),
        ({"name": "step", "milestones": [0]}, "schedule.milestones must be finite numbers above 0, not [0]"),
        ({"warmup": -1}, "schedule.warmup must be an int of at least 0, not -1"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_remedy(plain: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        from_plain(plain)
    assert sentence in str(caught.value)
    assert caught.value.field == "schedule"


class Own:
    """A schedule whose factor is what a test says."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def factor(self, updates: int, epochs: float) -> Any:
        return [1.0, 0.5][updates + self._answer] if isinstance(self._answer, int) else self._answer


def test_a_schedule_of_ones_own_is_taken() -> None:
    assert Job(workload="digits", schedule=Own(0.5)).schedule.factor(0, 0.0) == 0.5


UNFIT = [
    (Own(7), r"the schedule Own raises at the first update \(IndexError: list index out of range\); its factor"),
    (Own("half"), r"the schedule Own answers 'half' for factor\(0, 0\.0\); it must return a finite number, 0 or more"),
    (Own(float("nan")), "the schedule Own answers nan"),
    (Own(None), "the schedule Own answers None"),
    (Cosine, r"must be an object that has a factor\(updates, epochs\), not .*; write Cosine\(\.\.\.\)"),
    (lambda updates: 1.0, r"must be an object that has a factor\(updates, epochs\), not .*; see ps\.Cosine"),
    (3, r"must be an object that has a factor\(updates, epochs\), not 3"),
]


@pytest.mark.parametrize(("schedule", "sentence"), UNFIT, ids=lambda one: one[:40] if isinstance(one, str) else "")
def test_one_that_raises_or_answers_nonsense_is_refused_with_the_job(schedule: Any, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence) as caught:
        Job(workload="digits", schedule=schedule)
    assert caught.value.field == "schedule"
    assert "\n" not in str(caught.value)
