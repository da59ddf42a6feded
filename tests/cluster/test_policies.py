"""Every policy on a real cluster: it trains, and the log in the store shows its promise."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

import psplatform as ps
from psplatform.policies.registry import policy_names

Finish = Callable[..., ps.Run]
Log = Callable[..., list[dict[str, Any]]]
Fields = dict[str, Any]

LIMIT_S = 180.0
SLOW_THIRD = "constant:seconds=0.02;factors:1,1,6"
SLOW_SECOND = "constant:seconds=0.02;factors:1,5"


@pytest.mark.parametrize("policy", policy_names())
def test_every_policy_learns(finish: Finish, log: Log, small: Fields, policy: str) -> None:
    """Two hundred updates tell the two spirals apart better than the model did at first."""
    run = finish(**{**small, "policy": policy, "stop": ps.Stop(updates=200), "evaluate_every": 1})
    first, last = (log(run, "evaluated")[at] for at in (0, -1))
    # Blocks may be a version ahead of the oldest, which counts.
    assert last["version"] == 200 == run.metrics()["updates"]
    assert last["loss"] < first["loss"] - 0.1


@pytest.mark.parametrize("policy", ["bsp", "psp"])
def test_digits_are_learned(finish: Finish, policy: str) -> None:
    """The bundled workload with its own settings reaches 97 % of the held-out digits, under stragglers.

    `psplatform bench digits` does the same under every policy.
    """
    stop = ps.Stop(target_accuracy=0.97, epochs=45)
    fields = {"workload": "digits", "workers": 3, "shards": 2, "policy": policy, "torch_threads": 1}
    run = finish(**fields, stop=stop, evaluate_every=25, stragglers="slow:chance=0.1,factor=4")
    assert run.metrics()["accuracy"] >= 0.97
    assert run.metrics()["outcome"] == "reached target"


def test_a_bsp_commit_has_one_fresh_gradient_of_every_worker(finish: Finish, log: Log, small: Fields) -> None:
    run = finish(**{**small, "policy": "bsp", "workers": 3, "stragglers": SLOW_THIRD})
    commits = log(run, "commit")
    assert [one["version"] for one in commits] == list(range(1, 21))
    assert {tuple(one["slots"]) for one in commits} == {(0, 1, 2)}
    assert {tuple(one["staleness"]) for one in commits} == {(0, 0, 0)}
    assert [one["reason"] for one in log(run, "dropped") if one["reason"] != "stopped"] == []


def test_a_backup_commit_has_exactly_k_fresh_gradients(finish: Finish, log: Log, small: Fields) -> None:
    """The slow third worker's are dropped, each with its reason; the rate is scaled by k / n."""
    fields = {**small, "policy": "backup", "policy_options": {"k": 2}, "workers": 3, "stragglers": SLOW_THIRD}
    run = finish(**{**fields, "stop": ps.Stop(updates=40)})
    commits = log(run, "commit")
    assert len(commits) == 40
    assert {len(one["slots"]) for one in commits} == {2}
    assert {tuple(one["staleness"]) for one in commits} == {(0, 0)}
    assert {one["rate"] for one in commits} == {2 / 3}
    late = [one for one in log(run, "dropped") if one["reason"] == "stale"]
    assert late
    for one in late:
        assert one["detail"] == f"computed on version {one['label']}, the model is at {one['version']}"
        assert one["label"] < one["version"]


def test_a_late_backup_worker_can_be_interrupted(finish: Finish, log: Log, small: Fields) -> None:
    """It stops in mid-computation and says how long that took; nothing of its gradient is applied."""
    options = {"k": 2, "busy": "abort"}
    fields = {**small, "policy": "backup", "policy_options": options, "workers": 3, "stragglers": SLOW_THIRD}
    run = finish(**{**fields, "stop": ps.Stop(updates=40)})
    aborted = {(one["slot"], one["sequence"]) for one in log(run, "aborted")}
    assert aborted
    assert all(one["latency_s"] >= 0 for one in log(run, "aborted"))
    assert aborted.isdisjoint(_applied(log(run, "commit")))


def test_no_ssp_iteration_starts_further_ahead_than_the_bound(finish: Finish, log: Log, small: Fields) -> None:
    """The fast worker reaches the bound and waits there for the slow one."""
    fields = {**small, "policy": "ssp", "policy_options": {"bound": 2}, "stragglers": SLOW_SECOND}
    run = finish(**{**fields, "stop": ps.Stop(updates=40)})
    gaps = [one["clock"] - one["min_clock"] for one in log(run, "start")]
    assert max(gaps) == 2
    assert {len(one["slots"]) for one in log(run, "commit")} == {1}


