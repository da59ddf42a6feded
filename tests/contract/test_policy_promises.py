"""What each of our synchronisation policies promises by itself, whatever happens."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from updates import means_of

from psplatform.core.policy import Policy
from psplatform.core.rates import delay_adaptive
from psplatform.policies.registry import make_policy

SEEDS = 24
SYNCHRONOUS: list[tuple[str, dict[str, Any]]] = [
    ("bsp", {}),
    ("backup", {}),
    ("backup", {"k": 1}),
    ("backup", {"k": 3}),
    ("backup", {"k": 2, "busy": "abort"}),
    ("cutoff", {"full_rounds": 0}),
    ("cutoff", {"predictor": "static", "c": 2}),
]
Run = Any
Through = Callable[..., None]


def in_words(setting: tuple[str, dict[str, Any]]) -> str:
    return " ".join([setting[0], *(f"{name}={value}" for name, value in setting[1].items())])


def maker(setting: tuple[str, dict[str, Any]]) -> Callable[[], Policy]:
    return partial(make_policy, *setting)


@pytest.mark.parametrize("setting", SYNCHRONOUS, ids=in_words)
def test_synchronous_policies_apply_gradients_of_the_current_version_only(
    setting: tuple[str, dict[str, Any]], through_trouble: Through
) -> None:
    def check(run: Run) -> None:
        assert all(set(one["staleness"]) == {0} for one in run.of_kind("commit"))

    through_trouble(maker(setting), check, seeds=SEEDS)


def test_bsp_averages_a_gradient_of_every_live_worker(through_trouble: Through) -> None:
    def check(run: Run) -> None:
        assert all(live <= set(commit["slots"]) for commit, live in run.live_at_commits())
        assert run.given_up("dropped").total() == sum(one["reason"] == "lost" for one in run.of_kind("dropped"))

    through_trouble(maker(("bsp", {})), check, seeds=SEEDS)


@pytest.mark.parametrize("busy", ["finish", "abort"])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_backup_averages_exactly_k_unless_fewer_are_alive(k: int, busy: str, through_trouble: Through) -> None:
    def check(run: Run) -> None:
        for commit, live in run.live_at_commits():
            assert len(commit["slots"]) == k or live <= set(commit["slots"])
            assert len(commit["slots"]) <= k

    through_trouble(maker(("backup", {"k": k, "busy": busy})), check, seeds=SEEDS)


def test_backup_drops_what_comes_late_and_says_how_late(through_trouble: Through) -> None:
    def check(run: Run) -> None:
        stale = [one for one in run.of_kind("dropped") if one["reason"] == "stale"]
        assert all(one["label"] < one["version"] for one in stale)
        assert all(f"version {one['label']}, the model is at {one['version']}" in one["detail"] for one in stale)
        assert {one["reason"] for one in run.of_kind("dropped")} <= {"stale", "lost", "stopped"}

    through_trouble(maker(("backup", {"k": 1})), check, seeds=SEEDS)


def test_backup_that_aborts_never_lets_a_late_gradient_arrive(through_trouble: Through) -> None:
    """With a network that loses no time, whoever is late is told before it is done."""

    def check(run: Run) -> None:
        assert {one["reason"] for one in run.of_kind("dropped")} <= {"aborted", "stopped"}

    through_trouble(maker(("backup", {"k": 1, "busy": "abort"})), check, seeds=SEEDS, calm=True)


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_ssp_starts_no_iteration_with_a_clock_gap_above_its_bound(bound: int, through_trouble: Through) -> None:
    def check(run: Run) -> None:
        assert all(one["clock"] - one["min_clock"] <= bound for one in run.of_kind("start"))

    through_trouble(maker(("ssp", {"bound": bound})), check, seeds=SEEDS)


def test_ssp_holds_nobody_back_who_is_within_its_bound(through_trouble: Through) -> None:
    """Bound 0 makes the fast wait; a bound that no worker can reach makes nobody wait."""
    waits: dict[int, float] = {}
    for bound in (0, 1000):

        def check(run: Run, bound: int = bound) -> None:
            waits[bound] = waits.get(bound, 0.0) + sum(one["wait_s"] for one in run.of_kind("gradient"))

        through_trouble(maker(("ssp", {"bound": bound})), check, seeds=10, calm=True)
    assert waits[0] > 0
    assert waits[1000] == 0


@pytest.mark.parametrize("setting", [("bsp", {}), ("backup", {"k": 2})], ids=in_words)
@pytest.mark.parametrize("rate", ["constant", "proportional"])
def test_the_rate_of_a_round_is_constant_or_the_share_of_accepted_gradients(
    setting: tuple[str, dict[str, Any]], rate: str, through_trouble: Through
) -> None:
    def check(run: Run) -> None:
        for one in run.of_kind("commit"):
            assert one["rate"] == (len(one["slots"]) / run.run.plan.workers if rate == "proportional" else 1.0)

    through_trouble(maker((setting[0], {**setting[1], "rate": rate})), check, seeds=SEEDS // 2)


@pytest.mark.parametrize("name", ["asp", "ssp"])
def test_the_delay_adaptive_rate_falls_with_updates_and_staleness(name: str, through_trouble: Through) -> None:
    def check(run: Run) -> None:
        for one in run.of_kind("commit"):
            assert one["rate"] == delay_adaptive(*means_of(one), 0.5)

    through_trouble(maker((name, {"rate": "delay-adaptive", "damping": 0.5})), check, seeds=SEEDS // 2)


def test_asp_never_waits(through_trouble: Through) -> None:
    def check(run: Run) -> None:
        assert all(one["wait_s"] == 0 for one in run.of_kind("gradient"))

    through_trouble(maker(("asp", {})), check, seeds=SEEDS, calm=True)


def test_asp_applies_every_gradient_that_arrives_before_the_end(through_trouble: Through) -> None:
    def check(run: Run) -> None:
        assert {one["reason"] for one in run.of_kind("dropped")} <= {"lost", "stopped"}

    through_trouble(maker(("asp", {})), check, seeds=SEEDS)


PARTIAL: list[dict[str, Any]] = [{"push": 1, "pull": 0.5}, {"push": 2, "push_timeout_s": 0.7}, {"push": 9}]


@pytest.mark.parametrize("options", PARTIAL, ids=str)
def test_psp_merges_gradients_of_one_count_from_at_least_push_workers_and_no_more_than_there_are(
    options: dict[str, Any], through_trouble: Through
) -> None:
    def check(run: Run) -> None:
        counts = {(one["slot"], one["sequence"]): one["version"] for one in run.of_kind("start")}
        for commit, live in run.live_at_commits():
            keys = list(zip(commit["slots"], commit["sequences"], strict=True))
            assert {counts[key] for key in keys} == {commit["version"] - 1}
            wanted = min(options["push"], len(live))
            assert wanted <= len(keys) <= run.run.plan.workers + len(run.of_kind("joined"))
            assert commit["rate"] == len(keys) / run.run.plan.workers

    through_trouble(maker(("psp", options)), check, seeds=SEEDS // 2)


@pytest.mark.parametrize("options", PARTIAL, ids=str)
def test_psp_keeps_the_counts_of_a_worker_in_order_and_begins_a_new_one_s_at_the_oldest_block(
    options: dict[str, Any], through_trouble: Through
) -> None:
    def check(run: Run) -> None:
        versions = [0] * len(run.orders())
        counts: dict[int, int | None] = {}
        for one in run.run.records:
            if one["kind"] == "joined":
                counts[one["slot"]] = None
            elif one["kind"] == "commit":
                versions[one.get("block", 0)] = one["version"]
            elif one["kind"] == "start":
                before = counts[one["slot"]]
                assert one["version"] == (min(versions) if before is None else before + 1)
                counts[one["slot"]] = one["version"]

    through_trouble(maker(("psp", options)), check, seeds=SEEDS // 2)
