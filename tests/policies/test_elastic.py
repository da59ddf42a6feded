"""Asynchronous from barrier to barrier, each barrier where the workers wait least."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from psplatform.bench.papers.zipline import one_by_one
from psplatform.core.policy import Policy
from psplatform.errors import ConfigurationError
from psplatform.memory import MemoryRun
from psplatform.policies.asp import Asynchronous
from psplatform.policies.bsp import BulkSynchronous
from psplatform.policies.elastic import SOLVERS, ElasticBulkSynchronous, plan, predicted_pushes

Race = Callable[..., MemoryRun]
Records = list[dict[str, Any]]
INTERVALS = [1.0, 1.17, 1.29, 1.43]


def barriers(run: MemoryRun) -> Records:
    """Return the commits that merged last pushes."""
    return [one for one in run.of_kind("commit") if "at the barrier" in one["reason"]]


def supersteps(run: MemoryRun) -> list[Records]:
    """Return the gradients of each superstep that came to its barrier."""
    ends = [-1.0, *(one["at"] for one in barriers(run))]
    return [[one for one in run.of_kind("gradient") if a < one["at"] <= b] for a, b in pairwise(ends)]


def pushes(superstep: Records) -> Counter[int]:
    return Counter(one["slot"] for one in superstep)


def waiting(run: MemoryRun) -> float:
    return sum(one["wait_s"] for one in run.of_kind("gradient"))


def after_so_many_gradients(run: MemoryRun, gradients: int) -> float:
    """Return the time at which that many gradients were applied."""
    applied = 0
    for commit in run.of_kind("commit"):
        applied += len(commit["slots"])
        if applied >= gradients:
            return float(commit["at"])
    raise AssertionError(f"only {applied} gradients were applied")


# --- prediction ---


def test_the_pushes_after_the_last_one_are_predicted() -> None:
    assert predicted_pushes(10.0, 2.0, 10.0, 3).tolist() == [12.0, 14.0, 16.0]


def test_a_push_that_is_overdue_is_expected_at_once_and_the_others_after_it() -> None:
    assert predicted_pushes(10.0, 2.0, 15.0, 3).tolist() == [15.0, 17.0, 19.0]


def test_a_worker_that_takes_no_time_at_all_still_has_increasing_pushes() -> None:
    assert (np.diff(predicted_pushes(1.0, 0.0, 1.0, 50)) > 0).all()


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_barrier_is_planned_where_pushes_meet(solver: str) -> None:
    """Pushes at 2, 4, 6 and at 3, 6: in time, each stops at the push nearest to its point."""
    meeting = plan({4: (0.0, 2.0), 7: (0.0, 3.0)}, 0.0, 5, solver)
    assert (meeting.time, meeting.spread, meeting.quotas) == (6.0, 0.0, {4: 3, 7: 2})
    assert meeting.stops_at == {4: 5.0, 7: 4.5}


# --- acceptance: what the paper says of it ---


def test_its_workers_wait_less_than_under_bsp_and_its_gradients_are_fresher_than_under_asp(race: Race) -> None:
    runs = {
        one: race(policy, INTERVALS, updates=500)
        for one, policy in (("bsp", BulkSynchronous()), ("elastic", ElasticBulkSynchronous()), ("asp", Asynchronous()))
    }
    for one in runs.values():
        one.run()
    waits = {name: waiting(run) / len(run.of_kind("gradient")) for name, run in runs.items()}
    stale = {name: fmean(s for one in run.of_kind("commit") for s in one["staleness"]) for name, run in runs.items()}
    took = {name: after_so_many_gradients(run, 450) for name, run in runs.items()}
    assert waits["asp"] == 0 < waits["elastic"] < 0.25 * waits["bsp"]
    assert stale["bsp"] == 0 < stale["elastic"] < 0.95 * stale["asp"]
    assert took["asp"] < took["elastic"] < took["bsp"]


def least_spread(began: float, lookahead: int) -> float:
    """Return d* of a superstep that began then, from the pushes that follow the second one of the slowest."""
    decided = began + 2 * INTERVALS[-1]
    every_push = [began + one * np.arange(1, 40) for one in INTERVALS]
    return one_by_one([one[one > decided + 1e-9][:lookahead] for one in every_push]).spread


@pytest.mark.parametrize("barrier", ["count", "time"])
@pytest.mark.parametrize("lookahead", [1, 4, 15])
def test_the_fastest_worker_waits_d_star_at_each_barrier_and_nobody_longer(
    lookahead: int, barrier: str, race: Race
) -> None:
    run = race(ElasticBulkSynchronous(lookahead=lookahead, barrier=barrier), INTERVALS, updates=400)
    run.run()
    ends = [0.0, *(one["at"] for one in barriers(run))]
    assert len(ends) > 5
    for began, superstep in zip(ends, supersteps(run), strict=False):
        last = {one["slot"]: one["at"] for one in superstep}
        wanted = least_spread(began, lookahead)
        assert max(last.values()) - min(last.values()) == pytest.approx(wanted, abs=1e-6)


def test_the_log_says_what_a_barrier_was_to_cost(race: Race) -> None:
    run = race(ElasticBulkSynchronous(lookahead=4), INTERVALS, updates=100)
    run.run()
    superstep = {one["slot"]: one["at"] for one in supersteps(run)[0]}
    cost = max(superstep.values()) - min(superstep.values())
    assert barriers(run)[0]["reason"] == f"all are at the barrier, which was to cost the first one {cost:.3g} s"


@pytest.mark.parametrize("options", [{}, {"barrier": "time"}, {"solver": "gridscan"}, {"solver": "fullgridscan"}])
def test_identical_workers_never_wait_and_push_equally_often(options: dict[str, str], race: Race) -> None:
    run = race(ElasticBulkSynchronous(**options), [1.0] * 4, updates=200)
    run.run()
    assert len(barriers(run)) > 5
    assert waiting(run) == 0
    assert all(set(pushes(one).values()) == {3} for one in supersteps(run))


def test_a_worker_alone_never_waits(race: Race) -> None:
    run = race(ElasticBulkSynchronous(), [1.0], updates=50)
    run.run()
    assert (run.agenda.now, waiting(run)) == (50.0, 0)


@pytest.mark.parametrize("lookahead", [1, 3, 8])
def test_from_the_decision_to_the_barrier_nobody_pushes_more_often_than_it_looks_ahead(
    lookahead: int, race: Race
) -> None:
    """And it comes to the last push looked at, so the bound is not kept by being out of reach."""
    counted = []
    for widest in (2.3, 3.7, 7.1):
        intervals = [1.0, 1.31, widest]
        run = race(ElasticBulkSynchronous(lookahead=lookahead), intervals, updates=300)
        run.run()
        for superstep in supersteps(run):
            monitored: Counter[int] = Counter()
            for number, one in enumerate(superstep):
                monitored[one["slot"]] += 1
                if len(monitored) == 3 and min(monitored.values()) == 2:
                    counted.append(max(pushes(superstep[number + 1 :]).values()))
                    break
    assert len(counted) > 20
    assert max(counted) == lookahead


def test_looking_one_push_ahead_without_monitoring_is_bsp(race: Race) -> None:
    """Commit by commit: the same gradients at the same times on the same versions, whatever the speeds."""
    told = ("at", "version", "slots", "sequences", "staleness", "rate")
    histories = []
    for policy in (BulkSynchronous(), ElasticBulkSynchronous(lookahead=1, monitoring=False)):
        run = race(policy, INTERVALS, updates=30)
        run.kill("w2", at=11.2)
        run.join("late", at=20.3)
        run.run()
        histories.append([[one[name] for name in told] for one in run.of_kind("commit")])
    assert histories[0] == histories[1]


def test_without_monitoring_the_barrier_comes_from_the_intervals_of_the_superstep_before(race: Race) -> None:
    """A first round tells the intervals; from then on both are expected together every six seconds."""
    run = race(ElasticBulkSynchronous(lookahead=5, monitoring=False), [2.0, 3.0], updates=30)
    run.run()
    assert [one["at"] for one in barriers(run)][:4] == [3.0, 9.0, 15.0, 21.0]


# --- the barrier ---


def test_the_last_pushes_are_averaged_in_one_step_at_the_rate_of_any_other(race: Race) -> None:
    run = race(ElasticBulkSynchronous(lookahead=4), INTERVALS, updates=100)
    run.run()
    assert {tuple(one["slots"]) for one in barriers(run)} == {(0, 1, 2, 3)}
    assert {one["rate"] for one in run.of_kind("commit")} == {1.0}
    others = [one for one in run.of_kind("commit") if one not in barriers(run)]
    assert {len(one["slots"]) for one in others} == {1}


def test_applied_one_by_one_every_commit_has_one_gradient_and_all_wait_for_the_last(race: Race) -> None:
    policies = [ElasticBulkSynchronous(lookahead=4, merge=one) for one in ("average", "sequential")]
    runs = [race(one, INTERVALS, updates=150) for one in policies]
    for run in runs:
        run.run()
    assert {len(one["slots"]) for one in runs[1].of_kind("commit")} == {1}
    starts = [Counter(one["at"] for one in run.of_kind("start")) for run in runs]
    together = [sorted(at for at, count in one.items() if count == 4) for one in starts]
    assert len(together[1]) > 5
    assert together[0][: len(together[1])] == together[1]


@pytest.mark.parametrize("merge", ["average", "sequential"])
def test_after_a_barrier_everybody_goes_on_from_the_same_version(merge: str, race: Race) -> None:
    run = race(ElasticBulkSynchronous(lookahead=4, merge=merge), INTERVALS, updates=150)
    run.run()
    moments = Counter(one["at"] for one in run.of_kind("start"))
    together = [at for at, count in moments.items() if count == 4]
    assert len(together) > 5
    for moment in together:
        assert len({one["version"] for one in run.of_kind("start") if one["at"] == moment}) == 1


def test_by_time_a_worker_that_becomes_slow_makes_fewer_pushes_by_count_all_of_them(race: Race) -> None:
    """They are expected together after 6 pushes and 1, at 17 and 17.7 s; from 12 s on one takes ten times as long."""
    ends = {}
    for barrier in ("count", "time"):
        policy = ElasticBulkSynchronous(lookahead=6, barrier=barrier)
        run = race(policy, [1.0, 5.9], compute_s=lambda slot, sequence: 5.9 if slot else 1.0 if sequence < 13 else 10.0)
        run.run()
        ends[barrier] = barriers(run)[0]["at"]
    assert ends == {"count": 62.0, "time": 22.0}


# --- what is learned, and what is refused ---


@pytest.mark.parametrize(
    "options",
    [{}, {"barrier": "time"}, {"merge": "sequential"}, {"monitoring": False}],
    ids=str,
)
def test_what_it_learned_survives_being_written_down(
    options: dict[str, Any], race: Race, written_down_after_every_event: Callable[..., Records]
) -> None:
    def make() -> Policy:
        return ElasticBulkSynchronous(lookahead=4, **options)

    straight = race(make(), INTERVALS, updates=60)
    straight.run()
    assert written_down_after_every_event(make, INTERVALS, updates=60) == straight.records


def test_less_than_one_push_ahead_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="lookahead must be an int from 1 to 10000, not 0"):
        ElasticBulkSynchronous(lookahead=0)
