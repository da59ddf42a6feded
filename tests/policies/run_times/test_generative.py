"""The learned predictor on the paper's two regimes, and when workers come and go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
import pytest

from psplatform.policies.run_times.fitted_model import FittedModel
from psplatform.policies.run_times.generative import Generative
from psplatform.policies.run_times.normal import Normal
from psplatform.policies.run_times.predictor import Observation, Times
from psplatform.policies.run_times.state_space import Shape, first_weights
from psplatform.policies.run_times.training import fit

Play = Callable[..., Any]
SEED = 7
WARM = 20


@pytest.fixture(scope="module")
def games(fitted: FittedModel, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Play the two regimes with the model, the baseline, everybody and perfect foresight."""
    cluster, play, best = (request.getfixturevalue(name) for name in ("cluster", "play", "best"))
    times = cluster(SEED)
    return {
        "model": play(Generative(158, 0, model=fitted), times),
        "normal": play(Normal(0), times, full=WARM),
        "all": play(Normal(0), times, full=len(times)),
        "best": best(times),
        "times": times,
    }


def test_while_a_node_is_slow_all_its_workers_are_cut(games: dict[str, Any]) -> None:
    slow = games["times"][WARM:61, 118:]
    assert np.all(slow.min(axis=1) > games["model"].seconds[WARM:61])


def test_it_recovers_within_25_rounds_of_the_change(games: dict[str, Any]) -> None:
    """From round 86 on, it does as well as it does at the very end, and it takes from the recovered node."""
    model, ideal = games["model"], games["best"]
    for first in range(86, 151, 5):
        assert model.throughput(first, first + 10) > 0.93 * ideal.throughput(first, first + 10)
    assert model.cutoffs[86:].min() > 118


def test_after_recovery_its_throughput_is_near_that_of_perfect_foresight(games: dict[str, Any]) -> None:
    assert games["model"].throughput(86) >= 0.95 * games["best"].throughput(86)


def test_before_the_change_as_well(games: dict[str, Any]) -> None:
    assert games["model"].throughput(WARM, 61) >= 0.95 * games["best"].throughput(WARM, 61)


def test_it_does_better_than_one_normal_for_all_and_than_waiting_for_all(games: dict[str, Any]) -> None:
    model = games["model"].throughput(WARM)
    assert games["best"].throughput(WARM) >= model
    assert model > 1.1 * games["normal"].throughput(WARM)
    assert model > 1.2 * games["all"].throughput(WARM)
    assert games["model"].throughput(WARM, 61) > 1.5 * games["normal"].throughput(WARM, 61)


def test_cutoffs_do_not_depend_on_the_unit_of_time(small: FittedModel, cluster: Any, play: Play) -> None:
    times = cluster(4, rounds=60, nodes=(5, 1))
    cutoffs = [play(Generative(6, 0, model=small), one).cutoffs.tolist() for one in (times, 1024.0 * times)]
    assert cutoffs[0] == cutoffs[1]
    assert len(set(cutoffs[0])) > 1


def test_all_are_waited_for_when_all_always_take_the_same_time(play: Play) -> None:
    times = np.full((60, 4), 2.5)
    model = fit(times, steps=150, hidden=8, state=4)
    assert set(play(Generative(4, 0, model=model), times).cutoffs) == {4}


@pytest.mark.parametrize("seed", [0, 1])
def test_the_same_seed_chooses_the_same(small: FittedModel, cluster: Any, play: Play, seed: int) -> None:
    times = cluster(4, rounds=50, nodes=(5, 1))
    windows = []
    for chosen in (0, seed):
        predictor = Generative(6, chosen, model=small)
        play(predictor, times, cutoff=4)
        windows.append(np.array(predictor._window))
    assert np.array_equal(*windows) == (seed == 0)


