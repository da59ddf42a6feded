"""Faults of whoever sums gradients on their way."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from psplatform.simulation.faults.execution import run_trial
from psplatform.simulation.faults.schedules.drawing import draw
from psplatform.simulation.faults.schedules.schedule import Fault
from psplatform.simulation.threads import one_thread


def test_a_fault_of_an_aggregator_waits_until_there_is_one() -> None:
    """Before the first event nobody sums anything."""
    met = Counter[str]()
    with one_thread():
        for seed in range(8):
            trial = draw(seed, scenario="gradients are summed")
            met += run_trial(replace(trial, faults=(Fault("pause", "aggregator", event=0, seconds=0.3),))).met
    assert met["pause aggregator"] == met["pause | sums under way"] > 0
