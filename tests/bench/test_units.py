"""The arithmetic of the benches, without a cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from psplatform.bench import dense
from psplatform.bench.dense import Dense, seconds_of, task_of
from psplatform.bench.failover import _broken
from psplatform.bench.replication import interval, rates_of
from psplatform.bench.steps import mean_of
from psplatform.bench.wide import Wide
from psplatform.errors import ClusterError


def test_an_interval_of_ten_leaves_one_out_at_each_end() -> None:
    low, high, confidence = interval([float(one) for one in range(10)])
    assert (low, high) == (1.0, 8.0)
    assert confidence == pytest.approx(1 - 22 / 1024)


def test_an_interval_of_few_has_their_extremes_and_says_how_sure_that_is() -> None:
    assert interval([2.0, 1.0]) == (1.0, 2.0, 0.5)
    assert interval([2.0]) == (2.0, 2.0, 0.0)


def test_rates_are_those_between_the_first_counted_and_the_last_commit() -> None:
    applied: list[dict[str, Any]] = [
        {"version": 1 + number, "at": 10.0 + number / 4, "to_replica_bytes": 100 * number, "divergence": 3.0, "lag": 2}
        for number in range(9)
    ]
    rates = rates_of([{**record, "kind": "applied"} for record in applied])
    assert (rates.updates_per_second, rates.bytes_per_update, rates.step) == (4.0, 100.0, 1.5)


def test_checkpoints_count_where_commits_do() -> None:
    records: list[dict[str, Any]] = [{"kind": "applied", "version": at, "at": float(at)} for at in range(11)]
    events = ("complete", 1.0), ("complete", 4.0), ("failed", 7.0), ("complete", 10.5)
    records += [{"kind": "checkpoint", "event": event, "at": at} for event, at in events]
    assert [rates_of(records, part).checkpoints for part in (0.0, 1 / 5, 1 / 2)] == [2, 1, 0]


def test_bytes_are_those_from_one_transfer_to_another() -> None:
    """A state of 70 bytes after every 7 updates; what is counted begins and ends between two of them."""
    applied = [
        {"kind": "applied", "version": at, "at": float(at), "to_replica_bytes": at // 7 * 70} for at in range(5, 34)
    ]
    assert rates_of(applied, 0.0).bytes_per_update == 10.0
    assert rates_of(applied[:8], 0.0).bytes_per_update == 10.0, "one transfer, 7 updates"
    assert rates_of(applied[:2], 0.0).bytes_per_update == 0.0


def test_rates_leave_as_much_of_the_beginning_out_as_they_are_told() -> None:
    applied = [{"kind": "applied", "version": at * at, "at": float(at)} for at in range(11)]
    assert rates_of(applied, 1 / 5).updates_per_second == (100 - 4) / 8
    assert rates_of(applied, 0.0).updates_per_second == 10


def test_a_mean_step_is_what_replicas_are_behind_by_for_each_update_in_the_second_half() -> None:
    records: list[dict[str, Any]] = [{"kind": "run"}]
    records += [{"lag": lag, "divergence": 3.0 * lag * (1 + lag)} for lag in (1, 0, 1, 2, 2)]
    assert mean_of(records) == 9.0
    with pytest.raises(ClusterError, match="ever behind"):
        mean_of(records[:1])


PROMISED = {"distance_lost": 3.0, "bound": 5.0, "estimate": 4.0, "told_distance": 3.5, "updates_unconfirmed": 0}


@pytest.mark.parametrize(
    ("found", "broken"),
    [
        ({}, []),
        ({"distance_lost": 6.0, "estimate": 7.0, "told_distance": 7.0}, ["6 was lost, more than 5"]),
        ({"distance_lost": 4.5, "told_distance": 5.0}, ["4.5 was lost, more than the estimate of 4"]),
        ({"distance_lost": 3.75}, ["3.75 was lost, more than the 3.5 that the log tells of"]),
        ({"distance_lost": 3.75, "updates_unconfirmed": 1}, []),
        ({"distance_lost": None, "estimate": None, "told_distance": None}, []),
    ],
)
def test_what_was_promised_of_a_loss_is_looked_at(found: dict[str, Any], broken: list[str]) -> None:
    assert _broken({**PROMISED, **found}, same=True) == broken
    assert _broken({**PROMISED, **found}, same=False) == ["the promoted state is not the replica's", *broken]


def test_wide_gradients_are_those_of_its_loss() -> None:
    task = Wide(7)
    at = torch.linspace(-1, 1, 7)

    def loss(weights: torch.Tensor) -> float:
        return task.compute({"weights": weights}, None, np.random.default_rng(3)).loss

    gradient = task.compute({"weights": at}, None, np.random.default_rng(3)).tensors["weights"].clone()
    for number, step in enumerate(torch.eye(7) * 0.05):
        slope = (loss(at + step) - loss(at - step)) / 0.1
        assert slope == pytest.approx(float(gradient[number]), abs=2e-3)


def test_wide_gradients_differ_from_batch_to_batch() -> None:
    task, at = Wide(50), {"weights": torch.zeros(50)}
    first, second = (task.compute(at, None, np.random.default_rng(seed)).tensors["weights"].clone() for seed in (1, 2))
    assert not torch.equal(first, second)


def test_a_dense_task_takes_as_long_as_wanted_whatever_part_of_that_no_row_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dense, "seconds_of", lambda task: 0.02 + 0.001 * task.rows)
    task = task_of(10_000, 0.1, "compute")
    assert task.width == 100
    assert task.rows == pytest.approx(80, abs=2)
    assert task_of(10_000, 0.001, "compute").rows == 1


def test_a_dense_task_may_wait_instead_and_its_time_can_be_measured() -> None:
    assert isinstance(task_of(10_000, 0.01, "sleep"), Dense)
    assert seconds_of(Dense(10_000)) > 0
