"""What dynamic backup workers decide, asked directly: how many to wait for, the safeguards, rosters that change."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgpack
import pytest

from psplatform.core.parameters import parameters_of
from psplatform.core.policy import Committed, Gradient
from psplatform.core.protocol.messages import Label
from psplatform.policies.chosen_count import ChosenCount
from psplatform.policies.dbw import BlindDynamicBackup, DynamicBackup, has_risen

NOW = float("-inf")


@pytest.mark.parametrize(
    ("loss", "before", "risen"), [(1.02, 1.0, True), (1.005, 1.0, False), (-0.97, -1.0, True), (-1.0, -1.0, False)]
)
def test_a_loss_has_risen_when_it_exceeds_the_last_by_the_tolerance(loss: float, before: float, risen: bool) -> None:
    assert has_risen(loss, before, 1.01) is risen


# --- rounds by hand ---


@dataclass
class FakeView:
    now: float = 0.0
    version: int = 0
    round_started_at: float = 0.0
    workers: int = 4
    live: int = 4
    busy: int = 0
    pooled: int = 0
    minimum_clock: int = 0

    def members(self) -> list[Any]:
        return []


@dataclass
class Rounds:
    """Plays rounds with a policy, for N = 1 and V = `noise`; each gradient comes `pause` after the last."""

    policy: ChosenCount
    view: FakeView
    noise: float = 0.01
    loss: float = 1.0
    pause: Callable[[], float] = lambda: 1.0

    def gradient(self) -> Gradient:
        view = self.view
        label = Label((view.version,), (1,))
        norm = 1.0 + self.noise
        seconds = view.now - view.round_started_at
        return Gradient("w", view.pooled, view.version, label, 1, self.loss, norm, seconds, view.now)

    def arrive(self, count: int) -> tuple[Gradient, ...]:
        gradients = []
        for _ in range(count):
            self.view.now += self.pause()
            gradients.append(self.gradient())
            self.policy.admit(gradients[-1], self.view)
            self.view.pooled += 1
            self.view.busy = self.view.live - self.view.pooled
        return tuple(gradients)

    def decide(self, gradients: tuple[Gradient, ...]) -> Committed:
        view = self.view
        view.version += 1
        view.round_started_at, view.pooled, view.busy = view.now, 0, view.live
        mean = 1.0 + self.noise / len(gradients)
        return Committed(view.version, view.version, gradients, (0,) * len(gradients), mean)

    def play(self, count: int, live: int | None = None) -> int:
        """Play a round of `count`, at whose end `live` live, and return how many the next one waits for."""
        gradients = self.arrive(count)
        self.view.live = live or self.view.live
        self.policy.on_commit(self.decide(gradients), self.view)
        return chosen(self.policy)


def chosen(policy: ChosenCount) -> int:
    assert policy._choice is not None
    return policy._choice.count


def test_the_first_round_waits_for_all_who_live() -> None:
    rounds = Rounds(DynamicBackup(), FakeView())
    rounds.arrive(3)
    assert rounds.policy.pool_ready(rounds.view).at is None
    rounds.arrive(1)
    assert rounds.policy.pool_ready(rounds.view).at == NOW


def test_a_large_gradient_makes_rounds_short_and_the_reason_names_k_gain_and_time() -> None:
    rounds = Rounds(DynamicBackup(), FakeView())
    assert rounds.play(4) == 1
    rounds.arrive(1)
    answer = rounds.policy.pool_ready(rounds.view)
    assert (answer.at, answer.reason) == (NOW, "k = 1 of 4: gain 0.495 in 1 s, the most per second")


def test_noise_alone_makes_rounds_wait_for_all() -> None:
    rounds = Rounds(DynamicBackup(), FakeView(), noise=50.0)
    assert rounds.play(4) == 4
    assert "no number has a positive gain" in chosen_reason(rounds.policy)


def chosen_reason(policy: ChosenCount) -> str:
    assert policy._choice is not None
    return policy._choice.reason


@pytest.mark.parametrize(("safeguard", "expected"), [(True, 3), (False, 1)])
def test_a_loss_that_rises_makes_the_next_round_wait_for_one_more(safeguard: bool, expected: int) -> None:
    rounds = Rounds(DynamicBackup(safeguard=safeguard), FakeView())
    rounds.play(4)
    rounds.loss = 1.05
    assert rounds.play(2) == expected
    assert rounds.play(1) == 1


def test_after_four_windows_of_single_gradients_a_round_of_two_renews_the_variance() -> None:
    rounds = Rounds(DynamicBackup(window=2), FakeView())
    count, played = rounds.play(4), []
    for _ in range(20):
        played.append(count)
        count = rounds.play(count)
    assert played[:10] == [1] * 8 + [2, 1]


def test_smaller_curvature_discounts_noise() -> None:
    """With V = 3 N a rate of 1 / L makes rounds of all worth their time, and one far below does not."""
    cautious, bold = (Rounds(DynamicBackup(curvature=one), FakeView(), noise=3.0) for one in (1.0, 0.1))
    assert (cautious.play(4), bold.play(4)) == (4, 1)


# --- visibility and rosters ---


def test_the_choice_for_one_round_never_closes_the_next() -> None:
    """Gradients that come before all shards were seen to show their version wait until k is chosen."""
    rounds = Rounds(DynamicBackup(), FakeView())
    assert rounds.play(4) == 1
    late = rounds.decide(rounds.arrive(1))
    rounds.arrive(2)
    assert rounds.policy.pool_ready(rounds.view).at is None
    rounds.policy.on_commit(late, rounds.view)
    assert rounds.policy.pool_ready(rounds.view).at == NOW


def test_a_round_without_a_choice_closes_when_all_are_in_and_is_learned_from_in_its_turn() -> None:
    rounds = Rounds(DynamicBackup(), FakeView())
    rounds.play(4)
    first = rounds.decide(rounds.arrive(1))
    gradients = rounds.arrive(4)
    assert rounds.policy.pool_ready(rounds.view).at == NOW
    second = rounds.decide(gradients)
    rounds.policy.on_commit(first, rounds.view)
    assert rounds.policy._choice is not None
    assert rounds.policy._choice.version < rounds.view.version
    rounds.policy.on_commit(second, rounds.view)
    assert rounds.policy._choice.version == rounds.view.version


def test_a_round_closes_when_nobody_is_left_to_contribute_whatever_was_chosen() -> None:
    rounds = Rounds(BlindDynamicBackup(), FakeView(), pause=lambda: 0.0)
    assert rounds.play(4) == 4
    rounds.view.live = 3
    rounds.arrive(3)
    answer = rounds.policy.pool_ready(rounds.view)
    assert (answer.at, answer.reason) == (NOW, "3 of k = 4 are in: no other live worker can contribute")


def test_round_times_are_learned_apart_for_each_number_of_live_workers() -> None:
    """Fewer workers start anew with a round of all; when the others are back, what was known of them counts again."""
    rounds = Rounds(DynamicBackup(), FakeView())
    assert rounds.play(4) == 1
    assert rounds.play(1, live=3) == 3
    assert rounds.play(3) == 1
    assert rounds.play(1, live=4) == 1


def test_round_times_of_the_last_eight_numbers_of_live_workers_are_remembered() -> None:
    rounds = Rounds(DynamicBackup(), FakeView())
    for live in range(2, 12):
        rounds.play(1, live=live)
        rounds.play(1)
    assert [workers for workers, _ in rounds.policy.state()["times"]] == list(range(4, 12))


def test_the_blind_one_has_only_parameters_that_mean_something_to_it() -> None:
    blind, seeing = ([one.name for one in parameters_of(kind)] for kind in (BlindDynamicBackup, DynamicBackup))
    assert blind == ["times", "times_window", "late_samples"]
    assert seeing == [*blind, "window", "curvature", "safeguard", "tolerance"]


def test_late_gradients_are_dropped() -> None:
    rounds = Rounds(DynamicBackup(late_samples=True), FakeView())
    gradient = rounds.gradient()
    rounds.play(4)
    verdict = rounds.policy.admit(gradient, rounds.view)
    assert verdict.reason is not None
    assert verdict.reason.kind == "stale"


@pytest.mark.parametrize("make", [DynamicBackup, BlindDynamicBackup])
def test_what_was_learned_can_be_written_down_and_goes_on_with_the_same_choices(make: type[ChosenCount]) -> None:
    first = Rounds(make(), FakeView(workers=8, live=8))
    wander(first, seed=1)
    second = Rounds(make(), FakeView(workers=8, live=8))
    second.policy.restore(msgpack.unpackb(msgpack.packb(first.policy.state())))
    assert second.policy.state() == first.policy.state()
    ignorant = Rounds(make(), FakeView(workers=8, live=8))
    later = [wander(one, seed=2) for one in (first, second, ignorant)]
    assert later[0] == later[1] != later[2]


def wander(rounds: Rounds, seed: int) -> list[int]:
    """Play rounds of the counts it chooses, with noise, losses and times drawn from `seed`."""
    rng = random.Random(seed)
    rounds.view.now = rounds.view.round_started_at = 0.0
    rounds.pause = lambda: rng.expovariate(1)
    counts, count = [], 8
    for _ in range(30):
        rounds.noise, rounds.loss = rng.uniform(0.1, 2), rng.random()
        count = rounds.play(count)
        counts.append(count)
    return counts
