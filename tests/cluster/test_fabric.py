"""Planned transfers on a real cluster: the same updates, in the order in which gradients are let go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import psplatform as ps
from psplatform.core import reasons
from psplatform.errors import ConfigurationError

Finish = Callable[..., ps.Run]
Log = Callable[..., list[dict[str, Any]]]
Fields = dict[str, Any]

FABRIC = {"fabric": {"tick_s": 0.05, "aggregators": 0, "changes_s": None}}
LATE = "it could be applied up to version"
MODEL = 82
"""Parameters of the small model."""


@pytest.mark.parametrize("transport", ["auto", "comms"])
def test_rounds_are_whole_whatever_is_planned(finish: Finish, log: Log, small: Fields, transport: str) -> None:
    """Nothing has a deadline under bsp: every gradient is sent, seen where it lies or not."""
    run = finish(**{**small, "policy": "bsp", "transport": transport, "network": FABRIC})
    assert [one["version"] for one in log(run, "commit")] == list(range(1, 21))
    assert all(sorted(one["slots"]) == [0, 1] and one["staleness"] == [0, 0] for one in log(run, "commit"))
    assert log(run, "dropped") == []
    network = run.metrics()["network"]
    assert network["fabric"] == FABRIC["fabric"]
    assert (network["dropped_at_source"], network["delay"]) == (0, {"mean": 0.0, "p95": 0, "max": 0})
    sent = len(log(run, "transfer"))  # what is seen where it lies is not offered; what came before the first may not be
    assert (sent > 0) is (transport == "comms")
    assert network["bytes_in"] == sent * 4 * MODEL
    assert network["aggregation"] == (1.0 if sent else None)


def test_planned_gradients_keep_to_the_bound_of_their_delay(finish: Finish, log: Log, small: Fields) -> None:
    """What is not applied is known: it was late when it came, or was not even sent."""
    planned = {"policy": "delay-bounded", "policy_options": {"max_delay": 2}, "transport": "comms", "network": FABRIC}
    run = finish(**{**small, **planned, "workers": 3, "stop": ps.Stop(updates=60), "stragglers": "factors:1,1,3"})
    commits, dropped = log(run, "commit"), log(run, "dropped")
    assert [one["version"] for one in commits] == list(range(1, 61))
    assert max(max(one["staleness"]) for one in commits) < 2
    applied = {(slot, number) for one in commits for slot, number in zip(one["slots"], one["sequences"], strict=True)}
    assert len(applied) == 60
    assert not applied & {(one["slot"], one["sequence"]) for one in dropped}
    assert {one["reason"] for one in dropped} <= {"delay", reasons.NOT_SENT, reasons.STOPPED}
    unsent = [one for one in dropped if one["reason"] == reasons.NOT_SENT]
    assert all(LATE in one["detail"] for one in unsent)
    summary = run.metrics()
    assert (summary["outcome"], summary["updates"]) == ("updates", 60)
    assert summary["network"]["dropped_at_source"] == len(unsent)
    assert summary["network"]["delay"]["max"] == max(max(one["staleness"]) for one in commits)


def test_a_run_without_a_fabric_speaks_of_none(finish: Finish, small: Fields) -> None:
    assert "network" not in finish(**small).metrics()


def test_a_policy_of_blocks_is_refused_before_anything_starts(small: Fields, tmp_path: Any) -> None:
    store = tmp_path / "run.zarr"
    with pytest.raises(ConfigurationError, match="the policy decides block by block; choose another policy") as caught:
        ps.train(ps.Job(**{**small, "policy": "psp", "network": FABRIC, "store": str(store)}))
    assert caught.value.field == "network"
    assert not store.exists()
