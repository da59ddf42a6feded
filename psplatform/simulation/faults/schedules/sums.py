"""Losses while gradients are summed on their way."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from psplatform.simulation.faults.schedules.scenarios import UNTIL_S, Scenario, Scene, loosely
from psplatform.simulation.faults.schedules.schedule import Fault
from psplatform.simulation.faults.schedules.trial import Trial

AGGREGATOR: Final = "aggregator"
"""Whoever sums the gradients of the oldest bundle that is expected."""

_POLICIES: Final = ("asp", "bsp", "delay-bounded", "ssp")
"""Those that take sums."""


def at_aggregators(rng: random.Random, *, kinds: tuple[str, ...], most: int) -> tuple[Fault, ...]:
    """Return faults of aggregators, by number of the event: they are asked for as sums are under way."""
    return tuple(
        Fault(rng.choice(kinds), AGGREGATOR, event=int(10 ** rng.uniform(1, 3)), seconds=rng.uniform(0.2, 4.0))
        for _ in range(rng.randint(0, most))
    )


def _sums_are_under_way(rng: random.Random, trial: Trial) -> Scene:
    policy = rng.choice(_POLICIES)
    trial = replace(loosely(rng, trial), policy=policy, parameters={}, workers=4, updates=20, fabric=True)
    first = [Fault("kill", rng.choice([AGGREGATOR, "coordinator", "server 0"]), at=rng.uniform(0.5, UNTIL_S))]
    second = [Fault("kill", "coordinator", at=rng.uniform(0.5, UNTIL_S))] * (rng.random() < 0.4)
    return Scene(trial, (*first, *second, *at_aggregators(rng, kinds=("kill", "pause"), most=2)))


SUMMED: Final[dict[str, Scenario]] = {"gradients are summed": _sums_are_under_way}
