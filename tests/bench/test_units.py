"""The arithmetic of the benches, without a cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from psplatform.bench.failover import _broken
from psplatform.bench.measuring.rates import cost_of_checkpoints, interval, rates_of
from psplatform.bench.measuring.steps import mean_of
from psplatform.bench.replication import _told
from psplatform.bench.tasks import dense
from psplatform.bench.tasks.dense import Dense, seconds_of, task_of
from psplatform.bench.tasks.wide import Wide
from psplatform.errors import ClusterError


def test_an_interval_of_ten_leaves_one_out_at_each_end() -> None:
    low, high, confidence = interval([float(one) for one in range(10)])
    assert (low, high) == (1.0, 8.0)
    assert confidence == pytest.approx(1 - 22 / 1024)


def test_an_interval_of_few_has_their_extremes_and_says_how_sure_that_is() -> None:
    assert interval([2.0, 1.0]) == (1.0, 2.0, 0.5)
    assert interval([2.0]) == (2.0, 2.0, 0.0)


def test_what_is_told_of_overheads_is_none_where_there_are_none() -> None:
    told = _told([0.03, 0.01, 0.08])
    assert (told["median"], told["mean"], told["low"], told["high"]) == (0.03, pytest.approx(0.04), 0.01, 0.08)
    assert set(_told([])) == set(told)
    assert set(_told([]).values()) == {None}


def test_rates_are_those_between_the_first_counted_and_the_last_commit() -> None:
    applied: list[dict[str, Any]] = [
        {"version": 1 + number, "at": 10.0 + number / 4, "to_replica_bytes": 100 * number, "divergence": 3.0, "lag": 2}
        for number in range(9)
    ]
    rates = rates_of([{**record, "kind": "applied"} for record in applied])
    assert (rates.updates_per_second, rates.bytes_per_update, rates.step) == (4.0, 100.0, 1.5)


def log_of(cuts: dict[int, float], slow: dict[int, float] | None = None, versions: int = 400) -> list[dict[str, Any]]:
    """A log of one update in 0.25 s, 0.5 s for the one behind a transfer, and `slow` seconds more for others.

    There is a transfer after every 20 updates, and at each of the cuts, which are complete after so many seconds; each
    was tried before and failed at the same moment.
    """
    at, sent, last, records = 0.0, 0, 0, []
    for version in range(1, versions + 1):
        at += 0.25 + (slow or {}).get(version, 0.0) + (0.25 if version - 1 == last else 0.0)
        records.append({"kind": "applied", "version": version, "at": at, "to_replica_bytes": sent})
        if version in cuts:
            took = cuts[version]
            complete = {"kind": "checkpoint", "event": "complete", "at": at + took, "seconds": took + 0.1}
            records += [{**complete, "event": "failed"}, complete]
        if version in cuts or version - last == 20:
            sent, last = sent + 70, version
    return records


@pytest.mark.parametrize("phase", range(1, 20))
def test_a_checkpoint_costs_what_updates_took_longer_between_the_transfers_around_it(phase: int) -> None:
    """0.4 s; and of the transfer, whatever it brings forward: it was due in so many updates."""
    cut = 100 + phase
    held_up = {cut + 1: 0.3, cut + 2: 0.1}
    cost, found = cost_of_checkpoints(log_of({cut: 0.7}, held_up), 0.0)
    assert (cost, found) == (pytest.approx(0.4 + 0.25 * (20 - phase) / 20), 1)


def test_what_the_log_shows_before_the_version_of_the_cut_counts_as_well() -> None:
    cost, _ = cost_of_checkpoints(log_of({119: 0.7}, {119: 0.09}), 0.0)
    assert cost == pytest.approx(0.09 + 0.25 / 20)


def test_updates_may_be_held_up_until_a_checkpoint_is_complete() -> None:
    """One that writes for 14 s, through two transfers."""
    slow = dict.fromkeys(range(120, 160), 0.02)
    assert cost_of_checkpoints(log_of({119: 14.0}, slow), 0.0) == (pytest.approx(0.8 + 0.25 / 20), 1)
    blind, _ = cost_of_checkpoints(log_of({119: 0.7}, slow), 0.0)
    assert blind < 0.4


def test_two_checkpoints_in_a_run_cost_their_mean_and_a_slow_beginning_nothing() -> None:
    initial_role = dict.fromkeys(range(1, 100), 0.2)
    records = log_of({150: 0.7, 260: 0.7}, {**initial_role, 151: 0.6, 261: 0.2})
    cost, found = cost_of_checkpoints(records, 1 / 3)
    assert (cost, found) == (pytest.approx(0.4 + 0.25 * 0.5), 2)


def test_a_checkpoint_that_failed_is_neither_measured_nor_compared_with() -> None:
    held_up = {101: 3.0, 202: 0.4}
    records = log_of({100: 0.7, 201: 0.7}, held_up)
    first = next(one for one in records if one.get("event") == "complete")
    records.remove(first)
    assert cost_of_checkpoints(records, 0.0) == (pytest.approx(0.4 + 0.25 * 19 / 20), 1)


def test_a_checkpoint_is_measured_only_between_transfers() -> None:
    """Not in the first updates, nor in the last; without replicas there are updates on both sides."""
    records = log_of({10: 0.7, 395: 0.7})
    assert cost_of_checkpoints(records, 0.0)[1] == 0
    held_up = log_of({10: 0.7, 209: 0.7, 395: 0.7}, {11: 5.0, 210: 0.3, 396: 5.0})
    assert cost_of_checkpoints(held_up, 0.0) == (pytest.approx(0.3 + 0.25 / 20), 1)
    alone = [{**one, "to_replica_bytes": 0} for one in log_of({10: 0.7, 395: 0.7})]
    assert cost_of_checkpoints(alone, 0.0)[1] == 2
    assert cost_of_checkpoints(log_of({1: 0.1}, versions=2), 0.0)[1] == 0
    assert cost_of_checkpoints(log_of({1: 0.1}, versions=1), 0.0)[1] == 0


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
