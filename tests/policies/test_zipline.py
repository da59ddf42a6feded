"""The barrier of least waiting: exact for ZipLine, mostly for the grid scans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest

from psplatform.bench.papers.zipline import ALGORITHMS, PUBLISHED_SECONDS, instance, one_by_one
from psplatform.policies.zipline import Barrier, Times, fullgridscan, gridscan, zipline

Search = Callable[[Sequence[Times]], Barrier]
SEED = 20
every_search = pytest.mark.parametrize("search", ALGORITHMS.values(), ids=ALGORITHMS)


def drawn(workers: int, lookahead: int, cases: int, *, whole: bool) -> np.ndarray:
    """Return ``float64[cases, workers, lookahead]``: increasing times; whole ones meet often."""
    rng = np.random.default_rng([SEED, workers, lookahead, whole])
    shape = (cases, workers, lookahead)
    steps = rng.integers(1, 5, shape).astype(float) if whole else rng.uniform(0.1, 5, shape)
    return np.cumsum(steps, axis=2)


def least_of_all_choices(cases: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Try every choice of one point per worker: the least spread of each case, and when the earliest such one ends."""
    _, workers, lookahead = cases.shape
    choices = np.array(list(product(range(lookahead), repeat=workers)))
    chosen = cases[:, np.arange(workers), choices]
    spreads, ends = np.ptp(chosen, axis=2), chosen.max(axis=2)
    least = spreads.min(axis=1)
    return least, np.where(spreads == least[:, None], ends, np.inf).min(axis=1)


def last_pushes(points: Sequence[Times], barrier: Barrier) -> list[float]:
    return [float(one[quota - 1]) for one, quota in zip(points, barrier.quotas, strict=True)]


@pytest.mark.parametrize("whole", [True, False], ids=["with ties", "without ties"])
@pytest.mark.parametrize(("workers", "lookahead"), [(1, 4), (2, 1), (2, 6), (3, 4), (4, 3), (5, 2)])
def test_zipline_finds_the_least_spread_of_all_choices_and_the_earliest_of_several(
    workers: int, lookahead: int, whole: bool
) -> None:
    cases = drawn(workers, lookahead, 400, whole=whole)
    least, earliest = least_of_all_choices(cases)
    found = [zipline(list(case)) for case in cases]
    assert [one.spread for one in found] == least.tolist(), f"seed {SEED}"
    assert [one.time for one in found] == earliest.tolist(), f"seed {SEED}"


def test_zipline_equals_the_search_point_after_point_to_the_tie() -> None:
    """The quotas too, on lists of different lengths with many simultaneous points."""
    rng = np.random.default_rng(SEED)
    for case in range(1500):
        points = [np.cumsum(rng.integers(1, 5, rng.integers(1, 9))).astype(float) for _ in range(rng.integers(1, 7))]
        found, wanted = zipline(points), one_by_one(points)
        assert (found.spread, found.time) == (wanted.spread, wanted.time), f"seed {SEED}, case {case}: {points}"
        assert found.quotas.tolist() == wanted.quotas.tolist(), f"seed {SEED}, case {case}: {points}"


@every_search
def test_the_quotas_name_one_push_per_worker_with_that_spread_and_that_end(search: Search) -> None:
    for seed in range(100):
        points = instance(6, 15, seed=seed, intervals_ms=(200, 1500))
        barrier = search(points)
        chosen = last_pushes(points, barrier)
        assert barrier.quotas.min() >= 1, f"seed {seed}"
        assert (max(chosen) - min(chosen), max(chosen)) == (barrier.spread, barrier.time), f"seed {seed}"


@every_search
def test_one_worker_waits_for_nobody_and_meets_itself_at_its_next_push(search: Search) -> None:
    barrier = search([np.array([3.0, 5.0, 9.0])])
    assert (barrier.quotas.tolist(), barrier.spread, barrier.time) == ([1], 0.0, 3.0)


@every_search
def test_identical_workers_meet_at_once_with_equal_quotas(search: Search) -> None:
    barrier = search([np.arange(1.0, 6.0)] * 4)
    assert (barrier.quotas.tolist(), barrier.spread, barrier.time) == ([1, 1, 1, 1], 0.0, 1.0)


@every_search
def test_intervals_of_two_and_three_seconds_meet_after_six(search: Search) -> None:
    barrier = search([np.arange(2.0, 11.0, 2.0), np.arange(3.0, 16.0, 3.0)])
    assert (barrier.quotas.tolist(), barrier.spread, barrier.time) == ([3, 2], 0.0, 6.0)


def test_of_simultaneous_points_those_of_the_earlier_workers_count_first() -> None:
    """Worker 1's second point is simultaneous with the end of the barrier, and behind it in the order."""
    barrier = zipline([np.array([2.0]), np.array([1.0, 2.0])])
    assert (barrier.quotas.tolist(), barrier.spread, barrier.time) == ([1, 2], 0.0, 2.0)
    barrier = zipline([np.array([1.0, 4.0]), np.array([4.0]), np.array([3.0, 4.0])])
    assert (barrier.quotas.tolist(), barrier.spread, barrier.time) == ([2, 1, 2], 0.0, 4.0)


