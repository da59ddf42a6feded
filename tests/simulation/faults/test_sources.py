"""Trials in which replicas take gradients from the workers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from psplatform.simulation.faults.execution import run_trial
from psplatform.simulation.faults.schedules.drawing import draw
from psplatform.simulation.faults.schedules.trial import Copying, Trial


def test_about_a_quarter_of_the_trials_with_copies_take_them_from_the_workers() -> None:
    sources = Counter(trial.copying.source for trial in map(draw, range(200)) if trial.copying is not None)
    assert 0.15 < sources["workers"] / sources.total() < 0.35


def test_a_trial_that_was_written_down_before_there_was_a_choice_is_one_of_servers() -> None:
    plain = Trial(seed=3, copying=Copying(2, 4.0)).to_plain()
    del plain["copying"]["source"]
    loaded = Trial.from_plain(plain)
    assert loaded.copying == Copying(2, 4.0, source="server")


def test_replicas_follow_and_miss_steps_and_nothing_is_violated() -> None:
    counts: Counter[str] = Counter()
    for seed in range(6):
        trial = replace(
            Trial(seed=seed, workers=3, shards=2, optimizer={"name": "adam", "lr": 0.01}, clip=0.5),
            copying=Copying(2, float(2 * (seed % 2)), source="workers"),
        )
        verdict = run_trial(trial)
        assert not verdict.invariant, f"seed {seed}: {verdict.invariant} {verdict.found}"
        counts += verdict.counts
    assert counts["transfers: gradients"] > 5 * counts["transfers: could not be read"] > 0
