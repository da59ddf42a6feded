"""Whole runs in memory under dynamic backup workers: what they learn, and how many they wait for."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import binom
from torch import nn

from psplatform.core.parameters import parameter
from psplatform.core.plan import Plan, Stop
from psplatform.core.policy import Committed, Policy, View
from psplatform.core.protocol.messages import Applied, Contribution
from psplatform.jobs.optimizers import SGD
from psplatform.jobs.schedules import Constant
from psplatform.memory import MemoryRun
from psplatform.memory.arithmetic import Arithmetic, Metadata
from psplatform.memory.training import TensorArithmetic
from psplatform.policies.backup import BackupWorkers
from psplatform.policies.bsp import BulkSynchronous
from psplatform.policies.chosen_count import ChosenCount
from psplatform.policies.dbw import BlindDynamicBackup, DynamicBackup
from psplatform.tasks.supervised import SupervisedTask

WORKERS = 16
Times = NDArray[np.float64]


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Compute in one thread: several wait for each other on a loaded machine, for tensors of a few elements."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run(
    policy: Policy,
    alpha: float,
    rounds: int,
    *,
    seed: int = 1,
    workers: int = WORKERS,
    arithmetic: Arithmetic | None = None,
    deliver: Any = None,
) -> MemoryRun:
    """Run with times 1 - alpha + alpha Exp(1) for each gradient."""
    plan = Plan("run", workers, 1, samples=60, batch_size=8, stop=Stop(updates=rounds), schedule=Constant())
    round_trip = lambda slot, sequence: 1 - alpha + alpha * random.Random(f"{seed} {slot} {sequence}").expovariate(1)  # noqa: E731
    memory = MemoryRun(plan, policy, round_trip, arithmetic=arithmetic, deliver=deliver)
    for number in range(workers):
        memory.join(f"w{number:02}")
    memory.run()
    return memory


def counts_of(memory: MemoryRun) -> list[int]:
    return [len(one["slots"]) for one in memory.of_kind("commit")]


class Signal(Metadata):
    """Gradients whose true squared norm falls from `start` by `decay` per update while their variance stays 1."""

    def __init__(self, start: float, decay: float = 1.0) -> None:
        super().__init__(outcome=lambda slot, sequence: (1.0, self.squared_norm + 1.0))
        self.squared_norm, self._decay = start, decay

    def gather(
        self, shard: int, contributions: tuple[Contribution, ...], *, norms: bool, updates: int = 1
    ) -> tuple[float, ...]:
        gathered = (self.squared_norm + 1.0 / len(contributions),) if norms else ()
        self.squared_norm *= self._decay
        return gathered


# --- how many ---


def test_few_are_waited_for_while_the_gradient_is_large_and_all_once_noise_dominates() -> None:
    """V / N grows from 0.01 to about 200."""
    counts = counts_of(run(DynamicBackup(), 0.7, 160, arithmetic=Signal(100.0, decay=0.94)))
    early, middle, late = counts[5:40], counts[75:85], counts[-30:]
    assert fmean(early) < 2.5
    assert fmean(early) < fmean(middle) < fmean(late)
    assert set(late) == {WORKERS}


def test_blind_dynamic_backup_settles_near_nine_of_sixteen() -> None:
    """At alpha 0.7 the paper and an independent stand-in find about 9, with jitter."""
    means = [fmean(counts_of(run(BlindDynamicBackup(), 0.7, 200, seed=seed))[20:]) for seed in range(3)]
    assert 8.0 < fmean(means) < 10.0, means


@pytest.mark.parametrize("make", [DynamicBackup, BlindDynamicBackup])
@pytest.mark.parametrize("noise", [True, False])
def test_workers_of_equal_speed_are_all_waited_for_just_as_in_bsp(make: type[ChosenCount], noise: bool) -> None:
    """At alpha 0 all times are alike, so the gain alone decides; without noise that is a tie."""
    bsp, dynamic = (run(one, 0.0, 30, arithmetic=Signal(1.0) if noise else None) for one in (BulkSynchronous(), make()))
    assert versions(bsp) == versions(dynamic)


def versions(memory: MemoryRun) -> list[list[Any]]:
    return [[one[name] for name in ("version", "at", "slots", "rate")] for one in memory.of_kind("commit")]


def test_single_gradients_are_interrupted_often_enough_to_know_the_variance() -> None:
    counts = counts_of(run(DynamicBackup(window=3), 1.0, 100, arithmetic=Signal(1000.0)))
    longest = max(len(list(alike)) for count, alike in groupby(counts) if count == 1)
    assert longest == 12


# --- what enters a commit ---


@dataclass
class Choices:
    """Notes what is chosen for the round of each version."""

    by_version: dict[int, int] = field(default_factory=dict)

    def of(self, kind: type[ChosenCount], **options: Any) -> ChosenCount:
        noted = self.by_version

        class Noting(kind):  # type: ignore[misc, valid-type]
            def on_commit(self, commit: Committed, view: View) -> None:
                super().on_commit(commit, view)
                noted[self._choice.version] = self._choice.count

        return Noting(**options)


@pytest.mark.parametrize("kind", [DynamicBackup, BlindDynamicBackup])
@pytest.mark.parametrize("options", [{}, {"times": "means"}, {"times": "ignore-previous"}, {"late_samples": True}])
def test_exactly_the_chosen_number_of_fresh_gradients_enters_each_commit(
    kind: type[ChosenCount], options: dict[str, Any]
) -> None:
    choices = Choices()
    memory = run(choices.of(kind, **options), 1.0, 60, arithmetic=Signal(2.0, decay=0.98))
    choices.by_version[0] = WORKERS
    assert counts_of(memory) == [choices.by_version[version] for version in range(60)]
    assert len(set(counts_of(memory))) > 3
    assert {lag for one in memory.of_kind("commit") for lag in one["staleness"]} == {0}


def test_while_versions_become_visible_slowly_no_round_closes_below_what_is_chosen_for_it() -> None:
    """Gradients overtake the report that all shards show their version; a choice can come too late, never too early."""
    network = random.Random(5)
    choices = Choices()
    slow = lambda sender, to, message: [network.expovariate(2.0) if isinstance(message, Applied) else 0.0]  # noqa: E731
    memory = run(choices.of(DynamicBackup), 1.0, 150, arithmetic=Signal(2.0, decay=0.98), deliver=slow)
    counts = counts_of(memory)
    surplus = [counts[version] - count for version, count in choices.by_version.items() if version < len(counts)]
    assert min(surplus) == 0
    assert max(surplus) > 0


@pytest.mark.usefixtures("one_thread")
def test_waiting_for_all_is_synchronous_training_bit_for_bit() -> None:
    """A curvature of 2 leaves no gain to any number, so that all are waited for, however slow some are."""
    policies = [BulkSynchronous(), DynamicBackup(curvature=2.0), BackupWorkers(k=4)]
    models = [trained(policy, alpha=1.0) for policy in policies]
    assert all(torch.equal(models[0], other) for other in models[1:])
    assert not torch.equal(models[0], trained(BackupWorkers(k=3), alpha=1.0))


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("make", [DynamicBackup, BlindDynamicBackup])
def test_workers_of_equal_speed_train_what_bsp_trains_bit_for_bit(make: type[ChosenCount]) -> None:
    assert torch.equal(trained(make(), alpha=0.0), trained(BulkSynchronous(), alpha=0.0))


def trained(policy: Policy, alpha: float) -> torch.Tensor:
    rng = np.random.default_rng(2)
    data = rng.standard_normal((60, 6), dtype=np.float32), rng.integers(0, 3, 60)
    task = SupervisedTask(lambda: nn.Linear(6, 3), nn.functional.cross_entropy, data)
    arithmetic = TensorArithmetic(task, SGD(lr=0.1), batch_size=8, seed=3)
    run(policy, alpha, 12, workers=4, arithmetic=arithmetic)
    return torch.cat([tensor.flatten() for _, tensor in sorted(arithmetic.saved.items())])


# --- round times ---


@dataclass
class Alternating(ChosenCount):
    """Wait for `long` and for 8 in turn."""

    long: int = parameter(WORKERS, help="gradients that every other round waits for")

    def gains(self, workers: int) -> list[float]:
        wanted = 8 if self._before == workers else self.long
        return [float(k == wanted) for k in range(1, workers + 1)]


def fresh(moments: Times) -> Times:
    """Return the probability that a worker that starts with the round is done: its time is Exp(1)."""
    return 1 - np.exp(-moments)


def busy(moments: Times) -> Times:
    """Return the same for one that first finishes what it began: the rest of that is Exp(1) as well."""
    return 1 - np.exp(-moments) * (1 + moments)


def after_a_round_of_half(k: int) -> tuple[float, float]:
    """Return mean and standard deviation of the time of the k-th of 8 fresh and 8 busy, by integration."""
    step = 0.02
    moments = np.arange(step / 2, 40.0, step)
    first, second = (binom.pmf(np.arange(9)[:, None], 8, done(moments)) for done in (fresh, busy))
    fewer = sum(first[i] * second[j] for i in range(9) for j in range(9) if i + j < k)
    mean, square = float(step * fewer.sum()), float(step * (2 * moments * fewer).sum())
    return mean, math.sqrt(square - mean**2)


def test_the_times_learned_in_a_run_are_the_true_ones_after_a_round_of_all() -> None:
    """Everybody starts at once: H_16 - H_(16 - k), within four standard errors of 100 samples."""
    times = learned_times(Alternating(), before=16)
    for k in range(1, 9):
        tail = range(WORKERS - k + 1, WORKERS + 1)
        error = math.sqrt(sum(1 / number**2 for number in tail) / 100)
        assert times[k - 1] == pytest.approx(sum(1 / number for number in tail), abs=4 * error)


def test_the_times_learned_in_a_run_are_the_true_ones_after_a_round_of_half() -> None:
    """Eight start at once and eight are busy; within four standard errors of 100 samples."""
    times = learned_times(Alternating(), before=8)
    for k in (1, 4, 8, 12, 16):
        mean, deviation = after_a_round_of_half(k)
        assert times[k - 1] == pytest.approx(mean, abs=4 * deviation / math.sqrt(100)), k


@pytest.mark.parametrize("late", [False, True])
def test_late_gradients_make_round_times_too_long_and_are_left_out_by_default(late: bool) -> None:
    """Who skips to a newer version is not seen late, so that the twelfth seems to come later than it does."""
    times = learned_times(Alternating(long=8, late_samples=late), before=8)
    assert times[7] == pytest.approx(after_a_round_of_half(8)[0], rel=0.1)
    assert (times[11] > 1.1 * after_a_round_of_half(12)[0]) is late


def learned_times(policy: ChosenCount, before: int) -> list[float]:
    run(policy, 1.0, 204, seed=4)
    return policy._times_of(WORKERS).estimate(before)