def test_asp_applies_every_gradient_at_once(finish: Finish, log: Log, small: Fields) -> None:
    """Its staleness is the number of updates since its label, and nothing is dropped."""
    run = finish(**{**small, "policy": "asp", "stragglers": SLOW_SECOND, "stop": ps.Stop(updates=40)})
    labels = {(one["slot"], one["sequence"]): one["label"] for one in log(run, "gradient")}
    commits = log(run, "commit")
    for before, one in enumerate(commits):
        ((slot, sequence),) = zip(one["slots"], one["sequences"], strict=True)
        assert one["staleness"] == [before - labels[slot, sequence]]
    assert max(one["staleness"][0] for one in commits) > 0
    assert {one["reason"] for one in log(run, "dropped")} <= {"stopped"}


@pytest.mark.parametrize("policy", ["bsp", "backup", "ssp", "asp"])
def test_no_gradient_is_applied_twice(finish: Finish, log: Log, small: Fields, policy: str) -> None:
    """And those of a slot are applied in their order."""
    run = finish(**{**small, "policy": policy, "workers": 3})
    applied = _applied(log(run, "commit"))
    assert len(applied) == len(set(applied))
    for slot in range(3):
        own = [sequence for at, sequence in applied if at == slot]
        assert all(earlier < later for earlier, later in pairwise(own))


def test_partial_pulls_never_wait_for_a_slow_server(finish: Finish, log: Log, small: Fields) -> None:
    """A whole pull that meets a late answer of the slow block's server would wait longer than the test may take."""
    slow = ps.SlowServers(shards=(0,), seconds=10 * LIMIT_S, chance=0.2)
    options = {"push": 2, "pull": 0.75}
    fields = {**small, "policy": "psp", "policy_options": options, "workers": 3, "shards": 4, "slow_servers": slow}
    run = finish(**{**fields, "block_elements": 8, "stop": ps.Stop(updates=60)})
    late = [slow.delay(fields["seed"], 0, request) for request in range(120)]
    assert not any(late[:3]), "the first pulls are whole"
    assert any(late)
    counters = {(one["slot"], one["sequence"]): one["version"] for one in log(run, "start")}
    assert all(one["fresh_blocks"] >= 3 for one in log(run, "gradient"))
    for commit in log(run, "commit"):
        keys = zip(commit["slots"], commit["sequences"], strict=True)
        assert {counters[key] for key in keys} == {commit["version"] - 1}
        assert 2 <= len(commit["slots"]) <= 3


def test_a_push_timeout_merges_what_comes_after_the_least(finish: Finish, log: Log, small: Fields) -> None:
    """The third worker takes a little longer than the others: a block that waits on takes its gradient along."""
    fields = {**small, "policy": "psp", "workers": 3, "stragglers": "constant:seconds=0.04;factors:1,1,2"}
    merged = {
        timeout_s: [len(one["slots"]) for one in log(_finished(finish, fields, timeout_s), "commit")]
        for timeout_s in (0.0, 0.5)
    }
    assert min(merged[0.0] + merged[0.5]) >= 2
    assert sum(merged[0.5]) / len(merged[0.5]) > sum(merged[0.0]) / len(merged[0.0])


def _finished(finish: Finish, fields: Fields, timeout_s: float) -> ps.Run:
    return finish(**{**fields, "policy_options": {"push": 2, "push_timeout_s": timeout_s}})


def test_a_dbw_commit_has_the_chosen_number_of_fresh_gradients(finish: Finish, log: Log, small: Fields) -> None:
    run = finish(**{**small, "policy": "dbw", "workers": 3, "stragglers": SLOW_THIRD, "stop": ps.Stop(updates=60)})
    commits = log(run, "commit")
    assert {tuple(one["staleness"]) for one in commits} <= {(0,), (0, 0), (0, 0, 0)}
    assert {one["rate"] for one in commits} == {1.0}
    assert min(len(one["slots"]) for one in commits) < 3, "it never found out that the third worker is slow"


def test_elastic_bsp_meets_at_barriers_and_runs_on_between_them(finish: Finish, log: Log, small: Fields) -> None:
    paces = "uniform:low=0.01,high=0.02;factors:1,1.5,2"
    fields = {**small, "policy": "elastic-bsp", "workers": 3, "stragglers": paces}
    run = finish(**{**fields, "stop": ps.Stop(updates=120)})
    sizes = [len(one["slots"]) for one in log(run, "commit")]
    assert set(sizes) == {1, 3}


def test_cutoff_cuts_a_worker_that_is_much_slower(finish: Finish, log: Log, small: Fields) -> None:
    # Long enough that what else this machine does makes no fast worker look like the slow one.
    paces = "constant:seconds=0.1;factors:1,1,6"
    run = finish(**{**small, "policy": "cutoff", "workers": 3, "stragglers": paces, "stop": ps.Stop(updates=60)})
    sizes = [len(one["slots"]) for one in log(run, "commit")]
    assert sizes[0] == 3
    assert sizes[-20:] == [2] * 20
    assert log(run, "aborted")


def _applied(commits: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [pair for one in commits for pair in zip(one["slots"], one["sequences"], strict=True)]