def test_a_far_barrier_of_little_waiting_beats_a_near_one_of_more() -> None:
    barrier = zipline([np.array([1.0, 50.0]), np.array([1.2, 50.1])])
    assert barrier.quotas.tolist() == [2, 2]


def test_looking_further_ahead_never_costs_waiting() -> None:
    for seed in range(50):
        spreads = [zipline(instance(5, lookahead, seed=seed)).spread for lookahead in (1, 2, 5, 15, 40, 150)]
        assert spreads == sorted(spreads, reverse=True), f"seed {seed}"
        assert spreads[-1] < spreads[0], f"seed {seed}"


def test_the_grid_scans_never_beat_zipline_nor_gridscan_fullgridscan() -> None:
    for seed in range(200):
        points = instance(2 + seed % 9, 15, seed=seed, intervals_ms=(200, 1500))
        spreads = [search(points).spread for search in (zipline, fullgridscan, gridscan)]
        assert spreads == sorted(spreads), f"seed {seed}"


def test_among_widely_spread_intervals_gridscan_misses_many_best_barriers_and_fullgridscan_few() -> None:
    """About a quarter and about one in forty, over two to ten workers."""
    missed = {gridscan: 0, fullgridscan: 0}
    for seed in range(450):
        points = instance(2 + seed % 9, 15, seed=seed, intervals_ms=(200, 1500))
        least = zipline(points).spread
        for search in missed:
            missed[search] += search(points).spread > least
    assert 0.1 <= missed[gridscan] / 450 <= 0.4
    assert 0.001 <= missed[fullgridscan] / 450 <= 0.05


def test_among_intervals_within_a_fifth_from_a_common_start_the_grid_scans_find_the_best_barrier() -> None:
    rng = np.random.default_rng(SEED)
    for case in range(300):
        workers, lookahead = int(rng.integers(2, 6)), int(rng.integers(2, 31))
        points = [rng.integers(800, 1201) * np.arange(1.0, lookahead + 1) for _ in range(workers)]
        least = zipline(points).spread
        assert (gridscan(points).spread, fullgridscan(points).spread) == (least, least), f"seed {SEED}, case {case}"


# --- the instances that are measured ---


def test_an_instance_holds_increasing_pushes_at_constant_intervals_from_one_moment_on() -> None:
    for seed in range(20):
        points = instance(30, 15, seed=seed)
        steps = [np.diff(one) for one in points]
        assert all((one == one[0]).all() and 1000 <= one[0] <= 1500 for one in steps), f"seed {seed}"
        assert {len(one) for one in points} == {15}
        # Everybody's first predicted push comes within an interval of the moment of the decision.
        first = [one[0] for one in points]
        assert max(first) - min(first) <= 1500, f"seed {seed}"


def test_the_same_seed_draws_the_same_instance_and_another_seed_another() -> None:
    assert np.array_equal(instance(5, 4, seed=1), instance(5, 4, seed=1))
    assert not np.array_equal(instance(5, 4, seed=1), instance(5, 4, seed=2))


def test_every_algorithm_is_measured_at_the_six_published_sizes() -> None:
    assert PUBLISHED_SECONDS.keys() == ALGORITHMS.keys()
    sizes = {(workers, lookahead) for workers in (10, 100, 1000) for lookahead in (15, 150)}
    assert all(one.keys() == sizes for one in PUBLISHED_SECONDS.values())


def test_a_measured_row_says_whether_the_best_barrier_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the first two sizes only, which are quick; a search that takes everybody's first push is found out."""
    from psplatform.bench.papers import zipline as bench

    def first_pushes(points: Sequence[Times]) -> Barrier:
        first = [float(one[0]) for one in points]
        return Barrier(np.ones(len(points), np.int64), max(first) - min(first), max(first))

    sizes = {(10, 15): 1.0, (10, 150): 2.0}
    monkeypatch.setattr(bench, "PUBLISHED_SECONDS", {"zipline": sizes, "naive": sizes})
    monkeypatch.setattr(bench, "ALGORITHMS", {"zipline": zipline, "naive": first_pushes})
    reported: list[dict[str, object]] = []
    rows = bench.measure(reported.append)
    assert reported == rows
    assert [(one["algorithm"], one["lookahead"], one["exact"], one["published_seconds"]) for one in rows] == [
        ("zipline", 15, True, 1.0),
        ("zipline", 150, True, 2.0),
        ("naive", 15, False, 1.0),
        ("naive", 150, False, 2.0),
    ]
    assert all(one["workers"] == 10 and one["seconds"] > 0 for one in rows)
