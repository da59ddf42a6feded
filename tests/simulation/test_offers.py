"""Simulated runs whose transfers are planned, beside the same runs without."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache

import pytest

from psplatform.core import reasons
from psplatform.core.plan import Plan, Stop
from psplatform.core.transfers import Fabric
from psplatform.jobs.distributions import Constant
from psplatform.jobs.schedules import Constant as Steady
from psplatform.network.estimates import Estimates
from psplatform.network.planner import FabricPlanner
from psplatform.network.steady import SteadyEstimates
from psplatform.policies.registry import make_policy
from psplatform.simulation.driver import Simulated, run_world
from psplatform.simulation.event_trace import EventTrace
from psplatform.simulation.network import Links, Network
from psplatform.simulation.run_times import Independent
from psplatform.simulation.synthetic import SyntheticGradients
from psplatform.simulation.world import SimulatedWorld

MODEL_BYTES = 1e8
EQUAL = Links((10.0,), latency_s=1e-4)  # a transfer takes 80 ms
UNEVEN = Links((10.0, 1.0), (0.8, 0.2), every_s=5.0, latency_s=1e-4, workers_per_host=2)
SLOW = 1.0
"""Gigabit per second that are believed where nothing is known: a tenth of the truth."""


@cache
def play(
    workers: int,
    links: Links,
    bound: int = 0,
    *,
    planned: bool = True,
    seed: int = 1,
    compute_s: float = 0.1,
    believed: float = 10.0,
    steady: bool = False,
) -> Simulated:
    """Simulate half a minute; a bound of 0 is none."""
    policy = make_policy("delay-bounded", {"max_delay": bound}) if bound else make_policy("asp", {})
    world = SimulatedWorld(
        Independent(Constant(compute_s), seed), seed, network=Network(links, seed), shard_bytes=(MODEL_BYTES,)
    )
    endless = {"absence_limit_s": math.inf, "finish_limit_s": math.inf}
    plan = Plan("r", workers, 1, 10**6, 4, Stop(seconds=30.0), Steady(), **endless)
    fabric = None
    if planned:
        fastest = believed * 1.25e8
        estimates = SteadyEstimates(fastest) if steady else Estimates(fastest, forget_s=10.0)
        fabric = Fabric(FabricPlanner(world.gradients_to(), (), estimates, tick_s=0.1), world.host_of)
    return run_world(plan, policy, SyntheticGradients(1, 4), world, EventTrace(keep=True), seed=seed, fabric=fabric)


def drops(run: Simulated) -> Counter[str]:
    return Counter(one["reason"] for one in run.records if one["kind"] == "dropped")


@pytest.mark.parametrize("steady", [True, False], ids=["rates stay", "rates change"])
@pytest.mark.parametrize("workers", [1, 2, 3, 4, 8, 16])
def test_where_interfaces_are_alike_plans_cost_nothing(workers: int, steady: bool) -> None:
    with_plans, without = play(workers, EQUAL, steady=steady), play(workers, EQUAL, planned=False)
    assert with_plans.view.commits >= 0.99 * without.view.commits


@pytest.mark.parametrize("steady", [True, False], ids=["rates stay", "rates change"])
@pytest.mark.parametrize("compute_s", [0.0, 0.02, 1.0])
def test_however_long_gradients_take(compute_s: float, steady: bool) -> None:
    with_plans = play(6, EQUAL, compute_s=compute_s, steady=steady)
    assert with_plans.view.commits >= 0.99 * play(6, EQUAL, planned=False, compute_s=compute_s).view.commits


@pytest.mark.parametrize("steady", [True, False], ids=["rates stay", "rates change"])
@pytest.mark.parametrize("believed", [SLOW, 30 * 10.0])
def test_rates_that_are_thought_too_low_or_too_high_are_found_out(believed: float, steady: bool) -> None:
    wrong, right = play(4, EQUAL, believed=believed, steady=steady), play(4, EQUAL)
    assert wrong.view.commits >= 0.99 * right.view.commits


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
@pytest.mark.parametrize("bound", [8, 16])
def test_the_bound_holds_and_what_would_be_late_is_not_sent(bound: int, seed: int) -> None:
    with_plans, without = (play(16, UNEVEN, bound, planned=planned, seed=seed) for planned in (True, False))
    staleness = [one["staleness"][0] for one in with_plans.records if one["kind"] == "commit"]
    assert max(staleness) < bound
    assert drops(with_plans)["delay"] <= drops(without)["delay"]
    assert not drops(without)[reasons.NOT_SENT]


def test_over_several_networks_most_of_what_is_late_is_not_sent() -> None:
    found = sum((drops(play(16, UNEVEN, 8, seed=seed)) for seed in (1, 2, 3, 4)), Counter())
    assert found[reasons.NOT_SENT] > found["delay"] > 0, found


def test_every_gradient_has_one_fate() -> None:
    run = play(16, UNEVEN, 8)
    fates = Counter(
        (slot, sequence)
        for one in run.records
        if one["kind"] == "commit"
        for slot, sequence in zip(one["slots"], one["sequences"], strict=True)
    )
    fates.update((one["slot"], one["sequence"]) for one in run.records if one["kind"] == "dropped")
    assert set(fates.values()) == {1}
    computed = {(one["slot"], one["sequence"]) for one in run.records if one["kind"] == "gradient"}
    assert computed == set(fates)


def test_planned_runs_are_repeated_to_the_last_event() -> None:
    once = play(8, UNEVEN, 8).trace_sha256
    play.cache_clear()
    assert play(8, UNEVEN, 8).trace_sha256 == once
