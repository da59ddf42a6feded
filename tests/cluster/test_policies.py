"""Every policy on a real cluster: it trains, and the log in the store shows its promise."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

import psplatform as ps

Finish = Callable[..., ps.Run]
Log = Callable[..., list[dict[str, Any]]]
Fields = dict[str, Any]

SLOW_THIRD = "constant:seconds=0.02;factors:1,1,6"
SLOW_SECOND = "constant:seconds=0.02;factors:1,5"


@pytest.mark.parametrize("policy", ["bsp", "backup", "ssp", "asp"])
def test_every_policy_learns(finish: Finish, log: Log, small: Fields, policy: str) -> None:
    """Two hundred updates tell the two spirals apart better than the model did at first."""
    run = finish(**{**small, "policy": policy, "stop": ps.Stop(updates=200), "evaluate_every": 1})
    first, last = (log(run, "evaluated")[at] for at in (0, -1))
    assert last["version"] == 200
    assert last["loss"] < first["loss"] - 0.1
    assert run.metrics()["updates"] == 200


@pytest.mark.parametrize("policy", ["asp", "backup", "bsp", "ssp"])
def test_digits_are_learned_under_every_policy(finish: Finish, policy: str) -> None:
    """The bundled workload with its own settings reaches 97 % of the held-out digits, under stragglers."""
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


def _applied(commits: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [pair for one in commits for pair in zip(one["slots"], one["sequences"], strict=True)]
