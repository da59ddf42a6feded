"""What MLfabric's authors print, simulated: here in runs too short to compare with."""

from __future__ import annotations

from typing import Any

import pytest

from psplatform.bench.papers import fabric_tables
from psplatform.bench.papers.fabric import (
    ASP,
    DELAY_BOUND,
    ONE_IN_FIVE,
    RING,
    SUMMED,
    SYSTEMS,
    TRANSFER_S,
    WARM_UP,
    Figures,
    Played,
    Setting,
)
from psplatform.bench.papers.fabric_tables import LONG, TABLE_2, measure
from psplatform.simulation.run_times import seconds_of

SECONDS = 10.0


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return measure(
        parts=["table2", "dropped", "lag"], compute=("C1", "C2"), networks=("N1", "N3"), seconds=SECONDS, seeds=(1,)
    )


def test_a_slow_gradient_takes_its_factor_and_others_fifty_transfers() -> None:
    run_times = Setting("C2", "N1", 1, LONG).run_times
    taken = {round(seconds_of(run_times, slot, number), 9) for slot in range(30) for number in range(1, 11)}
    assert taken == {50 * 0.08, 4 * 50 * 0.08}
    assert TRANSFER_S == 100e6 / 1.25e9 == 0.08


def test_table_2_stands_beside_the_printed_one_with_what_it_rests_on(found: dict[str, Any]) -> None:
    assert list(found) == ["assumptions", "table2", "dropped", "lag"]
    assert found["assumptions"]["compute_in_transfers"] == 50
    assert found["assumptions"]["measured"] == "the last 80% of 1 runs of 50 virtual seconds"
    for one in found["table2"]:
        assert one["paper"] == TABLE_2[one["compute"], one["network"]]
        assert one["ours"] == one["ring_s"] / one["ours_s"] == one["low"] == one["high"]
        assert one["asp"] == one["ring_s"] / one["asp_s"]
        assert one["applied"] == pytest.approx(one["ours"] * (1 - one["dropped"]))


def test_where_computing_takes_long_nobody_waits_for_stragglers_as_a_ring_does(found: dict[str, Any]) -> None:
    ours = {(one["compute"], one["network"]): one["ours"] for one in found["table2"]}
    assert len(ours) == 4
    assert all(ratio > 1 for ratio in ours.values())
    for network in ("N1", "N3"):
        assert ours["C2", network] > ours["C1", network]
    for compute in ("C1", "C2"):
        assert ours[compute, "N1"] > ours[compute, "N3"]


def test_sums_are_worth_something_where_interfaces_are_slow(found: dict[str, Any]) -> None:
    slow = [one for one in found["table2"] if one["network"] == "N3"]
    assert all(one["ours"] > one["asp"] and one["aggregation"] > 1 for one in slow)


def test_a_larger_bound_drops_no_more_and_is_not_reached(found: dict[str, Any]) -> None:
    for transfers in (1.25, LONG):
        rows = [one for one in found["dropped"] if one["compute_in_transfers"] == transfers]
        assert [(one["bound"], one["paper"]) for one in rows] == [(DELAY_BOUND, 0.3), (45, None), (60, None)]
        assert rows[0]["dropped"] >= rows[1]["dropped"] >= rows[2]["dropped"]
        assert rows[0]["dropped"] > rows[2]["dropped"]
        assert rows[2]["staleness_max"] > DELAY_BOUND
        for one in rows:
            assert one["dropped"] == one["late"] + one["not_sent"]
            assert 0 < one["staleness_max"] < one["bound"]


def test_what_monitors_tell_late_costs_time(found: dict[str, Any]) -> None:
    rows = found["lag"]
    where = [(one["compute_in_transfers"], one["network"]) for one in rows[::2]]
    assert where == [(1.25, "N2"), (1.25, ONE_IN_FIVE), (LONG, "N2"), (LONG, ONE_IN_FIVE)]
    for prompt, late in zip(rows[::2], rows[1::2], strict=True):
        assert (prompt["lag_s"], late["lag_s"]) == (0.2, 2.0)
        assert prompt["slower"] == 0
        assert late["slower"] == late["seconds_per_30"] / prompt["seconds_per_30"] - 1 != 0


def test_what_is_dropped_counts_as_computed_and_the_warm_up_does_not() -> None:
    played = SUMMED(Setting("C1", "N1", 1, LONG), 50.0)
    for one in (played.whole, played.later):
        assert one.applied_s * (1 - one.late - one.not_sent) == pytest.approx(one.computed_s)
        assert one.not_sent > 0
    computed = 30 * 50.0 / played.whole.computed_s
    assert computed * (1 - WARM_UP) < 30 * 50.0 * (1 - WARM_UP) / played.later.computed_s, (
        "nothing comes in the first 4 s"
    )


def test_runs_of_the_same_setting_are_simulated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Setting] = []
    make = Setting.make_network

    def counted(one: Setting) -> Any:
        made.append(one)
        return make(one)

    monkeypatch.setattr(Setting, "make_network", counted)
    runs = fabric_tables._Runs(SECONDS, (1, 2))
    first = runs.of(ASP, "C1", "N1")
    count = len(made)
    assert count >= 2
    assert runs.of(ASP, "C1", "N1") == first
    assert len(made) == count
    assert runs.of(ASP, "C1", "N1", LONG) != first


def test_a_ring_has_nothing_to_warm_up() -> None:
    played = RING(Setting("C1", "N1", 1, LONG), 50.0)
    assert played.whole == played.later == Figures(played.whole.applied_s, played.whole.applied_s)


def test_every_row_is_reported_in_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fabric_tables._Runs, "of", lambda *_: [Played(Figures(1.0, 1.0), Figures(1.0, 1.0))])
    told: list[dict[str, Any]] = []
    tables = measure(told.append, seeds=(1,))
    assert told == [row for part in fabric_tables.PARTS for row in tables[part]]
    assert [len(tables[part]) for part in fabric_tables.PARTS] == [9 * len(SYSTEMS), 9, 6, 8]


def test_processes_that_share_the_runs_find_the_same() -> None:
    asked = {"parts": ["results"], "compute": ("C1",), "networks": ("N1",), "seconds": 10.0, "seeds": (1, 2)}
    assert measure(**asked, processes=2) == measure(**asked)
