"""What a drill makes of a run's log and of looks at it, without a run."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from psplatform.bench import soak
from psplatform.bench.faults.aftermath import (
    Forgotten,
    bare_spans,
    beyond_bound,
    covered_s,
    failovers,
    forgotten,
    longest_pause_s,
    next_commit_s,
    shown_in_vain,
    spread,
    turned_back,
)
from psplatform.bench.faults.census import census, growth, held_by, segments_of
from psplatform.bench.faults.drill import Drill, Story
from psplatform.bench.faults.onlooker import Look, seconds_until, spans_of
from psplatform.bench.faults.weak_points import host_of, itself, roles_at, weak_points
from psplatform.errors import ConfigurationError
from psplatform.runtime.comms.calls import Peer
from psplatform.telemetry.log.segments import Position
from psplatform.telemetry.log.writer import EventLog
from psplatform.telemetry.read_model import RunView

MakeRecord = Callable[..., dict[str, Any]]


def commit(at: float, version: int, slot: int = 0) -> dict[str, Any]:
    return {
        "kind": "commit",
        "at": at,
        "version": version,
        "position": version,
        "slots": [slot],
        "sequences": [version],
    }


def applied(at: float, version: int) -> dict[str, Any]:
    return {"kind": "applied", "at": at, "version": version, "position": version}


COMMITS = [commit(at, number) for number, at in enumerate([1.0, 1.5, 4.0, 4.2])]


def test_the_next_commit_is_the_first_after_a_fault() -> None:
    assert next_commit_s(COMMITS, 1.5) == 2.5
    assert next_commit_s(COMMITS, 4.2) is None


def test_the_longest_pause_counts_from_the_fault_to_the_last_look() -> None:
    assert longest_pause_s(COMMITS, 1.6, 4.3) == pytest.approx(2.4)
    assert longest_pause_s(COMMITS, 3.9, 9.2) == pytest.approx(5.0)
    assert longest_pause_s([], 3.0, 4.0) == 1.0


def test_a_failover_is_timed_from_the_fault_to_its_first_commit(promoted: MakeRecord, taken_over: MakeRecord) -> None:
    resumed = {"kind": "resumed", "at": 2.2, "role": "server", "shard": 0, "epoch": 2, "first_commit_seconds": 0.3}
    log = [promoted(at=1.0, epoch=1), promoted(at=2.0, promoted_seconds=0.1), taken_over(at=2.1), resumed]
    server, coordinator = failovers(log, 1.5, 3.0)
    assert server["seconds"] == pytest.approx(2.0 - 0.1 + 0.3 - 1.5)
    assert (coordinator["role"], coordinator["seconds"]) == ("coordinator", None)


def test_a_loss_is_held_against_the_bound_in_its_unit(promoted: MakeRecord, taken_over: MakeRecord) -> None:
    of_norm = failovers([promoted(distance_lost=0.6, bound=0.5), promoted(epoch=3, distance_lost=0.5)], 0.0, 9.0)
    assert beyond_bound(of_norm) == ["0.6 norm of shard 0 were lost, more than 0.5"]
    of_updates = failovers([promoted(updates_lost=9, bound=8, unit="updates"), taken_over()], 0.0, 9.0)
    assert beyond_bound(of_updates) == ["9 updates of shard 0 were lost, more than 8"]


def test_a_run_is_bare_from_the_first_shard_without_a_replica_to_the_last_that_has_one() -> None:
    told = [(1.0, [0]), (2.0, [0, 1]), (3.0, [1]), (5.0, []), (8.0, [0])]
    log = [{"kind": "protection", "at": at, "shards": shards} for at, shards in told]
    spans = bare_spans(log, 9.0)
    assert spans == [(1.0, 5.0), (8.0, 9.0)]
    assert covered_s(spans, 4.0, 8.5) == 1.5


def test_a_version_that_does_not_grow_is_named() -> None:
    assert turned_back(COMMITS) == []
    assert turned_back([commit(1.0, 5), commit(2.0, 5)]) == ["2.0 s: version 5 was committed after version 5"]


def test_what_a_replaced_coordinator_showed_is_forgotten_unless_its_successor_has_the_same(tmp_path: Path) -> None:
    store = str(tmp_path)
    with EventLog(store, 1) as log:
        for record in [commit(1.0, 1), applied(1.0, 1), commit(2.0, 2)]:
            log.append(record)
        log.flush()
        for record in [applied(2.1, 2), commit(3.0, 3), applied(3.0, 3), commit(4.0, 4), commit(5.0, 5)]:
            log.append(record)
    with EventLog(store, 2, after=Position(1, 1)) as log:
        for record in [commit(3.1, 3, slot=1), applied(3.2, 3)]:
            log.append(record)
    assert forgotten(store) == [Forgotten(term=1, first=3, last=3, versions=1)]


def test_percentiles_of_one_value_are_that_value() -> None:
    assert spread([2.0]) == {"p50": 2.0, "p95": 2.0, "max": 2.0}
    assert spread([]) == {"p50": None, "p95": None, "max": None}
    assert spread([float(one) for one in range(101)]) == {"p50": 50.0, "p95": 95.0, "max": 100.0}


A, B, C = "tcp://10.0.0.1:1", "tcp://10.0.0.1:2", "tcp://10.0.0.2:1"


def standing(server: str, replica: str, *, lead: str = A, in_sync: bool = True) -> dict[str, Any]:
    copies = {"server-0": (0, Peer(server, "s")), "replica-0-0": (0, Peer(replica, "r"))}
    shards = [{"server": "server-0", "epoch": 1, "in_sync": ("replica-0-0",) * in_sync, "promoting": None}]
    return {"copies": copies, "shards": shards, "lead": Peer(lead, "c"), "stands_by": True}


def test_a_run_whose_roles_share_a_host_can_lose_a_process_but_no_host() -> None:
    shown, roles = standing(A, B), {"standby": B}
    assert weak_points(shown, roles, itself) == []
    assert weak_points(shown, roles, host_of) == [
        "server and replica of shard 0 share 10.0.0.1",
        "coordinator and standby share 10.0.0.1",
    ]
    assert weak_points(standing(A, C), {"standby": C}, host_of) == []


def test_a_run_without_a_replica_in_sync_or_a_standby_can_lose_nothing() -> None:
    assert weak_points(standing(A, C, in_sync=False), {}, itself) == [
        "shard 0 has no replica in sync",
        "the coordinator has no standby",
    ]


def test_the_roles_of_a_place_are_told_by_kind() -> None:
    roles = {"server-0": A, "replica-0-0": C, "coordinator": A, "standby": C, "worker-0-1": A, "worker-1-1": B}
    assert roles_at(standing(A, C), roles, host_of, "10.0.0.1") == ["coordinator", "server 0", "2 workers"]
    assert roles_at(standing(A, C), roles, itself, C) == ["replica 0", "standby"]


def look(at: float, *, safe: bool, spread: bool = True) -> Look:
    return Look(at - 0.25, at, "running", [""] * (not safe), [""] * (not spread), {"term": 1})


def test_a_run_is_safe_again_when_it_stays_so() -> None:
    looks = [look(1.0, safe=True), look(2.0, safe=False), look(3.0, safe=True), look(4.0, safe=False)]
    assert spans_of(looks, 6.0, of_hosts=False) == [(1.75, 3.0), (3.75, 6.0)]
    assert seconds_until(looks, 0.5, of_hosts=False) is None
    assert seconds_until([*looks, look(5.0, safe=True)], 0.5, of_hosts=False) == 4.5
    assert seconds_until(looks, 0.5, of_hosts=True) == 0.0
    assert seconds_until([], 0.5, of_hosts=True) is None


def test_a_run_that_nobody_can_ask_is_not_safe() -> None:
    assert not Look(0.0, 1.0, "unknown", [], []).is_safe
    assert not Look(0.0, 1.0, "unknown", [], []).is_spread


def test_the_log_may_be_shorter_right_after_a_takeover_and_at_no_other_time() -> None:
    nothing: Any = None
    drill = Drill(nothing, nothing, Path(), hosts=host_of, settle_s=1.0, spread_s=0.0)
    story = Story("somewhere")
    drill.stories.append(story)
    before, after = RunView(), RunView()
    drill._shown = before, 0
    for view, version in [(before, 11), (after, 9), (after, 12)]:
        drill._compare(view, version)
    assert (story.retold, story.back) == (2, [])
    drill._compare(after, 11)
    assert story.back == ["the log showed version 12, and later 11"]


def test_what_grows_by_a_sixth_is_not_flat() -> None:
    series = [{"server pss_mib": 200.0 + 2 * number, "scheduler tasks": 40.0 + number % 5} for number in range(30)]
    found = growth(series)
    assert (found["server pss_mib"]["flat"], found["scheduler tasks"]["flat"]) == (False, True)
    assert found["server pss_mib"]["max"] == 258.0
    assert math.isclose(found["server pss_mib"]["last"] - found["server pss_mib"]["first"], 40.0)


def test_a_census_has_the_memory_of_the_largest_of_each_role_and_the_files_of_all(tmp_path: Path) -> None:
    import os

    (tmp_path / "psplatform-digits-1-slab").write_bytes(b"x" * 2**20)
    shared = segments_of("digits-1", [tmp_path])
    assert shared == {"segments": 1.0, "segments_mib": 1.0}
    assert held_by(2**22 + 1) == {}, "no process has that number"
    found = census({"server 0": os.getpid(), "server 1": 2**22 + 1}, {"tasks": 3.0}, shared, [os.getpid(), 2**22 + 1])
    assert found["scheduler tasks"] == 3.0
    assert found["server pss_mib"] > 1
    assert found["processes files"] >= 3
    both = census({"server 0": os.getpid(), "server 1": os.getpid()}, {}, {}, [os.getpid(), os.getpid()])
    assert both["server pss_mib"] < 1.5 * found["server pss_mib"], "the largest, not the sum"
    assert both["processes files"] == 2 * found["processes files"], "the sum, not the largest"
    assert "processes files" not in census({}, {}, {})


def test_a_soak_refuses_a_kind_of_fault_that_it_does_not_know() -> None:
    with pytest.raises(ConfigurationError, match="not 'flood'"):
        soak.measure(kinds=("kill", "flood"))


def lost(role: str, epoch: int, updates_lost: int = 0, unit: str = "updates", shard: int = 0) -> dict[str, Any]:
    return {"role": role, "shard": shard, "epoch": epoch, "updates_lost": updates_lost, "bound": 8, "unit": unit}


def test_versions_are_shown_in_vain_where_a_server_that_lives_has_shown_them() -> None:
    found = [{"term": 2, "first": 7, "last": 7, "versions": 1}]
    faults = [[lost("coordinator", 2), lost("server", 2)], [lost("coordinator", 5)]]
    assert shown_in_vain(found, faults, 1) == [
        "1 versions from 7 on were shown in vain, of which servers may have taken 0 with them"
    ]


def test_servers_that_are_lost_with_their_coordinator_take_no_more_with_them_than_their_bounds() -> None:
    found = [{"term": 2, "first": 7, "last": 11, "versions": 5}]
    lead, first = lost("coordinator", 5), lost("server", 2, 1)
    assert shown_in_vain(found, [[lead, first, lost("server", 4, 3, shard=1)]], 2) == []
    assert len(shown_in_vain(found, [[lead, first, lost("server", 4, 4, shard=1)]], 2)) == 1
    assert shown_in_vain(found, [[lead, lost("server", 2, 9, "norm")]], 1) == []
    assert len(shown_in_vain(found, [[lead, first]], 2)) == 1, "the other shard's server lives"


def test_versions_of_a_coordinator_that_nobody_has_replaced_are_shown_in_vain() -> None:
    assert len(shown_in_vain([{"term": 6, "first": 7, "last": 7, "versions": 1}], [[lost("coordinator", 5)]], 1)) == 1
