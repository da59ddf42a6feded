"""What the policies between BSP and ASP promise by themselves, whatever happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from updates import means_of

from psplatform.core.policy import Policy
from psplatform.core.rates import delay_adaptive
from psplatform.policies.registry import make_policy

SEEDS = 24
Run = Any
Through = Callable[..., None]


def maker(name: str, **options: Any) -> Callable[[], Policy]:
    return partial(make_policy, name, options)


@pytest.mark.parametrize(("lower", "credit"), [(0, 0), (0, 2), (1, 3)])
def test_dssp_starts_no_iteration_with_a_clock_gap_above_its_lower_bound_and_its_credit(
    lower: int, credit: int, through_trouble: Through
) -> None:
    def check(run: Run) -> None:
        assert all(one["clock"] - one["min_clock"] <= lower + credit for one in run.of_kind("start"))

    through_trouble(maker("dssp", lower=lower, credit=credit), check, seeds=SEEDS)


def test_dssp_uses_its_credit(through_trouble: Through) -> None:
    """Some iterations start above the lower bound, so that the bound above is one on what happens."""
    widest: list[int] = []

    def check(run: Run) -> None:
        widest.extend(one["clock"] - one["min_clock"] for one in run.of_kind("start"))

    through_trouble(maker("dssp", lower=0, credit=2), check, seeds=10, calm=True)
    assert max(widest) == 2


@pytest.mark.parametrize("bound", [1, 2, 4])
def test_delay_bounded_applies_no_gradient_whose_staleness_reaches_its_bound(
    bound: int, through_trouble: Through
) -> None:
    def check(run: Run) -> None:
        assert all(max(one["staleness"]) < bound for one in run.of_kind("commit"))
        late = [one for one in run.of_kind("dropped") if one["reason"] == "delay"]
        assert all(one["version"] - one["label"] >= bound for one in late)
        assert {one["reason"] for one in run.of_kind("dropped")} <= {"delay", "not sent", "lost", "stopped"}

    through_trouble(maker("delay-bounded", max_delay=bound), check, seeds=SEEDS)


def test_delay_bounded_takes_smaller_steps_with_updates_and_staleness(through_trouble: Through) -> None:
    def check(run: Run) -> None:
        for one in run.of_kind("commit"):
            assert one["rate"] == delay_adaptive(*means_of(one), 0.5)

    through_trouble(maker("delay-bounded", damping=0.5), check, seeds=SEEDS // 2)


@pytest.mark.parametrize("barrier", ["count", "time"])
@pytest.mark.parametrize("monitoring", [True, False])
def test_elastic_bsp_merges_a_last_push_of_every_live_worker_at_a_barrier(
    barrier: str, monitoring: bool, through_trouble: Through
) -> None:
    """But for those that joined while it was being met: they start behind it."""

    def check(run: Run) -> None:
        started: set[int] = set()
        live: set[int] = set()
        for one in run.run.records:
            if one["kind"] == "start":
                started.add(one["slot"])
            elif one["kind"] == "joined":
                live.add(one["slot"])
            elif one["kind"] in ("lost", "left"):
                live.discard(one["slot"])
                started.discard(one["slot"])
            elif one["kind"] == "commit" and "at the barrier" in one["reason"]:
                assert live & started <= set(one["slots"])
            elif one["kind"] == "commit":
                assert len(one["slots"]) == 1

    make = maker("elastic-bsp", lookahead=2, barrier=barrier, monitoring=monitoring)
    through_trouble(make, check, seeds=SEEDS)


@pytest.mark.parametrize("lookahead", [1, 3])
def test_elastic_bsp_lets_nobody_push_more_often_than_it_looks_ahead_before_a_barrier(
    lookahead: int, through_trouble: Through
) -> None:
    """Without monitoring every superstep begins with the decision; the first one has one push of each."""
    most = Counter[int]()

    def check(run: Run) -> None:
        pushes: Counter[int] = Counter()
        for one in run.run.records:
            if one["kind"] == "commit" and "at the barrier" in one["reason"]:
                most.update(pushes.values())
                pushes.clear()
            elif one["kind"] == "gradient":
                pushes[one["slot"]] += 1
        assert max(most, default=0) <= lookahead

    through_trouble(maker("elastic-bsp", lookahead=lookahead, monitoring=False), check, seeds=SEEDS, calm=True)
    assert most[lookahead] > 0


def test_elastic_bsp_drops_nothing_that_arrives_before_the_end(through_trouble: Through) -> None:
    def check(run: Run) -> None:
        assert {one["reason"] for one in run.of_kind("dropped")} <= {"lost", "stopped"}

    through_trouble(maker("elastic-bsp", lookahead=2), check, seeds=SEEDS // 2)
