"""The bounded measures of a run's picture."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psplatform.telemetry.measures import DROP_REASONS, EXACT_DELAYS, OTHER, Delays, Drops, Series, Tally, TimeSpent


@given(limit=st.integers(1, 10).map(lambda half: 2 * half), total=st.integers(0, 500))
def test_a_series_is_bounded_even_and_ends_with_the_newest(limit: int, total: int) -> None:
    """First and newest item are there, and the others are equally far apart, by less than what a full series needs."""
    series = Series[int](limit)
    for item in range(total):
        series.append(item)
    *evenly, newest = series.items or (-1,)
    assert len(series) == total
    assert len(series.items) <= limit + 1
    assert newest == total - 1
    stride = evenly[1] - evenly[0] if len(evenly) > 1 else 1
    assert evenly == list(range(0, stride * len(evenly), stride))
    assert stride <= max(1, 2 * total // limit)


def test_a_short_series_is_exact() -> None:
    """Nothing is dropped before the limit."""
    series = Series[int](8)
    for item in range(8):
        series.append(item)
    assert series.items == tuple(range(8))


def test_a_tally_of_nothing_has_mean_zero() -> None:
    """A picture can be shown before anything was measured."""
    assert Tally().to_plain() == {"mean": 0.0, "max": 0.0}


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_a_tally_knows_mean_and_largest(values: list[float]) -> None:
    """As if all values had been kept."""
    tally = Tally()
    for value in values:
        tally.add(value)
    assert tally.max == max(values)
    assert tally.mean == pytest.approx(sum(values) / len(values))


@given(st.lists(st.integers(0, 2**40), min_size=1))
def test_delays_are_counted_in_bounded_bins(delays: list[int]) -> None:
    """Every delay is counted once: exactly when small, else by the power of two at or below it."""
    measure = Delays()
    measure.add(delays)
    assert sum(measure.histogram.values()) == len(delays)
    assert measure.max == max(delays)
    for low in measure.histogram:
        assert low < EXACT_DELAYS or low & (low - 1) == 0
        assert any(low == delay or EXACT_DELAYS <= low <= delay < 2 * low for delay in delays)


def test_delays_are_told_in_order() -> None:
    """The histogram is sorted by staleness."""
    measure = Delays()
    measure.add([3, 0, 3])
    assert measure.to_plain() == {"mean": 2.0, "max": 3, "histogram": {0: 1, 3: 2}}
    assert list(measure.to_plain()["histogram"]) == [0, 3]


def test_drops_are_told_by_reason_most_frequent_first() -> None:
    """Counts by reason and by slot add up to the total."""
    drops = Drops()
    for reason, slot in [("stale", 1), ("lost", 0), ("stale", 0)]:
        drops.add(reason, slot)
    assert drops.to_plain() == {"total": 3, "by_reason": {"stale": 2, "lost": 1}, "by_slot": {0: 2, 1: 1}}
    assert list(drops.to_plain()["by_reason"]) == ["stale", "lost"]


def test_reasons_beyond_the_limit_are_counted_together() -> None:
    """A policy that puts figures into its reasons does not fill the memory."""
    drops = Drops()
    for number in range(10 * DROP_REASONS):
        drops.add(f"because of {number}", 0)
    drops.add("because of 0", 0)
    assert len(drops.by_reason) == DROP_REASONS + 1
    assert drops.by_reason[OTHER] == 9 * DROP_REASONS
    assert drops.by_reason["because of 0"] == 2


def test_the_waiting_fraction_is_a_share_of_all_time() -> None:
    """Waiting counts against computing, pulling and pushing, and is 0 before anything happened."""
    time = TimeSpent()
    assert time.waiting_fraction == 0.0
    time.add(compute_s=2.0, pull_s=0.5, push_s=0.5, wait_s=1.0)
    assert time.waiting_fraction == 0.25
