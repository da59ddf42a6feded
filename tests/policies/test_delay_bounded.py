"""No gradient is applied whose delay is above the bound; who comes too late begins again on the newest version."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from psplatform.core.policy import APPLY
from psplatform.core.rates import delay_adaptive
from psplatform.errors import ConfigurationError
from psplatform.memory import MemoryRun
from psplatform.policies.delay_bounded import DelayBounded

Race = Callable[..., MemoryRun]


def staleness(run: MemoryRun) -> list[int]:
    return [one["staleness"][0] for one in run.of_kind("commit")]


def late(run: MemoryRun) -> list[dict[str, Any]]:
    return [one for one in run.of_kind("dropped") if one["reason"] == "delay"]


def test_workers_of_equal_speed_have_the_natural_staleness_which_a_bound_of_their_number_just_allows(
    race: Race,
) -> None:
    run = race(DelayBounded(max_delay=5), [1.0] * 5, updates=60)
    run.run()
    assert staleness(run) == [0, 1, 2, 3, 4] + [4] * 55
    assert late(run) == []


def test_a_bound_below_the_natural_staleness_drops_the_last_of_every_turn(race: Race) -> None:
    run = race(DelayBounded(max_delay=4), [1.0] * 5, updates=60)
    run.run()
    assert max(staleness(run)) == 3
    assert late(run)


@pytest.mark.parametrize("bound", [1, 2, 4])
def test_no_applied_gradient_has_a_staleness_of_the_bound_or_more(bound: int, race: Race) -> None:
    run = race(DelayBounded(max_delay=bound), [1.0, 1.1, 1.7, 6.5], updates=100)
    run.run()
    assert max(staleness(run)) == bound - 1
    assert all(one["version"] - one["label"] >= bound for one in late(run))


def test_what_is_dropped_says_how_late_it_was_and_what_is_allowed(race: Race) -> None:
    run = race(DelayBounded(max_delay=3), [1.0, 10.0], updates=12)
    run.run()
    (dropped, *_) = late(run)
    assert (dropped["slot"], dropped["detail"]) == (1, "staleness 9, at most 2 is allowed by a delay bound of 3")


def test_who_was_dropped_begins_again_at_once_on_the_newest_version(race: Race) -> None:
    run = race(DelayBounded(max_delay=3), [1.0, 10.0], updates=12)
    run.run()
    (dropped, *_) = late(run)
    again = next(one for one in run.of_kind("start") if one["slot"] == 1 and one["sequence"] == 2)
    assert (again["at"], again["version"]) == (dropped["at"], dropped["version"])


def test_nobody_ever_waits(race: Race) -> None:
    run = race(DelayBounded(max_delay=2), [1.0, 1.3, 2.9], updates=50)
    run.run()
    assert all(one["wait_s"] == 0 for one in run.of_kind("gradient"))


def test_without_a_bound_given_it_is_twice_the_number_of_workers(race: Race) -> None:
    """The only other worker makes two or three updates while one takes 2.9 seconds, and seven in seven."""
    run = race(DelayBounded(), [1.0, 2.9], updates=30)
    run.run()
    assert (max(staleness(run)), late(run)) == (3, [])
    run = race(DelayBounded(), [1.0, 7.0], updates=30)
    run.run()
    assert max(staleness(run)) == 0
    assert {one["slot"] for one in late(run)} == {1}


def test_the_rate_falls_with_updates_and_staleness_unless_it_is_constant(race: Race) -> None:
    run = race(DelayBounded(max_delay=4, damping=0.5), [1.0, 1.4, 2.0], updates=30)
    run.run()
    for one in run.of_kind("commit"):
        assert one["rate"] == delay_adaptive(one["version"] - 1, one["staleness"][0], 0.5)
    run = race(DelayBounded(max_delay=4, rate="constant"), [1.0, 1.4, 2.0], updates=30)
    run.run()
    assert {one["rate"] for one in run.of_kind("commit")} == {1.0}


def test_a_bound_below_one_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="max_delay must be an int of at least 1, not 0"):
        DelayBounded(max_delay=0)


@pytest.mark.parametrize("label", [3, 0, -1])
@pytest.mark.parametrize("bound", [1, 2, 5, None])
def test_the_latest_version_is_the_last_at_which_it_is_applied(bound: int | None, label: int) -> None:
    policy, gradient = DelayBounded(max_delay=bound), SimpleNamespace(label=SimpleNamespace(version=label), ahead=0)

    def is_applied(version: int) -> bool:
        return policy.admit(gradient, SimpleNamespace(version=version, workers=4)) is APPLY  # type: ignore[arg-type]

    latest = policy.latest(gradient, SimpleNamespace(version=3, workers=4))  # type: ignore[arg-type]
    assert [is_applied(version) for version in range(20)] == [version <= latest for version in range(20)]
