"""The protocol under random faults, and under those that once broke it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pytest

from psplatform.simulation.faults.execution import Verdict, run_trial
from psplatform.simulation.faults.fuzzing import search
from psplatform.simulation.faults.schedules.drawing import SCENARIO_NAMES, draw
from psplatform.simulation.faults.schedules.shrinking import shrink
from psplatform.simulation.threads import one_thread

SEEDS = 40


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    with one_thread():
        yield


def fail(verdict: Verdict) -> None:
    least = shrink(verdict)
    schedule = json.dumps(least.trial.to_plain())
    pytest.fail(f"seed {verdict.trial.seed}: {least.invariant} is violated: {least.found}\n{schedule}")


def test_nothing_is_violated_whatever_fails_and_enough_has_failed() -> None:
    met: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        verdict = run_trial(draw(seed))
        if verdict.invariant:
            fail(verdict)
        met += verdict.met
        counts += verdict.counts
    assert counts["promotions"] > 5
    assert counts["takeovers"] > 5
    assert counts["handed over"] > 0
    assert counts["serial loops"] > 5
    assert counts["zombie attempts"] > 0
    assert counts["checkpoints complete"] > 20
    assert len({name for name in met if name.startswith("kill | ")}) > 5


@pytest.mark.parametrize("name", SCENARIO_NAMES)
def test_nothing_is_violated_when_losses_come_together(name: str) -> None:
    for seed in range(6):
        verdict = run_trial(draw(seed, scenario=name))
        if verdict.invariant:
            fail(verdict)


def test_the_same_trial_gives_the_same_run() -> None:
    first, second = run_trial(draw(3)), run_trial(draw(3))
    assert (first.events, first.seconds, first.counts) == (second.events, second.seconds, second.counts)


def test_a_search_counts_what_it_met_and_reports_it_as_plain_values() -> None:
    summary = json.loads(json.dumps(search(4, seed=100, processes=1).summary()))
    assert summary["schedules"] == 4
    assert summary["violations"] == []
    assert summary["coverage"]
    assert sum(summary["outcomes"].values()) == 4
