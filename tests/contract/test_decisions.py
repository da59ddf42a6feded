"""What every policy tells the log beside its commits: what it decided, and which staleness it promises."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import pytest

import psplatform as ps
from psplatform.policies.registry import make_policy, policy_names

WORKERS = 5
SLOW = "shifted-exponential:shift=0.02,mean=0.1;slow:chance=0.15,factor=8"

SETTINGS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in policy_names()),
    ("ssp", {"bound": 0}),
    ("ssp", {"bound": 1}),
    ("dssp", {"lower": 1, "credit": 2}),
    ("dssp", {"lower": 0, "credit": 3, "renew": True}),
    ("delay-bounded", {"max_delay": 3}),
    ("backup", {"k": 2, "busy": "abort"}),
    ("cutoff", {"predictor": "static", "c": 3}),
    ("elastic-bsp", {"lookahead": 3, "monitoring": False}),
    ("psp", {"push": 2, "pull": 0.5}),
]
every_policy = pytest.mark.parametrize(
    "place", range(len(SETTINGS)), ids=[f"{name} {options}" for name, options in SETTINGS]
)


@cache
def simulated(place: int) -> Any:
    """Simulate 400 updates of five workers, some of which are slow, of whom none joins or leaves; times only."""
    name, options = SETTINGS[place]
    job = ps.Job(
        workload="mlp",
        policy=name,
        policy_options=options,
        workers=WORKERS,
        shards=2,
        stop=ps.Stop(updates=400),
        evaluate_every=None,
        seed=3,
    )
    return ps.simulate(job, ps.Conditions(compute=SLOW, timing_only=True), keep_records=True)


@every_policy
def test_no_applied_gradient_is_staler_than_promised(place: int) -> None:
    found = simulated(place)
    bound = make_policy(*SETTINGS[place]).staleness_bound(WORKERS)
    assert found.view.run["staleness_bound"] == bound
    assert bound is None or found.view.staleness.max <= bound


@every_policy
def test_what_was_decided_is_a_few_finite_figures_by_name(place: int) -> None:
    for record in simulated(place).records:
        for name, value in record.get("decision", {}).items():
            assert record["kind"] == "commit"
            assert name.strip() == name != ""
            assert isinstance(value, float)
            assert math.isfinite(value)


@pytest.mark.parametrize(
    ("name", "options", "figure", "values"),
    [
        ("backup", {"k": 2, "busy": "abort"}, "k", {2.0}),
        ("cutoff", {"predictor": "static", "c": 3}, "c", {3.0}),
        ("ssp", {"bound": 1}, "bound", {1.0}),
        ("delay-bounded", {"max_delay": 3}, "delay bound", {3.0}),
        ("psp", {"push": 2, "pull": 0.5}, "pull share", {0.5}),
        ("dbw", {}, "k", {1.0, 2.0, 3.0, 4.0, 5.0}),
    ],
)
def test_the_figures_are_those_in_force(name: str, options: dict[str, Any], figure: str, values: set[float]) -> None:
    found = simulated(SETTINGS.index((name, options)))
    decided = [record["decision"][figure] for record in found.records if figure in record.get("decision", {})]
    assert decided
    assert set(decided) <= values


def test_a_round_of_backup_workers_takes_as_many_gradients_as_decided() -> None:
    records = simulated(SETTINGS.index(("backup", {"k": 2, "busy": "abort"}))).records
    commits = [record for record in records if record["kind"] == "commit"]
    assert all(len(one["slots"]) == one["decision"]["k"] for one in commits)


@pytest.mark.parametrize("figures", [{"k": math.nan}, {"k" * 65: 1.0}])
def test_a_policy_that_decides_nonsense_ends_the_run(figures: dict[str, float]) -> None:
    """A figure that is no number, or whose name fills the log, is shown, with the policy and the hook."""
    policy = make_policy("bsp")
    object.__setattr__(policy, "decision", lambda view: figures)
    job = ps.Job(workload="mlp", policy=policy, workers=2, stop=ps.Stop(updates=5), evaluate_every=None)
    with pytest.raises(Exception, match="returned .* from decision .* finite numbers by name"):
        ps.simulate(job, ps.Conditions(timing_only=True))
