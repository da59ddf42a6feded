"""What every synchronisation policy keeps whatever happens, and what each promises by itself.

The suite runs over every registered policy, those of other packages included, and over some further settings of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from psplatform.core.parameters import parameters_of
from psplatform.core.policy import Policy
from psplatform.errors import ConfigurationError
from psplatform.policies.registry import describe_policies, make_policy, name_of, parameter_values, policy_names

SEEDS = 40
SETTINGS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in policy_names()),
    ("asp", {"rate": "delay-adaptive"}),
    ("ssp", {"bound": 0}),
    ("ssp", {"bound": 1, "rate": "delay-adaptive"}),
    ("backup", {"k": 1}),
    ("backup", {"k": 1, "busy": "abort"}),
    ("backup", {"k": 3, "rate": "constant"}),
    ("backup", {"k": 2, "busy": "abort"}),
]
Run = Any
Through = Callable[..., None]


def in_words(setting: tuple[str, dict[str, Any]]) -> str:
    return " ".join([setting[0], *(f"{name}={value}" for name, value in setting[1].items())])


every_policy = pytest.mark.parametrize("setting", SETTINGS, ids=in_words)


def maker(setting: tuple[str, dict[str, Any]]) -> Callable[[], Policy]:
    return partial(make_policy, *setting)


# --- what every policy keeps, whatever happens ---


@every_policy
def test_the_order_of_commits_holds_whatever_happens(
    setting: tuple[str, dict[str, Any]], through_trouble: Through
) -> None:
    """Never hangs; versions grow by one; each gradient is applied once on every shard; nothing is left over."""

    def check(run: Run) -> None:
        assert run.outcome == "updates"
        commits = run.of_kind("commit")
        assert [one["version"] for one in commits] == list(range(1, run.run.plan.stop.updates + 1))
        assert [one["position"] for one in commits] == [one["version"] for one in commits]
        check_fates(run)
        check_shards(run)
        check_nothing_is_left(run)

    through_trouble(maker(setting), check, seeds=SEEDS)


def check_fates(run: Run) -> None:
    """Each gradient is started once, and has one fate at most."""
    fates = run.committed() + run.given_up("dropped") + run.given_up("aborted")
    assert max(run.started().values()) == 1
    assert max(fates.values()) == 1
    assert fates.keys() <= run.started().keys()


def check_shards(run: Run) -> None:
    """Every shard applied the same gradients in the same order, and each of them once."""
    by_shard = [run.witness.gathered[shard] for shard in range(run.run.plan.shards)]
    decided = [list(zip(one["slots"], one["sequences"], strict=True)) for one in run.of_kind("commit")]
    for gathered in by_shard:
        assert [[(one.slot, one.sequence) for one in step] for step in gathered] == decided


def check_nothing_is_left(run: Run) -> None:
    state = run.run.coordinator.state
    assert run.still_waiting == []
    assert (len(state.ledger), state.pooled) == (0, 0)
    assert run.witness.saved == [state.version]
    assert {server.version for server in run.run.servers} == {state.version}


@every_policy
def test_staleness_is_the_version_before_the_commit_minus_the_label(
    setting: tuple[str, dict[str, Any]], through_trouble: Through
) -> None:
    def check(run: Run) -> None:
        labels = {(one["slot"], one["sequence"]): one["label"] for one in run.of_kind("gradient")}
        for commit in run.of_kind("commit"):
            keys = zip(commit["slots"], commit["sequences"], strict=True)
            assert commit["staleness"] == [commit["version"] - 1 - labels[key] for key in keys]
            assert min(commit["staleness"]) >= 0

    through_trouble(maker(setting), check, seeds=SEEDS // 2)


@every_policy
def test_a_gradient_is_computed_on_the_version_it_was_released_on_or_a_newer_one(
    setting: tuple[str, dict[str, Any]], through_trouble: Through
) -> None:
    def check(run: Run) -> None:
        starts = {(one["slot"], one["sequence"]): one["version"] for one in run.of_kind("start")}
        assert all(one["label"] >= starts[one["slot"], one["sequence"]] for one in run.of_kind("gradient"))

    through_trouble(maker(setting), check, seeds=SEEDS // 2)


@every_policy
def test_the_same_seed_gives_the_same_history_and_another_seed_another(
    setting: tuple[str, dict[str, Any]], history: Callable[[Policy, int], Any]
) -> None:
    make = maker(setting)
    assert history(make(), 3) == history(make(), 3)
    assert history(make(), 3) != history(make(), 4)


@every_policy
def test_drops_and_commits_have_a_reason_in_words(
    setting: tuple[str, dict[str, Any]], through_trouble: Through
) -> None:
    def check(run: Run) -> None:
        assert all(one["reason"] and one["detail"] for one in run.of_kind("dropped"))
        assert all(one["reason"] for one in run.of_kind("commit"))

    through_trouble(maker(setting), check, seeds=5)


# --- parameters ---


@every_policy
def test_parameters_survive_being_written_down_and_read_again(setting: tuple[str, dict[str, Any]]) -> None:
    policy = make_policy(*setting)
    values = parameter_values(policy)
    assert make_policy(setting[0], values) == policy
    assert make_policy(setting[0], {name: str(value) for name, value in values.items()}) == policy


@pytest.mark.parametrize("described", describe_policies(), ids=lambda one: one["name"])
def test_a_policy_describes_itself_for_forms_and_names_its_source(described: dict[str, Any]) -> None:
    policy = make_policy(described["name"])
    assert name_of(policy) == described["name"]
    assert described["title"].endswith(".")
    assert described["source"]
    for plain, one in zip(described["parameters"], parameters_of(type(policy)), strict=True):
        assert plain["help"]
        assert one.accept(plain["default"]) == plain["default"]


def test_a_policy_made_by_hand_is_checked_like_one_made_by_name() -> None:
    with pytest.raises(ConfigurationError, match="bound must be an int of at least 0, not -1"):
        type(make_policy("ssp"))(bound=-1)  # type: ignore[call-arg]


# --- what each promises ---


@pytest.mark.parametrize("setting", [one for one in SETTINGS if one[0] in ("bsp", "backup")], ids=in_words)
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


def test_asp_never_waits(through_trouble: Through) -> None:
    def check(run: Run) -> None:
        assert all(one["wait_s"] == 0 for one in run.of_kind("gradient"))

    through_trouble(maker(("asp", {})), check, seeds=SEEDS, calm=True)


def test_asp_applies_every_gradient_that_arrives_before_the_end(through_trouble: Through) -> None:
    def check(run: Run) -> None:
        assert {one["reason"] for one in run.of_kind("dropped")} <= {"lost", "stopped"}

    through_trouble(maker(("asp", {})), check, seeds=SEEDS)
