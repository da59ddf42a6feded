"""Partial synchrony's parameters: what is refused, and what stands for what was not given."""

from __future__ import annotations

from typing import Any

import pytest

from psplatform.core.plan import Plan, Stop
from psplatform.errors import ConfigurationError
from psplatform.jobs.schedules import Constant
from psplatform.memory import MemoryRun
from psplatform.policies.registry import make_policy


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"pull": 0}, "pull must be above 0: a worker needs some of the model"),
        ({"pull": 1.2}, "pull must be a float from 0 to 1, not 1.2"),
        ({"pull": "nan"}, "pull must be a float from 0 to 1, not nan"),
        ({"push": 0}, "push must be an int of at least 1, not 0"),
        ({"push_timeout_s": -1}, "push_timeout_s must be a float from 0 to 1e.06, not -1"),
        ({"pull_timeout_s": "inf"}, "pull_timeout_s must be a float from 0 to 1e.06, not inf"),
        ({"resync": "leap"}, "resync must be 'counter' or 'jump', not 'leap'"),
    ],
)
def test_a_parameter_out_of_range_is_refused_in_one_sentence(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        make_policy("psp", options)


def test_more_pushes_than_workers_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="push must be at most the number of workers: push = 5, workers = 4"):
        make_policy("psp", {"push": 5}).check(4)
    make_policy("psp", {"push": 4}).check(4)


@pytest.mark.parametrize(("workers", "merged"), [(1, 1), (3, 3), (8, 7), (16, 14)])
def test_a_block_waits_for_seven_of_eight_workers_where_nothing_is_said(workers: int, merged: int) -> None:
    plan = Plan("psp", workers, 1, 40, 4, Stop(updates=20), Constant())
    run = MemoryRun(plan, make_policy("psp"), lambda slot, sequence: 1.0 + 0.01 * slot)
    for number in range(workers):
        run.join(f"w{number}")
    run.run()
    assert {len(one["slots"]) for one in run.of_kind("commit")} == {merged}
