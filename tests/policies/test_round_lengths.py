"""How long rounds take under a fixed number of backup workers: closed forms and published figures, 16 workers."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from psplatform.core.plan import Plan, Stop
from psplatform.jobs.schedules import Constant
from psplatform.memory import MemoryRun
from psplatform.policies.registry import make_policy

WORKERS = 16
SEED = 7

# Mean length of a round by alpha and k, where late workers finish what they began: simulated elsewhere, +-1 %.
FINISHED = {
    (1.0, 1): 0.296, (1.0, 4): 0.668, (1.0, 8): 1.090, (1.0, 9): 1.182, (1.0, 12): 1.640, (1.0, 16): 3.38,
    (0.7, 9): 1.148, (0.7, 12): 1.454, (0.7, 16): 2.67,
    (0.2, 8): 1.052, (0.2, 12): 1.145, (0.2, 16): 1.47,
}  # fmt: skip


def round_trip(alpha: float) -> Callable[[int, int], float]:
    """Return the time of each gradient: 1 - alpha + alpha Exp(1), mean 1."""
    return lambda slot, sequence: 1 - alpha + alpha * random.Random(f"{SEED} {slot} {sequence}").expovariate(1)


def round_lengths(alpha: float, k: int, busy: str, rounds: int) -> list[float]:
    stop = Stop(updates=rounds)
    plan = Plan("lengths", WORKERS, shards=1, samples=100, batch_size=1, stop=stop, schedule=Constant())
    run = MemoryRun(plan, make_policy("backup", {"k": k, "busy": busy}), round_trip(alpha))
    for number in range(WORKERS):
        run.join(f"w{number}")
    run.run()
    return [one["duration_s"] for one in run.of_kind("commit")]


def sampling_error(lengths: list[float]) -> float:
    """Return the standard error of the mean from 20 batches, since successive rounds depend on each other."""
    batches = np.array_split(np.array(lengths), 20)
    return float(np.std([batch.mean() for batch in batches], ddof=1) / np.sqrt(20))


@pytest.mark.parametrize("alpha", [1.0, 0.2])
@pytest.mark.parametrize("k", [1, 8, 12, 16])
def test_rounds_whose_late_workers_abort_last_as_long_as_the_kth_of_n_fresh_times(alpha: float, k: int) -> None:
    """1 - alpha + alpha (H_16 - H_(16 - k)), within four standard errors."""
    expected = 1 - alpha + alpha * sum(1 / number for number in range(WORKERS - k + 1, WORKERS + 1))
    lengths = round_lengths(alpha, k, "abort", rounds=120)
    assert abs(np.mean(lengths) - expected) < 4 * sampling_error(lengths), f"seed {SEED}"


@pytest.mark.parametrize(("alpha", "k"), FINISHED)
def test_rounds_whose_late_workers_finish_last_longer(alpha: float, k: int) -> None:
    """Within four standard errors and the 1 % that the figures are known to; round 1 starts with everybody ready."""
    lengths = round_lengths(alpha, k, "finish", rounds=220)[20:]
    expected = FINISHED[alpha, k]
    assert abs(np.mean(lengths) - expected) < 4 * sampling_error(lengths) + 0.01 * expected, f"seed {SEED}"
