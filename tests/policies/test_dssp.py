"""The bound of SSP, stretched by extra iterations where these end the fastest worker's wait soonest."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from psplatform.errors import ConfigurationError
from psplatform.memory import MemoryRun
from psplatform.policies.asp import Asynchronous
from psplatform.policies.dssp import DynamicStaleSynchronous, extra_iterations
from psplatform.policies.ssp import StaleSynchronous

Race = Callable[..., MemoryRun]
FAST_AND_SLOW = [1.0, 2.1]


def gaps(run: MemoryRun) -> list[int]:
    return [one["clock"] - one["min_clock"] for one in run.of_kind("start")]


def seconds(run: MemoryRun) -> float:
    run.run()
    return run.agenda.now


# --- the number of extra iterations ---


def nearest_of_all(now: float, interval: float, slow_next: float, slow_interval: float, most: int) -> int:
    distances = [
        min(abs(slow_next + j * slow_interval - (now + r * interval)) for j in range(most + 1)) for r in range(most + 1)
    ]
    return distances.index(min(distances))


@pytest.mark.parametrize("seed", range(5))
def test_the_extra_iterations_are_those_that_end_nearest_to_a_push_of_the_slowest(seed: int) -> None:
    """Whole numbers, so that many are equally near: the fewest then."""
    rng = random.Random(seed)
    for case in range(1000):
        given = (rng.randint(0, 9), rng.randint(1, 9), rng.randint(0, 30), rng.randint(1, 30), rng.randint(0, 14))
        assert extra_iterations(*given) == nearest_of_all(*given), f"seed {seed}, case {case}: {given}"


def test_who_pushes_just_before_the_slowest_gets_no_extra_iteration() -> None:
    assert extra_iterations(10.0, 4.0, 10.5, 9.0, 12) == 0


def test_who_pushes_just_after_the_slowest_uses_the_time_until_its_next_push() -> None:
    assert extra_iterations(10.0, 2.0, 16.1, 6.2, 12) == 3


def test_there_are_never_more_than_allowed() -> None:
    assert extra_iterations(0.0, 1.0, 100.0, 100.0, 4) == 4


# --- whole runs ---


@pytest.mark.parametrize("options", [{}, {"lower": 0, "credit": 1}, {"lower": 1, "credit": 5}, {"credit": 0}])
def test_no_iteration_starts_further_ahead_than_the_lower_bound_and_the_credit(
    options: dict[str, int], race: Race
) -> None:
    """And the fastest of very unequal workers gets there: the bound is not kept by never coming near it."""
    policy = DynamicStaleSynchronous(**options)
    run = race(policy, [1.0, 3.3, 7.9], updates=150)
    run.run()
    assert max(gaps(run)) == policy.lower + policy.credit


def test_without_credit_it_is_ssp(race: Race) -> None:
    runs = [race(one, [1.0, 1.3, 2.9], updates=80) for one in (DynamicStaleSynchronous(credit=0), StaleSynchronous())]
    assert [one.run().outcome for one in runs] == ["updates", "updates"]
    assert runs[0].records == runs[1].records


def test_while_the_credit_lasts_it_is_as_fast_as_asp_where_ssp_is_as_slow_as_the_slowest(race: Race) -> None:
    """Two workers, one about twice as fast: 36 updates take 24 iterations of the fast one, or 18 of the slow one."""
    took = {
        type(one).__name__: seconds(race(one, FAST_AND_SLOW, updates=36))
        for one in (Asynchronous(), DynamicStaleSynchronous(), StaleSynchronous())
    }
    assert took["DynamicStaleSynchronous"] <= 1.05 * took["Asynchronous"]
    assert took["StaleSynchronous"] >= 1.3 * took["Asynchronous"]


@pytest.mark.parametrize("slow", [1.93, 2.0, 2.1])
def test_with_renewed_credit_it_stays_as_fast_as_asp_where_every_bound_ends_at_the_pace_of_the_slowest(
    slow: float, race: Race
) -> None:
    """The published relation of the times: DSSP as fast as ASP, SSP with any bound about half as fast."""
    updates = 400
    asynchronous = seconds(race(Asynchronous(), [1.0, slow], updates=updates))
    renewed = seconds(race(DynamicStaleSynchronous(renew=True), [1.0, slow], updates=updates))
    bounded = [
        seconds(race(one, [1.0, slow], updates=updates))
        for one in (StaleSynchronous(), StaleSynchronous(bound=15), DynamicStaleSynchronous())
    ]
    assert renewed <= 1.05 * asynchronous
    assert all(0.9 * updates / 2 * slow <= one <= updates / 2 * slow for one in bounded)
    assert min(bounded) >= 1.35 * renewed


def test_no_credit_is_given_before_fastest_and_slowest_pushed_twice(race: Race) -> None:
    """Until 20 s the slow one's interval is not known: the fast one stands at the lower bound."""
    run = race(DynamicStaleSynchronous(lower=0, credit=5), [1.0, 10.0], updates=12)
    run.run()
    starts = [one["at"] for one in run.of_kind("start") if one["slot"] == 0]
    assert starts[:6] == [0.0, 10.0, 20.0, 21.0, 22.0, 23.0]


