"""All-reduce beside asynchronous runs on networks whose rates change."""

from __future__ import annotations

from typing import Any

import pytest

from psplatform.bench.papers.fabric import DELAY_BOUND, MEMBERS, MODEL_BYTES, PER_HOST, SYSTEMS, WORKERS, Setting
from psplatform.bench.papers.fabric_tables import measure
from psplatform.simulation.world import SimulatedWorld

SECONDS = 10.0


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    found = measure(parts=["results"], compute=("C1", "C2"), networks=("N1", "N3"), seconds=SECONDS, seeds=(1,))
    assert list(found) == ["results"]
    return list(found["results"])


def of(rows: list[dict[str, Any]], **wanted: str) -> dict[str, Any]:
    (row,) = [one for one in rows if wanted.items() <= one.items()]
    return row


def test_every_system_is_measured_in_every_setting(rows: list[dict[str, Any]]) -> None:
    assert len(rows) == 4 * len(SYSTEMS)
    assert all(0 < one["low"] <= one["seconds_per_30"] <= one["high"] < SECONDS for one in rows)
    for one in rows:
        ring = of(rows, compute=one["compute"], network=one["network"], system="ring")
        assert one["ratio_to_ring"] == ring["seconds_per_30"] / one["seconds_per_30"]


def test_the_bound_holds_and_where_nothing_bounds_it_staleness_is_larger(rows: list[dict[str, Any]]) -> None:
    bounded = [one["staleness_max"] for one in rows if one["system"].startswith("delay-bounded")]
    assert max(bounded) < DELAY_BOUND
    assert of(rows, compute="C1", network="N3", system="asp")["staleness_max"] >= DELAY_BOUND


def test_a_server_that_takes_one_gradient_per_transfer_is_slower_than_a_ring(rows: list[dict[str, Any]]) -> None:
    """At 10 Gb/s 30 transfers of 80 ms take 2.4 s, however fast gradients are."""
    asynchronous = [one for one in rows if one["system"] not in ("ring", "tree") and "summed" not in one["system"]]
    assert all(one["seconds_per_30"] >= 30 * MODEL_BYTES / 1.25e9 for one in asynchronous)
    assert all(one["ratio_to_ring"] < 1 for one in asynchronous)
    assert {one["aggregation"] for one in asynchronous} == {1.0}


@pytest.mark.parametrize(("system", "least"), [("asp", 1.7), ("delay-bounded", 1.5), ("bsp", 1.3)])
def test_sums_on_the_way_make_a_run_faster_that_waits_for_its_server(
    rows: list[dict[str, Any]], system: str, least: float
) -> None:
    plain, summed = (of(rows, compute="C1", network="N1", system=f"{system}{name}") for name in ("", ", summed"))
    assert plain["seconds_per_30"] > least * summed["seconds_per_30"]
    assert summed["aggregation"] > 1.5
    assert summed["ratio_to_ring"] < 1, "a ring is faster all the same"


def test_a_ring_takes_its_slowest_gradient_and_its_transfers(rows: list[dict[str, Any]]) -> None:
    """Of 15 hosts each interface carries 28 fifteenths of the model: 149 ms where none is slow."""
    hosts = WORKERS // PER_HOST
    least = 2 * (hosts - 1) / hosts * MODEL_BYTES / 1.25e9
    found = of(rows, compute="C2", network="N1", system="ring")["seconds_per_30"]
    assert least + 0.1 < found <= 2 * least + 0.4 + 1e-9, "with an interface at 5 Gb/s in every round, and a straggler"
    assert found > of(rows, compute="C1", network="N1", system="ring")["seconds_per_30"]


def test_a_binary_tree_takes_twice_its_levels_times_two_transfers(rows: list[dict[str, Any]]) -> None:
    """15 hosts are four levels: three steps up and three down, in each a parent's interface carries two models."""
    least = 2 * 3 * 2 * MODEL_BYTES / 1.25e9
    for compute in ("C1", "C2"):
        assert least + 0.1 < of(rows, compute=compute, network="N1", system="tree")["seconds_per_30"] < 2 * least + 0.4


def test_planned_transfers_drop_where_gradients_lie_what_is_dropped_at_the_server_else(
    rows: list[dict[str, Any]],
) -> None:
    where = {"compute": "C2", "network": "N1"}
    planned, plain = (of(rows, **where, system=f"delay-bounded{name}") for name in (", planned", ""))
    assert planned["not_sent"] > 0 == plain["not_sent"]
    assert planned["late"] < plain["late"]


def test_all_systems_of_a_setting_meet_the_same_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever order members are met in: of every host that any run has sent from or to."""
    setting, worlds = Setting("C1", "N3", 7), list[SimulatedWorld]()
    make = Setting.make_world

    def kept(one: Setting) -> SimulatedWorld:
        worlds.append(make(one))
        return worlds[-1]

    monkeypatch.setattr(Setting, "make_world", kept)
    for play in SYSTEMS.values():
        play(setting, SECONDS)
    names = list(SYSTEMS)
    ring, asp, planned = (worlds[names.index(name)] for name in ("ring", "asp", "delay-bounded, summed"))
    hosts = list(dict.fromkeys(map(ring.host_of, MEMBERS)))
    assert len(hosts) == WORKERS / PER_HOST
    for other in (asp, planned):
        assert other.network is not None
        assert {host for host, _ in other.network._directions} == {*hosts, "server 0"}
        assert [other.host_of(name) for name in MEMBERS] == [ring.host_of(name) for name in MEMBERS]
        for key, way in other.network._directions.items():
            same = setting.make_network()._direction(key[0], 0.0, outward=key[1])
            assert [way.rate(period) for period in range(50)] == [same.rate(period) for period in range(50)]
