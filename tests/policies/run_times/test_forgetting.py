"""A mean and a variance per worker, followed through changes of speed and of roster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from psplatform.policies.run_times.forgetting import Forgetting
from psplatform.policies.run_times.predictor import Observation

Play = Callable[..., Any]


def full(times: list[float], slots: list[int] | None = None) -> Observation:
    """Return a round in which nobody was cut off."""
    chosen = slots if slots is not None else list(range(len(times)))
    return Observation(np.array(chosen), np.array(times), np.zeros(len(times), dtype=bool), max(times))


def after(*rounds: Observation) -> Forgetting:
    predictor = Forgetting(0)
    for one in rounds:
        predictor.observe(one)
    return predictor


def test_the_slow_one_is_told_from_the_fast() -> None:
    predictor = after(*[full([8.0] * 9 + [10.0])] * 3)
    assert predictor.choose(np.arange(10)).cutoff == 9
    assert predictor.marginals(np.arange(10))[0] == pytest.approx([8.0] * 9 + [10.0])


def test_a_worker_that_is_missing_is_not_taken_for_slow() -> None:
    here = full([1.0, 1.0, 1.0])
    predictor = after(here, here, *[full([1.0, 1.0], [0, 1])] * 20)
    assert predictor.choose(np.arange(3)).cutoff == 3


def test_a_worker_nothing_is_known_of_is_taken_for_the_average_one() -> None:
    predictor = after(*[full([1.0, 2.0, 3.0])] * 3)
    assert predictor.marginals(np.array([7]))[0] == pytest.approx([2.0])
    assert predictor.marginals(np.array([7]))[1] > predictor.marginals(np.array([0]))[1]


def test_another_process_in_a_slot_begins_as_the_average_one() -> None:
    predictor = after(*[full([1.0, 1.0, 1.0, 9.0])] * 5)
    assert predictor.choose(np.arange(4)).cutoff == 3
    predictor.welcome(3)
    assert predictor.choose(np.arange(4)).cutoff == 4


def test_a_disturbance_of_all_is_shared_at_once() -> None:
    """Two of three workers show that everything takes longer; the third is expected to, as well."""
    calm = full([1.0, 1.1, 0.9])
    predictor = after(*[calm] * 10, *[full([2.0, 2.2], [0, 1])] * 6)
    assert predictor.marginals(np.array([2]))[0] > 1.4


def test_workers_that_recover_are_waited_for_again(cluster: Any, play: Play, best: Any) -> None:
    times = cluster(7)
    game, ideal = play(Forgetting(0), times), best(times)
    assert game.cutoffs[20:61].max() <= 118
    assert game.throughput(86) > 0.95 * ideal.throughput(86)


def test_what_was_learned_goes_on_elsewhere(cluster: Any, play: Play) -> None:
    times = cluster(7, rounds=40)
    first, second = Forgetting(0), Forgetting(0)
    play(first, times[:20])
    second.restore(first.state())
    cutoffs = [play(one, times[20:], full=0).cutoffs.tolist() for one in (first, second)]
    assert cutoffs[0] == cutoffs[1]


def test_a_roster_may_be_empty_of_everybody_known() -> None:
    predictor = after(*[full([1.0, 2.0])] * 3)
    assert predictor.choose(np.array([5, 6, 9])).cutoff in {1, 2, 3}


def test_times_are_not_predicted_shorter_than_any_ever_was(play: Play) -> None:
    times = np.maximum(np.random.default_rng(1).normal(1.0, 0.5, (30, 100)), 0.5)
    assert play(Forgetting(0), times).cutoffs.min() > 50
