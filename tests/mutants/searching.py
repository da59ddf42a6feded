"""The search for faults alone beside a planted bug: whether a trial notices it, and which.

A program of its own, so that it imports the copy in which the bug is planted: ``python searching.py TRIALS [SCENARIO
SEED]`` prints one JSON object, with the scenario and the seed of the first trial that noticed and what it found, or an
empty one.  It tries the trial that is given first; then, with any TRIALS, those in which the search has found something
once, and so many of every scenario and of none.  One in which something was found once is given by its name and `ONCE`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from psplatform.simulation.faults.execution import run_trial
from psplatform.simulation.faults.schedules.drawing import SCENARIO_NAMES, draw
from psplatform.simulation.faults.schedules.trial import Trial
from psplatform.simulation.threads import one_thread

ONCE: Final = "once"
"""In the place of a seed: the scenario is the name of a trial in which something was found once."""

_ROOT: Final = Path(__file__).resolve().parents[2]
_FOUND: Final = {
    case["name"]: case["trial"]
    for case in json.loads((_ROOT / "tests/simulation/faults/broken_once.json").read_text(encoding="utf-8"))
}


def trials(count: int, first: list[str]) -> Iterator[tuple[str, str]]:
    """Yield scenario and seed of one trial after the other."""
    if first:
        yield first[0], first[1]
    for name in _FOUND if count else ():
        yield name, ONCE
    for seed in range(count):
        for scenario in ("", *SCENARIO_NAMES):
            yield scenario, str(seed)


def noticed(scenario: str, seed: str) -> str:
    """Return what a trial finds violated, or what the protocol raises in it; "" for neither."""
    try:
        trial = Trial.from_plain(_FOUND[scenario]) if seed == ONCE else draw(int(seed), scenario=scenario)
        verdict = run_trial(trial)
    except Exception as error:  # noqa: BLE001  a bug may well raise: the search ends with it as a run would
        return f"{type(error).__name__}: {error}"
    return f"{verdict.invariant}: {verdict.found}" if verdict.invariant else ""


def first_noticed(count: int, first: list[str]) -> dict[str, Any]:
    """Return which trial is the first to notice, and what."""
    with one_thread():
        for scenario, seed in trials(count, first):
            if found := noticed(scenario, seed):
                return {"scenario": scenario, "seed": seed, "found": found}
    return {}


if __name__ == "__main__":
    print(json.dumps(first_noticed(int(sys.argv[1]), sys.argv[2:])))
