"""What every synchronisation policy keeps, whatever happens.

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

SEEDS = 24
SETTINGS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in policy_names()),
    ("asp", {"rate": "delay-adaptive"}),
    ("ssp", {"bound": 0}),
    ("ssp", {"bound": 1, "rate": "delay-adaptive"}),
    ("backup", {"k": 1}),
    ("backup", {"k": 1, "busy": "abort"}),
    ("backup", {"k": 3, "rate": "constant"}),
    ("backup", {"k": 2, "busy": "abort"}),
    ("dssp", {"lower": 0, "credit": 2}),
    ("dssp", {"lower": 0, "credit": 3, "renew": True}),
    ("elastic-bsp", {"lookahead": 1}),
    ("elastic-bsp", {"lookahead": 3, "barrier": "time"}),
    ("elastic-bsp", {"lookahead": 2, "merge": "sequential"}),
    ("elastic-bsp", {"lookahead": 2, "monitoring": False}),
    ("delay-bounded", {"max_delay": 1}),
    ("psp", {"push": 1, "pull": 0.5}),
    ("psp", {"push": 2, "pull": 0.4, "push_timeout_s": 0.3, "pull_timeout_s": 0.2, "resync": "jump"}),
    ("psp", {"push": 2, "pull": 0.6, "subset": True}),
    ("cutoff", {"predictor": "static", "c": 2, "explore": 0.2}),
    ("cutoff", {"predictor": "normal"}),
    ("cutoff", {"predictor": "forgetting", "full_rounds": 0, "samples": 4}),
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
        for commits in run.orders():
            assert [one["version"] for one in commits] == list(range(1, len(commits) + 1))
            assert [one["position"] for one in commits] == [one["version"] for one in commits]
        assert min(map(len, run.orders())) == run.run.plan.stop.updates
        check_fates(run)
        check_shards(run)
        check_nothing_is_left(run)

    through_trouble(maker(setting), check, seeds=SEEDS)


def check_fates(run: Run) -> None:
    """Each gradient is started once, and has one fate at most, or one for each of its blocks."""
    assert max(run.started().values()) == 1
    for block in range(len(run.orders())):
        fates = run.committed(block) + run.given_up("dropped", block) + run.given_up("aborted")
        assert max(fates.values()) == 1
        assert fates.keys() <= run.started().keys()


def check_shards(run: Run) -> None:
    """Every shard applied the same gradients in the same order, and each of them once."""
    orders = run.orders()
    for shard in range(run.run.plan.shards):
        commits = orders[shard if len(orders) > 1 else 0]
        decided = [list(zip(one["slots"], one["sequences"], strict=True)) for one in commits]
        gathered = run.witness.gathered[shard]
        assert [[(one.slot, one.sequence) for one in step] for step in gathered] == decided


def check_nothing_is_left(run: Run) -> None:
    state = run.run.coordinator.state
    assert run.still_waiting == []
    assert (state.open_commits, state.pooled) == (0, 0)
    assert run.witness.saved == [state.version]
    assert [server.version for server in run.run.servers] == [
        state.lane_of(server.shard).version for server in run.run.servers
    ]
    assert [lane.held for lane in state.lanes] == [[] for _ in state.lanes]
    # Of a gradient that was under way at the end some blocks are open; nothing is kept of any before.
    under_way = {(member.slot, member.sequence) for member in state.roster.members()}
    assert state.fates.open <= under_way
    if state.deck is not None:
        assert state.deck.out <= under_way


@every_policy
def test_staleness_is_the_version_before_the_commit_minus_the_label(
    setting: tuple[str, dict[str, Any]], through_trouble: Through
) -> None:
    def check(run: Run) -> None:
        labels = {(one["slot"], one["sequence"]): one["label"] for one in run.of_kind("gradient")}
        for commit in run.of_kind("commit"):
            keys = zip(commit["slots"], commit["sequences"], strict=True)
            oldest = [commit["version"] - 1 - labels[key] for key in keys]
            # The label in the log is the oldest of the blocks'; a block's own may be newer.
            own = zip(commit["staleness"], oldest, strict=True)
            assert all(0 <= one <= bound if "block" in commit else one == bound >= 0 for one, bound in own)

    through_trouble(maker(setting), check, seeds=SEEDS // 2)


@every_policy
def test_a_gradient_is_computed_on_the_version_it_was_released_on_or_a_newer_one(
    setting: tuple[str, dict[str, Any]], through_trouble: Through
) -> None:
    def check(run: Run) -> None:
        starts = {(one["slot"], one["sequence"]): one["version"] for one in run.of_kind("start")}
        shards, rule = run.run.plan.shards, run.run.coordinator.state.traits.pull
        for one in run.of_kind("gradient"):
            partly = one.get("fresh_blocks", 0) >= rule.count(shards) and rule.fraction < 1
            assert partly or one["label"] >= starts[one["slot"], one["sequence"]]

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
