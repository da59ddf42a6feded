"""Fault schedules and trials are data: plain, checked, and the same after they were written down."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from psplatform.errors import ConfigurationError
from psplatform.simulation.faults.schedules.amending import LATER, amend
from psplatform.simulation.faults.schedules.between import BETWEEN
from psplatform.simulation.faults.schedules.drawing import draw, settings
from psplatform.simulation.faults.schedules.repeats import REPEATED
from psplatform.simulation.faults.schedules.scenarios import SCENARIOS
from psplatform.simulation.faults.schedules.schedule import KINDS, Fault, Selector
from psplatform.simulation.faults.schedules.trial import LIVENESS, SAFETY, Trial


@pytest.mark.parametrize("seed", range(40))
def test_a_trial_is_the_same_after_it_was_written_down(seed: int) -> None:
    trial = draw(seed)
    assert Trial.from_plain(json.loads(json.dumps(trial.to_plain()))) == trial


def test_the_same_seed_gives_the_same_trial_and_another_seed_another() -> None:
    assert draw(7) == draw(7)
    assert draw(7) != draw(8)


def test_drawing_leaves_no_kind_of_fault_no_policy_no_mode_and_no_scenario_out() -> None:
    trials = [draw(seed) for seed in range(400)]
    assert {fault.kind for trial in trials for fault in trial.faults} == set(KINDS)
    assert {(trial.policy, str(trial.parameters)) for trial in trials} == {(name, str(one)) for name, one in settings()}
    assert {trial.mode for trial in trials} == {SAFETY, LIVENESS}
    assert all(draw(0, scenario=name).faults for name in (*SCENARIOS, *LATER, *REPEATED, *BETWEEN))


def test_what_is_drawn_later_leaves_everything_else_as_the_seed_says() -> None:
    """Most trials are what they were; beside new faults, the old ones stay."""
    rng = random.Random(5)
    plain = Trial(7, standby=True, faults=(Fault("kill", "server 0", at=3.0),))
    amended = [amend(replace(plain, seed=rng.randrange(10**6))) for _ in range(200)]
    alike = [
        one for one in amended if one.faults[:1] == plain.faults and replace(one, seed=7, faults=plain.faults) == plain
    ]
    assert len(alike) > 150
    assert {fault.kind for one in alike for fault in one.faults} == {"kill", "retire", "claim"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "melt", "who": "server 0", "at": 1.0},
        {"kind": "kill", "who": "server 0"},
        {"kind": "kill", "who": "server 0", "at": 1.0, "event": 2},
        {"kind": "kill", "at": 1.0},
        {"kind": "kill", "who": "server 0", "at": 1.0, "colour": "red"},
        {"kind": "partition", "who": "server 0", "at": 1.0, "way": "up"},
        {"who": "server 0", "at": 1.0},
    ],
    ids=str,
)
def test_a_fault_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="a fault's"):
        Fault.from_plain(wrong)


def test_a_trial_with_an_unknown_field_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no field 'colour'"):
        Trial.from_plain({"colour": "red"})


@pytest.mark.parametrize(("text", "role"), [("server 2", ("server", 2)), ("coordinator", ("coordinator", 0))])
def test_a_selector_names_a_role(text: str, role: tuple[str, int]) -> None:
    parsed = Selector.parse(text)
    assert (parsed.role, parsed.number) == role


@pytest.mark.parametrize("text", ["server", "server x", "coordinator 1", "nobody", ""])
def test_what_names_no_role_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="names no role"):
        Selector.parse(text)