def test_times_are_not_predicted_shorter_than_any_ever_was(
    small: FittedModel, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prediction so wide that its fastest would need no time at all must not make c = 1 look best."""

    def wide(weights: Any, shape: Shape, window: Any, samples: int, random: Any) -> tuple[Any, Any]:
        return np.full((samples, 6), 0.5, np.float32), np.full((samples, 6), 0.4, np.float32)

    monkeypatch.setattr("psplatform.policies.run_times.generative.predict", wide)
    predictor = Generative(6, 0, model=small)
    play(predictor, np.ones((WARM, 6)))
    assert predictor.choose(np.arange(6)).cutoff > 1


# --- workers that come and go ---


def warmed(small: FittedModel, cluster: Any, play: Play) -> tuple[Generative, Times]:
    predictor = Generative(6, 0, model=small)
    times = cluster(5, rounds=60, nodes=(5, 1), slow=[])
    play(predictor, times[:WARM])
    return predictor, times[WARM:]


def without(seen: Observation, slot: int) -> Observation:
    kept = seen.slots != slot
    return Observation(seen.slots[kept], seen.times[kept], seen.censored[kept], seen.cutoff_time)


def test_a_worker_that_is_missing_is_not_taken_for_slow(small: FittedModel, cluster: Any, play: Play, see: Any) -> None:
    """Its run times are drawn as predicted, without a bound, and those alive are chosen among."""
    predictor, times = warmed(small, cluster, play)
    for row in times:
        assert 1 <= predictor.choose(np.arange(5)).cutoff <= 5
        predictor.observe(without(see(row, 6), 5))
    window = np.array(predictor._window)
    assert np.mean(window[:, 5]) == pytest.approx(np.mean(window[:, :5]), rel=0.35)


def test_a_worker_without_a_column_makes_it_fall_back_and_say_so_once(
    small: FittedModel, cluster: Any, play: Play, see: Any
) -> None:
    predictor, times = warmed(small, cluster, play)
    reasons = []
    for slots in [range(7), range(7), range(6), range(7)]:
        choice = predictor.choose(np.array(slots))
        assert 1 <= choice.cutoff <= len(slots)
        reasons.append(choice.reason)
        predictor.observe(see(times[0], 6))
    said = "worker 6 has no column in the model of 6 workers; fit one for more"
    assert [said in one for one in reasons] == [True, False, False, True]
    assert reasons[2] == "as the generative model predicts"


def test_with_fewer_than_half_of_its_workers_it_falls_back(small: FittedModel, cluster: Any, play: Play) -> None:
    predictor, _ = warmed(small, cluster, play)
    assert "only 2 of the model's 6 workers are alive" in predictor.choose(np.arange(2)).reason
    assert predictor.choose(np.arange(3)).reason == "as the generative model predicts"


def test_before_its_first_window_is_full_it_falls_back(small: FittedModel, cluster: Any, play: Play) -> None:
    predictor = Generative(6, 0, model=small)
    game = play(predictor, cluster(5, rounds=30, nodes=(5, 1)), full=2)
    assert set(game.cutoffs[2:WARM]) <= set(range(1, 7))
    assert predictor.choose(np.arange(6)).reason == "as the generative model predicts"


def test_rounds_nobody_of_its_workers_took_part_in_teach_nothing(small: FittedModel) -> None:
    predictor = Generative(6, 0, model=small)
    strangers = Observation(np.array([8, 9]), np.array([1.0, 2.0]), np.zeros(2, dtype=bool), 2.0)
    predictor.observe(strangers)
    assert len(predictor._window) == 0
    assert predictor.choose(np.array([8, 9])).cutoff in {1, 2}


# --- what was learned goes on elsewhere ---


def test_with_a_fitted_model_a_restored_predictor_goes_on_bit_for_bit(
    small: FittedModel, cluster: Any, play: Play
) -> None:
    first, times = warmed(small, cluster, play)
    play(first, times[:15], full=0)
    second = Generative(6, 0, model=small)
    second.restore(msgpack.unpackb(msgpack.packb(first.state())))
    cutoffs = [play(one, times[15:], full=0).cutoffs.tolist() for one in (first, second)]
    assert cutoffs[0] == cutoffs[1]
    assert np.array_equal(np.array(first._window), np.array(second._window))


def test_without_a_model_it_learns_one_and_goes_on_with_it_elsewhere(cluster: Any, play: Play, best: Any) -> None:
    """Forty full rounds; then the slow worker is cut, here and in a predictor restored from what was learned."""
    times = cluster(5, rounds=90, nodes=(5, 1), slow=[(0, 90)])
    first = Generative(6, 0)
    game = play(first, times)
    assert set(game.cutoffs[:40]) == {6}
    assert game.cutoffs[40:].max() <= 5
    assert game.throughput(40) > 0.85 * best(times).throughput(40)
    second = Generative(6, 0)
    second.restore(msgpack.unpackb(msgpack.packb(first.state())))
    assert second.choose(np.arange(6)).cutoff <= 5
    assert play(second, times[:10], full=0).cutoffs.max() <= 5


def test_it_serves_two_thousand_workers(play: Play) -> None:
    """With weights nobody has fitted, so that only sizes are tried."""
    shape = Shape(2175)
    times = np.random.default_rng(0).gamma(9.0, 0.1, (24, 2175))
    untrained = FittedModel(shape, first_weights(shape, times / 2.0, np.random.default_rng(0)))
    predictor = Generative(2175, 0, model=untrained)
    cutoffs = play(predictor, times).cutoffs[20:]
    assert 1 <= cutoffs.min() <= cutoffs.max() <= 2175
    assert np.all(np.isfinite(np.array(predictor._window)))


def test_a_worker_that_hangs_for_hours_does_not_throw_the_model_off(
    small: FittedModel, cluster: Any, play: Play, see: Any
) -> None:
    predictor, times = warmed(small, cluster, play)
    stuck = times[0].copy()
    stuck[2] = 1e7
    predictor.observe(see(stuck, 6))
    assert np.all(np.isfinite(predictor._predictive()[0]))
    assert 1 <= predictor.choose(np.arange(6)).cutoff <= 6
