"""Elastic BSP when workers are lost or join, other processes take over slots, and gradients are not finite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from psplatform.memory import MemoryRun
from psplatform.memory.arithmetic import Metadata
from psplatform.policies.elastic import ElasticBulkSynchronous

Race = Callable[..., MemoryRun]


def barriers(run: MemoryRun) -> list[dict[str, Any]]:
    """Return the commits that merged last pushes."""
    return [one for one in run.of_kind("commit") if "at the barrier" in one["reason"]]


def until_the_first_barrier(run: MemoryRun) -> dict[str, Any]:
    run.run()
    return barriers(run)[0]


TWO_SPEEDS = [2.0, 5.0]
"""Both have pushed twice at 10 s, meet at 20 s for nothing, and next at 40 s."""


def test_workers_of_two_speeds_meet_where_their_pushes_coincide(race: Race) -> None:
    run = race(ElasticBulkSynchronous(lookahead=8), TWO_SPEEDS, updates=40)
    assert until_the_first_barrier(run)["at"] == 20.0
    assert barriers(run)[1]["at"] == 40.0


def test_who_is_lost_on_the_way_to_the_barrier_is_not_waited_for(race: Race) -> None:
    run = race(ElasticBulkSynchronous(lookahead=8), TWO_SPEEDS, updates=40)
    run.kill("w1", at=19.5)
    barrier = until_the_first_barrier(run)
    assert (barrier["at"], barrier["slots"]) == (20.0, [0])


def test_when_the_last_one_on_the_way_is_lost_the_others_go_on_at_once(race: Race) -> None:
    slow_at_last = {"compute_s": lambda slot, sequence: 50.0 if (slot, sequence) == (1, 4) else TWO_SPEEDS[slot]}
    for merge in ("average", "sequential"):
        run = race(ElasticBulkSynchronous(lookahead=8, merge=merge), TWO_SPEEDS, updates=40, **slow_at_last)
        run.kill("w1", at=23.0)
        run.run()
        assert 23.0 in [one["at"] for one in run.of_kind("start") if one["slot"] == 0]


def test_what_a_worker_pushed_last_stays_in_the_average_when_it_is_lost_at_the_barrier(race: Race) -> None:
    run = race(ElasticBulkSynchronous(lookahead=1), [1.0, 1.4], updates=40)
    run.kill("w0", at=4.1)
    barrier = until_the_first_barrier(run)
    # After 2.8 s the next pushes are at 3 and 4.2.
    assert (barrier["at"], barrier["slots"]) == (pytest.approx(4.2), [0, 1])


def test_when_the_slowest_is_lost_while_it_is_monitored_the_others_meet(race: Race) -> None:
    run = race(ElasticBulkSynchronous(lookahead=8), [*TWO_SPEEDS, 1000.0], updates=60)
    run.kill("w2", at=14.5)
    assert until_the_first_barrier(run)["at"] == 20.0


def test_who_joins_after_the_decision_runs_along_until_the_others_are_expected(race: Race) -> None:
    run = race(ElasticBulkSynchronous(lookahead=8), [*TWO_SPEEDS, 3.0], updates=40)
    run.kill("w2", at=0.5)
    run.join("late", at=12.5)
    run.run()
    starts = [one["at"] for one in run.of_kind("start") if one["slot"] == 2 and one["at"] > 12]
    # It pushes at 15.5 and 18.5, which is before 20, and at 21.5.
    assert starts[:4] == [12.5, 15.5, 18.5, 21.5]
    assert (barriers(run)[0]["at"], barriers(run)[0]["slots"]) == (21.5, [0, 1, 2])


@pytest.mark.parametrize("merge", ["average", "sequential"])
def test_who_joins_while_others_are_at_the_barrier_starts_behind_it(merge: str, race: Race) -> None:
    pace = {"compute_s": lambda slot, sequence: (1.0, 1.4, 1.2)[slot]}
    run = race(ElasticBulkSynchronous(lookahead=1, merge=merge), [1.0, 1.4], updates=20, **pace)
    run.join("late", at=3.5)
    run.run()
    # The first two meet at 3 and 4.2.
    start = next(one for one in run.of_kind("start") if one["slot"] == 2)
    together = [one["version"] for one in run.of_kind("start") if one["at"] == start["at"]]
    assert start["at"] == pytest.approx(4.2)
    assert together == [start["version"]] * 3


def test_another_process_in_a_slot_is_not_held_to_what_was_predicted_for_the_one_before(race: Race) -> None:
    """The slot's quota at 10 s is five pushes; a process that takes it at 11 s and is faster makes twice as many."""
    run = race(
        ElasticBulkSynchronous(lookahead=8),
        TWO_SPEEDS,
        updates=40,
        compute_s=lambda slot, sequence: 5.0 if slot else 2.0 if sequence < 7 else 0.875,
    )
    run.kill("w0", at=10.5)
    run.join("other", at=11.0)
    barrier = until_the_first_barrier(run)
    others = [one for one in run.of_kind("gradient") if one["slot"] == 0 and 11.0 < one["at"] <= barrier["at"]]
    assert len(others) == 11
    assert barrier["at"] == pytest.approx(11.0 + 11 * 0.875)


