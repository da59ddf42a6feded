"""What is taken for the run time of a worker that was cut off, and how each of the usual errors shows."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from psplatform.policies.run_times.censoring import draw_beyond
from psplatform.policies.run_times.forgetting import Forgetting
from psplatform.policies.run_times.generative import Generative
from psplatform.policies.run_times.normal import Normal
from psplatform.policies.run_times.predictor import Observation, Slots, Times

Play = Callable[..., Any]
RNG = np.random.default_rng


def drawn(means: list[float], deviations: list[float], bound: float, count: int = 20_000) -> np.ndarray:
    spread = lambda values: np.repeat(np.array(values)[:, None], count, axis=1)  # noqa: E731
    return draw_beyond(spread(means), spread(deviations), np.full(count, bound), RNG(0))


@pytest.mark.parametrize("bound", [-np.inf, 0.0, 1.5, 2.5])
def test_one_component_is_a_truncated_normal(bound: float) -> None:
    truncated = stats.truncnorm((bound - 1.0) / 0.4, np.inf, loc=1.0, scale=0.4)
    assert stats.kstest(drawn([1.0], [0.4], bound), truncated.cdf).pvalue > 0.01


def test_components_weigh_as_much_as_their_chance_to_survive_the_bound() -> None:
    """Of a fast and a slow component, a time beyond the fast one comes from the slow one."""
    means, deviations, bound = [1.0, 3.0], [0.4, 0.4], 1.5

    def distribution(x: np.ndarray) -> np.ndarray:
        parts = [stats.norm(mean, sd) for mean, sd in zip(means, deviations, strict=True)]
        above = sum(one.cdf(x) - one.cdf(bound) for one in parts)
        return np.asarray(above / sum(one.sf(bound) for one in parts))

    assert stats.kstest(drawn(means, deviations, bound), distribution).pvalue > 0.01


def test_far_beyond_what_was_predicted_draws_stay_finite_and_just_above_the_bound() -> None:
    found = drawn([1.0], [0.01], 5.0)
    assert np.all(np.isfinite(found))
    assert found.min() >= 5.0
    assert np.mean(found) - 5.0 == pytest.approx(0.01**2 / 4.0, rel=0.05)


# --- the usual errors: (a) and (b) make every round look faster than it was ---


class FastestOnly(Forgetting):
    """Error (a): learns from the c fastest and nothing of the others."""

    def _complete(self, seen: Observation) -> tuple[Slots, Times]:
        return seen.slots[~seen.censored], seen.times[~seen.censored]


class AtTheBound(Forgetting):
    """Error (b): takes the cutoff for the run time."""

    def _complete(self, seen: Observation) -> tuple[Slots, Times]:
        return seen.slots, np.where(seen.censored, seen.cutoff_time, seen.times)


class FastestOnlyNormal(Normal):
    def _complete(self, seen: Observation) -> Times:
        return seen.times[~seen.censored]


class AtTheBoundNormal(Normal):
    def _complete(self, seen: Observation) -> Times:
        return np.where(seen.censored, seen.cutoff_time, seen.times)


def learned_deviation(predictor: Any, play: Play, seed: int) -> float:
    """Cut off two workers of five in every round; return the spread of run times that it then believes in."""
    times = np.maximum(RNG(seed).normal(1.0, 0.35, (100, 60)), 0.1)
    play(predictor, times, full=10, cutoff=36)
    slots = np.arange(60)
    return float(
        np.mean(predictor.marginals(slots)[1] if isinstance(predictor, Forgetting) else predictor._moments()[1])
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", [Forgetting, Normal])
def test_cutting_off_every_round_leaves_the_belief_about_the_slow_right(kind: Any, seed: int, play: Play) -> None:
    assert learned_deviation(kind(0), play, seed) == pytest.approx(0.35, rel=0.15), f"seed {seed}"


@pytest.mark.parametrize("kind", [FastestOnly, AtTheBound, FastestOnlyNormal, AtTheBoundNormal])
def test_errors_that_make_rounds_look_faster_would_be_seen(kind: Any, play: Play) -> None:
    assert learned_deviation(kind(0), play, 0) < 0.75 * 0.35


# --- (c): the prediction of this round, not of the next ---


class FromTheNextRound(Forgetting):
    """Error (c): draws what is not known after it has learned from what is."""

    def _complete(self, seen: Observation) -> tuple[Slots, Times]:
        later = copy.deepcopy(self)
        later.__class__ = Forgetting  # type: ignore[assignment]
        later.observe(seen)
        return later._complete(seen)


class GenerativeFromTheNextRound(Generative):
    """Error (c) again: fills the row anew when the round is in the window."""

    def observe(self, seen: Observation) -> None:
        super().observe(seen)
        if self._ready:
            cut = seen.slots[seen.censored]
            self._window[-1][cut] = self._fill(cut, np.full(len(cut), seen.cutoff_time), self._window[-1])
            self._components = None


def ranks_of_draws(predictor: Forgetting, see: Any) -> np.ndarray:
    """Return where in the prediction made *before* the round the draws lie, from 0 to 1, over rounds that are slow."""
    rng, ranks = RNG(1), []
    for _ in range(5):
        predictor.observe(see(rng.normal(1.0, 0.2, 40), 40))
    for number in range(120):
        slow = number % 4 == 3
        seen = see((1.3 if slow else 1.0) * rng.normal(1.0, 0.2, 40).clip(0.1), 24)
        means, deviations = predictor.marginals(seen.slots[seen.censored])
        below = stats.norm.cdf(seen.cutoff_time, means, deviations)
        found = stats.norm.cdf(predictor._complete(seen)[1][seen.censored], means, deviations)
        near = below < 0.999  # farther out the ranks lose their digits
        ranks.append((found - below)[near] / (1 - below[near]) if slow else [])
        predictor.observe(seen)
    return np.concatenate(ranks)


def test_draws_come_from_what_was_predicted_for_this_round(see: Any) -> None:
    ranks = ranks_of_draws(Forgetting(0), see)
    assert len(ranks) > 300
    assert stats.kstest(ranks, "uniform").pvalue > 0.01


def test_draws_from_the_next_rounds_prediction_would_be_seen(see: Any) -> None:
    assert stats.kstest(ranks_of_draws(FromTheNextRound(0), see), "uniform").pvalue < 1e-4


def draws_by_round(predictor: Generative, monkeypatch: pytest.MonkeyPatch, see: Any) -> list[int]:
    """Return the seconds drawn, where 9 are predicted for rounds of an even number and 1 for the others."""

    def alternating(weights: Any, shape: Any, window: Any, samples: int, random: Any) -> tuple[Any, Any]:
        mean = 4.5 if predictor._round % 2 == 0 else 0.5  # in units of twice the mean, which is 1 s
        return np.full((samples, 6), mean, np.float32), np.full((samples, 6), 0.01, np.float32)

    monkeypatch.setattr("psplatform.policies.run_times.generative.predict", alternating)
    found = []
    for number in range(26):
        predictor.observe(see(np.ones(6), 6 if number < 20 else 4))
        found.append(round(float(np.mean(predictor._window[-1][4:]))))
    return found[20:]


def test_the_model_fills_a_round_with_what_it_predicted_for_it(
    small: Any, monkeypatch: pytest.MonkeyPatch, see: Any
) -> None:
    assert draws_by_round(Generative(6, 0, model=small), monkeypatch, see) == [9, 1] * 3


def test_a_model_that_fills_a_round_afterwards_would_be_seen(
    small: Any, monkeypatch: pytest.MonkeyPatch, see: Any
) -> None:
    assert draws_by_round(GenerativeFromTheNextRound(6, 0, model=small), monkeypatch, see) == [1, 9] * 3


# --- (d): what was drawn is kept ---


class DrawsAgain(Generative):
    """Error (d): fills the whole window anew in every round."""

    def observe(self, seen: Observation) -> None:
        super().observe(seen)
        for row in list(self._window)[:-1]:
            row[seen.slots[seen.censored]] *= 1.01


def rows_that_changed(predictor: Generative, cluster: Any, see: Any) -> int:
    """Return how many rows of the window are not what they were when they came in."""
    entered: list[np.ndarray] = []
    changed = 0
    for number, times in enumerate(cluster(6, rounds=40, nodes=(5, 1))):
        predictor.observe(see(times, 6 if number < 20 else 4))
        entered.append(predictor._window[-1].copy())
        kept = list(predictor._window)
        changed += sum(not np.array_equal(*pair) for pair in zip(kept, entered[-len(kept) :], strict=True))
    return changed


def test_what_was_drawn_for_a_worker_stays_in_the_window(small: Any, cluster: Any, see: Any) -> None:
    assert rows_that_changed(Generative(6, 0, model=small), cluster, see) == 0


def test_drawing_again_would_be_seen(small: Any, cluster: Any, see: Any) -> None:
    assert rows_that_changed(DrawsAgain(6, 0, model=small), cluster, see) > 0
