"""The table of round times T(h, k): the fit under both monotonicities, the filling of gaps, the window."""

from __future__ import annotations

import msgpack
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import nnls

from psplatform.policies.estimates.round_times import RoundTimes, fill_gaps, monotone_table

Table = NDArray[np.float64]
TABLES = 36


def random_table(rng: np.random.Generator, workers: int) -> tuple[Table, Table]:
    """Draw means without any order, and counts: every row has samples in its first cells, perhaps in none."""
    counts = np.zeros((workers, workers))
    for row in counts:
        filled = rng.integers(0, workers + 1)
        row[:filled] = rng.integers(1, 50, filled)
    counts[0, 0] += 1
    return rng.exponential(1.0, counts.shape) * (counts > 0), counts


def quadratic_program(means: Table, counts: Table) -> Table:
    """Solve the same problem by its dual: non-negative multipliers of *all* pairs that the order relates."""
    cells = [(int(h), int(k)) for h, k in np.argwhere(counts > 0)]
    pairs = [(a, b) for a in cells for b in cells if a != b and a[0] >= b[0] and a[1] <= b[1]]
    if not pairs:
        return means
    below = np.array([[(cell == a) - float(cell == b) for cell in cells] for a, b in pairs])
    weights, values = (np.array([table[cell] for cell in cells]) for table in (counts, means))
    multipliers, _ = nnls((below / np.sqrt(weights)).T, np.sqrt(weights) * values, maxiter=10_000)
    solution = means.copy()
    solution[tuple(np.transpose(cells))] = values - below.T @ multipliers / weights
    return solution


def settled(means: Table, counts: Table, forces: Table | None) -> tuple[Table, Table]:
    """Search until it ends by itself, as it does over several estimates."""
    for _ in range(20):
        table, forces = monotone_table(means, counts, forces)
    assert forces is not None
    return table, forces


@pytest.mark.parametrize("workers", [2, 4, 6])
def test_the_fit_solves_the_quadratic_program_from_a_cold_and_from_a_warm_start(workers: int) -> None:
    """The warm start comes from other means and fewer counts."""
    for seed in range(TABLES // 3):
        rng = np.random.default_rng(seed)
        means, counts = random_table(rng, workers)
        cold, forces = settled(means, counts, None)
        new_means = means * rng.uniform(0.3, 3.0, means.shape)
        new_counts = counts + (counts > 0) * rng.integers(0, 30, counts.shape)
        warm, _ = settled(new_means, new_counts, forces)
        again, _ = settled(new_means, new_counts, None)
        message = f"seed {seed}"
        np.testing.assert_allclose(cold, quadratic_program(means, counts), atol=2e-5, err_msg=message)
        np.testing.assert_allclose(warm, quadratic_program(new_means, new_counts), atol=2e-5, err_msg=message)
        np.testing.assert_allclose(warm, again, atol=2e-5, err_msg=message)


def test_one_search_is_enough_for_a_table_of_noisy_round_times() -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        counts = rng.integers(1, 100, (7, 7)).astype(float)
        truth = np.cumsum(1 / np.arange(7, 0, -1)) * np.linspace(1.5, 1.0, 7)[:, None]
        means = truth + rng.normal(0, 0.3, truth.shape) / np.sqrt(counts)
        table, _ = monotone_table(means, counts)
        np.testing.assert_allclose(table, quadratic_program(means, counts), rtol=1e-4, err_msg=f"seed {seed}")


def test_cells_that_contradict_each_other_meet_at_their_weighted_mean() -> None:
    means, counts = np.array([[2.0, 1.0], [9.0, 0.0]]), np.array([[1.0, 3.0], [0.0, 0.0]])
    table, _ = monotone_table(means, counts)
    assert table[0] == pytest.approx([1.25, 1.25])


def test_a_table_without_samples_asks_for_nothing() -> None:
    table, forces = monotone_table(np.zeros((2, 2)), np.zeros((2, 2)))
    assert not table.any()
    assert not forces.any()


def test_a_gap_takes_the_largest_time_that_the_order_puts_below_it() -> None:
    table = np.array([[1.0, 0.0, 0.0], [0.7, 0.9, 0.0], [0.5, 0.0, 0.0]])
    filled = fill_gaps(table, table > 0)
    assert filled.tolist() == [[1.0, 1.0, 1.0], [0.7, 0.9, 0.9], [0.5, 0.5, 0.5]]


def test_a_gap_with_nothing_below_takes_the_smallest_time_above_it_else_the_smallest_of_all() -> None:
    table = np.array([[1.0, 3.0, 0.0], [0.8, 2.0, 0.0], [0.0, 0.0, 0.0]])
    assert fill_gaps(table, table > 0)[2].tolist() == [0.8, 2.0, 0.8]


def test_a_table_without_samples_is_filled_with_one() -> None:
    assert fill_gaps(np.zeros((2, 2)), np.zeros((2, 2), dtype=bool)).tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_the_estimate_of_a_row_obeys_its_neighbours() -> None:
    """Rows of 1 and 2 contradict each other in the first cell: 1.0 and 2.0 with equal weights."""
    times = RoundTimes(workers=2)
    times.add(1, 1, 1.0)
    times.add(2, 1, 2.0)
    assert times.estimate(1) == pytest.approx([1.5, 1.5])
    assert times.estimate(2) == pytest.approx([1.5, 1.5])


def test_the_mean_of_each_cell_ignores_its_neighbours() -> None:
    times = RoundTimes(workers=2, estimator="means")
    times.add(1, 1, 1.0)
    times.add(2, 1, 2.0)
    assert (times.estimate(1), times.estimate(2)) == ([1.0, 2.0], [2.0, 2.0])


def test_ignoring_the_previous_round_takes_the_mean_over_all_of_them() -> None:
    times = RoundTimes(workers=3, estimator="ignore-previous")
    times.add(1, 1, 1.0)
    times.add(2, 1, 3.0)
    assert times.estimate(1) == times.estimate(3) == [2.0, 2.0, 2.0]


def test_only_the_newest_samples_of_a_cell_count() -> None:
    times, unlimited = RoundTimes(workers=1, window=3), RoundTimes(workers=1, window=None)
    for seconds in (100.0, 1.0, 2.0, 3.0):
        times.add(1, 1, seconds)
        unlimited.add(1, 1, seconds)
    assert times.estimate(1) == [2.0]
    assert unlimited.estimate(1) == [26.5]


def test_what_was_learned_can_be_written_down_and_goes_on_bit_for_bit() -> None:
    rng = np.random.default_rng(3)
    times = RoundTimes(workers=4, window=5)
    learn(times, rng, rounds=30)
    restored = RoundTimes(workers=4, window=5)
    restored.restore(msgpack.unpackb(msgpack.packb(times.state())))
    seed = int(rng.integers(1000))
    learn(times, np.random.default_rng(seed), rounds=20)
    learn(restored, np.random.default_rng(seed), rounds=20)
    assert [times.estimate(h) for h in range(1, 5)] == [restored.estimate(h) for h in range(1, 5)]


def learn(times: RoundTimes, rng: np.random.Generator, rounds: int) -> None:
    for _ in range(rounds):
        before, count = int(rng.integers(1, 5)), int(rng.integers(1, 5))
        for rank, seconds in enumerate(np.sort(rng.exponential(1.0, count)).tolist(), 1):
            times.add(before, rank, seconds)
        times.estimate(before)