@dataclass
class Standing:
    """A worker of a run that stands still at `now`."""

    slot: int
    clock: int
    version: int = 0
    counter: int = 0


@dataclass
class StandingView:
    standing: list[Standing]
    now: float = 20.0
    version: int = 9

    @property
    def live(self) -> int:
        return len(self.standing)

    @property
    def minimum_clock(self) -> int:
        return min(one.clock for one in self.standing)

    def members(self) -> list[Standing]:
        return self.standing


def test_only_the_fastest_gets_credit_and_of_equally_fast_ones_each() -> None:
    policy = DynamicStaleSynchronous(lower=1, credit=8)
    # Slot, began at, pushed at, interval and number of pushes: the last will push at 26.
    paces = [[0, 18.0, 20.0, 2.0, 5], [1, 17.0, 20.0, 3.0, 4], [2, 18.0, 18.0, 8.0, 2]]
    policy.restore({"paces": paces, "credited_until": []})
    view: Any = StandingView([Standing(0, 5), Standing(1, 4), Standing(2, 2)])
    fastest, second, slowest = (policy.may_start(one, view) for one in view.standing)
    assert fastest.at is not None
    assert fastest.reason == "3 extra iterations end nearest to a push of the slowest"
    assert (second.at, second.reason) == (None, "2 iterations ahead of the slowest")
    assert slowest.at is not None
    equal: Any = StandingView([Standing(1, 5), Standing(2, 2), Standing(3, 5)])
    policy.restore({"paces": [*paces[1:], [3, 16.0, 20.0, 4.0, 5]], "credited_until": []})
    assert policy.may_start(equal.standing[0], equal).at is not None


def test_of_several_slowest_workers_the_last_to_push_counts() -> None:
    policy = DynamicStaleSynchronous(lower=1, credit=8)
    policy.restore(
        {
            "paces": [[0, 18.0, 20.0, 2.0, 5], [1, 18.0, 18.0, 8.0, 2], [2, 19.0, 19.0, 11.0, 2]],
            "credited_until": [],
        }
    )
    view: Any = StandingView([Standing(0, 4), Standing(1, 2), Standing(2, 2)])
    assert policy.may_start(view.standing[0], view).reason.startswith("5 extra iterations")


def test_the_wait_is_over_when_the_slowest_has_pushed(race: Race) -> None:
    """No wait is longer than the slowest takes."""
    run = race(DynamicStaleSynchronous(lower=0, credit=3, renew=True), FAST_AND_SLOW, updates=120)
    run.run()
    waits = [one["wait_s"] for one in run.of_kind("gradient") if one["slot"] == 0 and one["sequence"] > 4]
    assert max(waits) <= 1.1


def test_another_process_in_the_slot_of_the_fastest_inherits_neither_credit_nor_pace(race: Race) -> None:
    run = race(DynamicStaleSynchronous(lower=0, credit=8), [1.0, 6.0], updates=40)
    # At 13 s it got credit for the five iterations until the slow one pushes.
    run.kill("w0", at=13.5)
    run.join("other", at=14.0)
    run.run()
    joined = next(one for one in run.of_kind("joined") if one["incarnation"] == 2)
    starts = [one for one in run.of_kind("start") if one["slot"] == 0 and one["at"] >= joined["at"]]
    assert max(gaps(run)) > 0
    # It works once at the minimum clock, and stands at the bound until the slow one has pushed.
    assert [one["at"] for one in starts[:2]] == [14.0, 18.0]


def test_when_the_slowest_is_lost_the_others_go_on(race: Race) -> None:
    run = race(DynamicStaleSynchronous(lower=0, credit=1), [1.0, 1.1, 50.0], updates=40)
    run.kill("w2", at=5.0)
    assert run.run().outcome == "updates"
    assert run.agenda.now < 30


def test_what_it_learned_survives_being_written_down(
    race: Race, written_down_after_every_event: Callable[..., list[dict[str, Any]]]
) -> None:
    make, intervals = partial(DynamicStaleSynchronous, lower=1, credit=4), [1.0, 1.6, 7.0]
    straight = race(make(), intervals, updates=60)
    straight.run()
    assert written_down_after_every_event(make, intervals, updates=60) == straight.records


@pytest.mark.parametrize("name", ["lower", "credit"])
def test_a_negative_bound_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} must be an int"):
        DynamicStaleSynchronous(**{name: -1})
