"""``bench replication``: every mode once, and what replicas and checkpoints cost."""

from __future__ import annotations

from typing import Any

import pytest

from psplatform.bench import replication


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """Measure for seconds, with gradients that take next to no time even where other tests run beside.

    On a busy machine no checkpoint may be complete between two transfers in so short a time: then for longer.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replication, "BOUNDS", (8,))
        for seconds in (2.0, 8.0, 20.0):
            measured = replication.measure(
                parameters=2500, pairs=1, seconds=2.0, gradient_s=0.0005, checkpoint_s=seconds
            )
            if measured["overhead"]["checkpoint"]["checkpoints"]:
                break
        return measured


def test_every_mode_is_compared_with_none(found: dict[str, Any]) -> None:
    rows = found["results"]
    assert [(row["mode"], row["unit"], row["target"], row["source"]) for row in rows] == [
        ("none", None, None, None),
        ("chain", "updates", "replica", "server"),
        ("bounded", "updates", "replica", "server"),
        ("bounded", "norm", "replica", "server"),
        ("bounded", "updates", "store", "server"),
        ("chain", "updates", "replica", "workers"),
        ("bounded", "updates", "replica", "workers"),
    ]
    assert rows[0]["relative"] == 1.0
    for row in rows:
        assert row["updates_per_second"] > 0
        assert row["relative"] == row["updates_per_second"] / rows[0]["updates_per_second"]


def test_chain_sends_each_update_once_and_none_sends_nothing(found: dict[str, Any]) -> None:
    none, chain, *_ = found["results"]
    assert none["bytes_to_replica_per_update"] == 0
    assert chain["bytes_to_replica_per_update"] == chain["closed_form_bytes_per_update"] == 4 * 2500


def test_both_claims_are_told_with_an_interval(found: dict[str, Any]) -> None:
    assert set(found["overhead"]) == {"bounded", "checkpoint"}
    bounded, checkpoint = found["overhead"]["bounded"], found["overhead"]["checkpoint"]
    for overhead in (bounded, checkpoint, checkpoint["runs"]):
        assert overhead["low"] <= overhead["median"] <= overhead["high"]
    assert bounded["pairs"] == checkpoint["runs"]["pairs"] == 1
    assert checkpoint["checkpoints"] > 0, "none was written in what is counted"
