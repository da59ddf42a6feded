"""What the paper of the cutoff policy reports of 158 workers on four nodes, the last of which is slow for a while.

M. Teng, F. Wood, "Bayesian distributed stochastic gradient descent", NeurIPS 2018, section 4: while a node of 40 is
slow its workers are cut off; after the 61st round it is as fast as the others, which the model finds out within about
24; before and after, the cutoff is close to the best there is.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from psplatform.core.plan import Stop
from psplatform.jobs.job import Job
from psplatform.policies.cutoff import Cutoff
from psplatform.policies.run_times.training import fit
from psplatform.simulation.conditions import Conditions, parse_run_times
from psplatform.simulation.simulate import simulate
from psplatform.simulation.threads import one_thread

WORKERS, ROUNDS, WINDOW = 158, 120, 20
SLOW = range(118, 158)
RECOVERED, FOUND_OUT = 61, 86
NODES = "nodes:size=40,mean=1.057,sd=0.393,share=0.5,memory=0.9"
LEAST_S = 0.15
"""A normal has mass near 0, and one gradient that takes no time is a better round than any other."""


def times_of(seed: int, rounds: int, *slow: tuple[int, int]) -> np.ndarray:
    """Return ``float64[rounds, 158]``: the run times of a cluster whose last node is slow in those spans of rounds."""
    regimes = [f"regime:first=118,last=157,factor=3,from={begin},until={end}" for begin, end in slow]
    times = parse_run_times(";".join([NODES, *regimes]), seed=seed, workers=WORKERS, field="compute")
    drawn = [[times.seconds(slot, number) for slot in range(WORKERS)] for number in range(rounds)]
    return np.maximum(drawn, LEAST_S)


@dataclass(frozen=True)
class Played:
    """The slots that each round accepted, and its rate c / x_(c) beside the best, and that of waiting for all."""

    accepted: list[list[int]]
    rates: np.ndarray
    best: np.ndarray
    full: np.ndarray


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Fit a model to full rounds of another seed, in which the node is slow at other times."""
    with one_thread():
        fitted = fit(times_of(1, 240, (40, 90), (130, 160)), steps=150, seed=0)
    file = tmp_path_factory.mktemp("model") / "model.npz"
    file.write_bytes(fitted.to_bytes())
    return str(file)


@pytest.fixture(scope="module")
def played(model: str, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Simulate 120 rounds of the real policy on a trace."""
    times = times_of(4, ROUNDS, (0, RECOVERED))
    file = tmp_path_factory.mktemp("trace") / "times.csv"
    write_trace(times, file)
    policy = Cutoff(predictor="generative", model=model)
    job = Job(workload="digits", policy=policy, workers=WORKERS, batch_size=8, stop=Stop(updates=ROUNDS))
    run = simulate(job, Conditions(compute=f"trace:{file}", timing_only=True), keep_records=True)
    accepted = [record["slots"] for record in run.records if record["kind"] == "commit"]
    counts, ordered = np.array(list(map(len, accepted))), np.sort(times, axis=1)
    rates = np.arange(1, WORKERS + 1) / ordered
    return Played(accepted, rates[np.arange(ROUNDS), counts - 1], rates.max(axis=1), rates[:, -1])


def write_trace(times: np.ndarray, file: Path) -> None:
    lines = (f"{slot},{number},{seconds}" for (number, slot), seconds in np.ndenumerate(times))
    file.write_text("\n".join(["slot,sequence,seconds", *lines]))


def test_it_begins_with_a_window_of_full_rounds(played: Played) -> None:
    assert [len(slots) for slots in played.accepted[:WINDOW]] == [WORKERS] * WINDOW
    assert len(played.accepted[WINDOW]) < WORKERS


def test_while_the_node_is_slow_its_workers_are_cut_off(played: Played) -> None:
    """But for those that happen to be fast all the same; and nobody could do much better."""
    span = slice(WINDOW, RECOVERED)
    accepted = [slot for slots in played.accepted[span] for slot in slots]
    assert max(map(len, played.accepted[span])) <= WORKERS - len(SLOW)
    assert sum(slot in SLOW for slot in accepted) < 0.05 * len(accepted)
    assert np.sum(played.rates[span]) > 0.95 * np.sum(played.best[span])
    assert np.sum(played.rates[span]) > 2 * np.sum(played.full[span])


def test_recovery_is_found_out_within_25_rounds(played: Played) -> None:
    """Without ever waiting for all: their workers contribute again, and the rate is near the best."""
    contributed = {slot for slots in played.accepted[RECOVERED:FOUND_OUT] for slot in slots}
    assert contributed >= set(SLOW)
    after = slice(FOUND_OUT, ROUNDS)
    assert np.sum(played.rates[after]) >= 0.95 * np.sum(played.best[after])
    assert np.sum(played.rates[after]) > 1.1 * np.sum(played.full[after])
