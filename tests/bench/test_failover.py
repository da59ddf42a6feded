"""``bench failover``: a server is killed, another stopped, and what is promised is looked at from beside."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import pytest

from psplatform.bench import failover
from psplatform.bench.clusters.fault_target import FaultTarget
from psplatform.core.plan import Stop
from psplatform.jobs.replication import Bounded

STEP: Final = 1.6
"""About the norm of an update of so many parameters."""


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """Measure one kill of a server that is the coordinator's process as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failover, "CONFIGURATIONS", (("asp", 1),))
        patch.setattr(failover, "_PAUSE_S", 0.2)
        patch.setattr(failover, "mean_step", lambda job: STEP)
        return failover.measure(parameters=5000, kills=1, stops=0)


def test_nothing_that_was_promised_is_broken(found: dict[str, Any]) -> None:
    assert found["violations"] == 0
    assert [row["violations"] for row in found["rows"]] == [[]]


def test_a_kill_is_timed_until_the_first_commit(found: dict[str, Any]) -> None:
    (row,) = found["rows"]
    assert row["coordinator_too"]
    assert 0 < row["promoted_seconds"] <= row["seconds"]
    assert found["kills"] == 1
    assert found["seconds"] == {"p50": row["seconds"], "p95": row["seconds"], "max": row["seconds"]}


def test_a_kill_is_timed_until_the_run_is_protected_again(found: dict[str, Any]) -> None:
    (row,) = found["rows"]
    seconds = row["protected_again_seconds"]
    assert row["promoted_seconds"] < seconds, "a promoted replica has yet to get one of its own"
    assert found["protected_again"] == {"p50": seconds, "p95": seconds, "max": seconds}
    assert found["sigstop"] == {
        "stops": 0,
        **{name: dict.fromkeys(("p50", "p95", "max")) for name in ("seconds", "protected_again")},
    }


def test_the_distance_lost_is_within_the_bound(found: dict[str, Any]) -> None:
    (row,) = found["rows"]
    assert found["bound"] == found["bounds"]["asp"] == row["bound"] == 5 * STEP
    assert 0 <= row["estimate"] <= row["bound"]
    assert row["distance_lost"] is None or 0 <= row["distance_lost"] <= row["estimate"]
    assert found["checked"]["of"] == 1


def test_a_server_keeps_in_its_segment_how_far_its_replica_is_behind(until: Callable[..., None]) -> None:
    never = Bounded(max_divergence=10**6, unit="updates")
    job = failover._job("asp", 1, 5000, never, Stop(updates=10**9), 0)
    with FaultTarget(job, failover.WORKERS + 3) as fault_target:
        standing = fault_target.whole()
        (one,) = standing["shards"]
        server, replica = (
            fault_target.look(standing["copies"][name][1], 0) for name in (one["server"], one["in_sync"][0])
        )
        until(lambda: server.version > 0, "the server shows a commit")
        before, version = server.divergence, server.version
        until(lambda: server.version > version + 1, "it shows two more")
        assert 0 < before < server.divergence < math.inf
        assert replica.divergence == math.inf, "it has no replicas of its own"
        fault_target.run.stop()


def test_published_figures_of_rivals_say_that_they_are(found: dict[str, Any]) -> None:
    assert all(rival["published"] and rival["source"] for rival in found["rivals"].values())
