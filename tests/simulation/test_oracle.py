"""The oracle in simulations: it is told the times to come, and nobody does better."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from psplatform.core.plan import Stop
from psplatform.errors import ConfigurationError
from psplatform.jobs.job import Job
from psplatform.policies.cutoff import Cutoff
from psplatform.simulation.conditions import Conditions, parse_run_times
from psplatform.simulation.driver import Simulated
from psplatform.simulation.simulate import simulate

WORKERS = 12
ROUNDS = 60
SLOWNESS = "slow:chance=0.1,factor=4;factors:1,1,2;regime:first=9,last=11,factor=3,from=20,until=40"
STRAGGLING = f"log-normal:median=1,sigma=0.3;{SLOWNESS}"


def play(policy: str | Cutoff, seed: int = 5, **given: Any) -> Simulated:
    fields = {"workload": "digits", "workers": WORKERS, "stop": Stop(updates=ROUNDS), "seed": seed, **given}
    return simulate(Job(policy=policy, **fields), Conditions(compute=STRAGGLING, timing_only=True), keep_records=True)


def rounds_of(run: Simulated, seed: int = 5) -> list[tuple[int, np.ndarray]]:
    """Return for each round how many gradients it took, and the sorted times of all that were begun in it."""
    times = parse_run_times(STRAGGLING, seed=seed, workers=WORKERS, field="compute")
    begun: dict[int, list[float]] = {}
    found = []
    for record in run.records:
        if record["kind"] == "start":
            begun.setdefault(record["version"], []).append(times.seconds(record["slot"], record["sequence"] - 1))
        elif record["kind"] == "commit":
            found.append((len(record["slots"]), np.sort(begun[record["version"] - 1])))
    return found


def rate(run: Simulated) -> float:
    """Return the mean of c / x_(c)."""
    return float(np.mean([count / times[count - 1] for count, times in rounds_of(run)]))


@pytest.mark.parametrize("seed", [5, 6])
def test_it_takes_in_every_round_what_trying_all_says(seed: int) -> None:
    found = rounds_of(play(Cutoff(predictor="oracle"), seed), seed)
    assert len(found) == ROUNDS
    for count, times in found:
        assert len(times) == WORKERS
        assert count == 1 + int(np.argmax(np.arange(1, WORKERS + 1) / times))
    assert len({count for count, _ in found}) > 3


def test_nobody_is_faster_and_waiting_for_all_is_slower_than_predicting() -> None:
    oracle, forgetting, bsp = (rate(play(one)) for one in (Cutoff(predictor="oracle"), Cutoff(), "bsp"))
    assert oracle > forgetting > 1.5 * bsp


def test_the_throughput_of_the_runs_is_in_the_same_order() -> None:
    """Gradients per second of the whole run, which is what the rates of the rounds are for."""

    def throughput(policy: str | Cutoff) -> float:
        run = play(policy)
        return run.view.applied / run.virtual_seconds

    assert throughput(Cutoff(predictor="oracle")) > throughput(Cutoff()) > 1.5 * throughput("bsp")


def test_it_is_told_about_a_jobs_stragglers_and_real_gradients_too() -> None:
    job = {"workload": "digits", "policy": "cutoff", "policy_options": {"predictor": "oracle"}, "workers": 4}
    given = {"stragglers": "factors:1,1,1,50", "stop": Stop(updates=3), "evaluate_every": 2}
    run = simulate(Job(**job, **given), Conditions(compute="constant:seconds=0.1"), keep_records=True)
    assert [record["slots"] for record in run.records if record["kind"] == "commit"] == [[0, 1, 2]] * 3
    assert run.model


def test_the_users_own_policy_learns_nothing_of_the_times_to_come() -> None:
    policy = Cutoff(predictor="oracle")
    play(policy)
    with pytest.raises(ConfigurationError, match="which only a simulator knows"):
        policy.check(WORKERS)