def test_the_pace_of_the_process_before_is_not_taken_for_that_of_another_in_its_slot(race: Race) -> None:
    """The slot is taken over at the barrier of 5.9 s; the others, whose pace is known, meet next at 7.4 s."""
    run = race(
        ElasticBulkSynchronous(lookahead=2, monitoring=False),
        [2.9, 1.0, 1.5],
        compute_s=lambda slot, sequence: (2.9 if sequence <= 2 else 0.4, 1.0, 1.5)[slot],
    )
    run.kill("w0", at=5.0)
    run.join("other", at=5.2)
    run.run()
    assert [one["at"] for one in barriers(run)][:3] == pytest.approx([2.9, 5.9, 7.5])


# --- gradients that are not finite ---


def test_a_last_push_that_is_not_finite_is_tried_again_while_nobody_else_is_at_the_barrier(race: Race) -> None:
    """They were to meet at 3 and 4.2 s."""

    def outcome(slot: int, sequence: int) -> tuple[float, float]:
        return float("nan") if (slot, sequence) == (0, 3) else 1.0, 1.0

    run = race(ElasticBulkSynchronous(lookahead=1), [1.0, 1.4], arithmetic=Metadata(outcome=outcome))
    barrier = until_the_first_barrier(run)
    assert (barrier["at"], barrier["slots"], barrier["sequences"]) == (pytest.approx(4.2), [0, 1], [4, 3])


def test_a_last_push_that_is_not_finite_is_left_out_of_the_average_when_others_wait(race: Race) -> None:
    def outcome(slot: int, sequence: int) -> tuple[float, float]:
        return float("nan") if (slot, sequence) == (1, 3) else 1.0, 1.0

    run = race(ElasticBulkSynchronous(lookahead=1), [1.0, 1.4], arithmetic=Metadata(outcome=outcome))
    barrier = until_the_first_barrier(run)
    assert (barrier["at"], barrier["slots"]) == (pytest.approx(4.2), [0])


@pytest.mark.parametrize("merge", ["average", "sequential"])
def test_a_last_push_that_is_not_finite_holds_nobody_up(merge: str, race: Race) -> None:
    """Every third gradient of one worker is not finite, and at times all last ones are."""

    def outcome(slot: int, sequence: int) -> tuple[float, float]:
        return float("nan") if sequence % 3 == slot % 2 else 1.0, 1.0

    policy = ElasticBulkSynchronous(lookahead=2, merge=merge)
    run = race(policy, [1.0, 1.17, 1.29, 1.43], updates=200, arithmetic=Metadata(outcome=outcome))
    assert run.run().outcome == "updates"
