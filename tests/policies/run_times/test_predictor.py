"""From predicted run times to a cutoff."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from psplatform.policies.run_times.forgetting import Forgetting
from psplatform.policies.run_times.normal import Normal
from psplatform.policies.run_times.oracle import Oracle
from psplatform.policies.run_times.predictor import (
    MEAN_OF_RATIOS,
    Predictor,
    Stream,
    best_cutoff,
    cutoff_of_samples,
    random_stream,
)
from psplatform.policies.run_times.static import Static
from psplatform.policies.run_times.training import fit

Play = Callable[..., Any]


@pytest.mark.parametrize("seed", range(50))
def test_the_best_cutoff_is_that_of_trying_all(seed: int) -> None:
    times = np.sort(np.random.default_rng(seed).gamma(2.0, 1.0, size=1 + seed))
    rates = [count / times[count - 1] for count in range(1, len(times) + 1)]
    assert best_cutoff(times) == 1 + int(np.argmax(rates)), f"seed {seed}"


def test_of_cutoffs_that_are_equally_good_the_largest_is_taken() -> None:
    assert best_cutoff(np.array([1.0, 2.0, 3.0])) == 3


def test_dropping_the_slowest_of_some_at_8_s_and_one_at_10_s_saves_a_fifth() -> None:
    times = np.array([8.0] * 9 + [10.0])
    assert best_cutoff(times) == 9
    assert 1 - times[8] / times[9] == pytest.approx(0.2)


def test_a_floor_keeps_an_impossibly_fast_worker_from_deciding() -> None:
    times = np.array([0.001, 1.0, 1.1, 1.2])
    assert best_cutoff(times) == 1
    assert best_cutoff(times, floor=0.9) == 4


def test_times_of_nothing_are_waited_for() -> None:
    assert best_cutoff(np.zeros(3)) == 3


def test_smaller_cutoffs_than_the_least_are_not_considered() -> None:
    assert best_cutoff(np.array([0.1, 10.0, 14.0, 15.0])) == 1
    assert best_cutoff(np.array([0.1, 10.0, 14.0, 15.0]), least=2) == 4
    assert best_cutoff(np.array([0.1, 1.0, 14.0, 15.0]), least=2) == 2


def test_the_two_scores_differ_where_the_times_of_a_rank_vary() -> None:
    """A last worker that is late half the time: the mean of the rates forgives it, the rate of the mean does not."""
    samples = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 3.0]])
    assert cutoff_of_samples(samples, floor=0.0) == 2
    assert cutoff_of_samples(np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 2.6]]), floor=0.0, score=MEAN_OF_RATIOS) == 3
    assert cutoff_of_samples(np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 2.6]]), floor=0.0) == 2


def test_the_oracle_waits_for_as_many_as_trying_all_says(cluster: Any, play: Play, best: Any) -> None:
    times = cluster(3, rounds=40)
    game = play(Oracle(lambda number, slots: times[number, slots]), times)
    assert game.cutoffs.tolist() == best(times).cutoffs.tolist()


def test_a_static_cutoff_is_kept_unless_fewer_are_alive() -> None:
    assert Static(3).choose(np.arange(5)).cutoff == 3
    assert Static(3).choose(np.arange(2)).cutoff == 2


PREDICTORS: dict[str, Callable[[np.ndarray], Predictor]] = {
    "forgetting": lambda times: Forgetting(0),
    "normal": lambda times: Normal(0),
    "oracle": lambda times: Oracle(lambda number, slots: times[number, slots]),
}
every_predictor = pytest.mark.parametrize("name", PREDICTORS)


@every_predictor
def test_all_are_waited_for_when_all_always_take_the_same_time(name: str, play: Play) -> None:
    times = np.full((12, 7), 3.7)
    assert set(play(PREDICTORS[name](times), times).cutoffs) == {7}


@every_predictor
def test_cutoffs_do_not_depend_on_the_unit_of_time(name: str, cluster: Any, play: Play) -> None:
    # A power of two, so that rounding is the same.
    times = cluster(4, rounds=60)
    cutoffs = [play(PREDICTORS[name](one), one).cutoffs.tolist() for one in (times, 1024.0 * times)]
    assert cutoffs[0] == cutoffs[1]
    assert len(set(cutoffs[0])) > 2


def test_a_model_fitted_in_another_unit_of_time_chooses_the_same(cluster: Any, same: Any) -> None:
    times = cluster(4, rounds=60, nodes=(4, 2))
    assert same(fit(times, steps=5), fit(1024.0 * times, steps=5))


def test_random_streams_are_told_apart_by_seed_purpose_and_round() -> None:
    keys = [(0, Stream.SAMPLES, 0), (1, Stream.SAMPLES, 0), (0, Stream.IMPUTATION, 0), (0, Stream.SAMPLES, 1)]
    drawn = [random_stream(*key).random() for key in keys]
    assert len(set(drawn)) == len(keys)
    assert drawn == [random_stream(*key).random() for key in keys]
