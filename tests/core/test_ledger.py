"""The ledger: which decided commits are not yet visible on every shard."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from psplatform.core.coordination.order.commit_logs import Entry, Ledger, clipping_factor
from psplatform.core.policy import Committed, Gradient
from psplatform.core.protocol.messages import Applied, Gathered

Make = Callable[..., Gradient]


def commit(position: int, gradient: Make) -> Committed:
    return Committed(position, position, (gradient(0, position),), (0,))


def applied(shard: int, position: int, *norms: float) -> Applied:
    return Applied(shard, 1, position, position, norms)


def test_a_commit_is_closed_when_the_last_shard_shows_it(gradient: Make) -> None:
    ledger = Ledger(2)
    ledger.open(Entry(commit(1, gradient), decided_at=3.0))
    assert ledger.applied(applied(1, 1)) == []
    assert ledger.applied(applied(1, 1)) == []
    ((entry, _),) = ledger.applied(applied(0, 1))
    assert (entry.commit.position, entry.decided_at, len(ledger)) == (1, 3.0, 0)


def test_repeated_reports_of_a_closed_commit_change_nothing(gradient: Make) -> None:
    ledger = Ledger(1)
    ledger.open(Entry(commit(1, gradient), decided_at=0.0))
    ledger.applied(applied(0, 1))
    assert ledger.applied(applied(0, 1)) == []
    assert ledger.gathered(Gathered(0, 1, 1, (1.0,))) is None


def test_commits_are_closed_in_their_order_whatever_the_order_of_the_reports(gradient: Make) -> None:
    ledger = Ledger(1)
    for position in (1, 2, 3):
        ledger.open(Entry(commit(position, gradient), decided_at=0.0))
    assert ledger.applied(applied(0, 2)) == []
    assert [entry.commit.position for entry, _ in ledger.applied(applied(0, 1))] == [1, 2]
    assert [entry.commit.position for entry, _ in ledger.applied(applied(0, 3))] == [3]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_squared_norm_does_not_depend_on_the_order_of_the_shards(order: tuple[int, ...], gradient: Make) -> None:
    blocks = {0: (1e16, 1.0), 1: (1.0,), 2: (0.1, 1e-9)}
    ledger = Ledger(3)
    ledger.open(Entry(commit(1, gradient), decided_at=0.0))
    totals = [ledger.gathered(Gathered(shard, 1, 1, blocks[shard])) for shard in order]
    assert totals[:2] == [None, None]
    assert totals[2] == math.fsum([1e16, 1.0, 1.0, 0.1, 1e-9])
    closed = [one for shard in order for one in ledger.applied(applied(shard, 1, *blocks[shard]))]
    assert [total for _, total in closed] == [totals[2]]


@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=40), st.floats(1e-3, 1e4, allow_subnormal=False))
@settings(max_examples=100)
def test_the_clipping_factor_is_the_one_of_torch(values: list[float], limit: float) -> None:
    parameter = torch.nn.Parameter(torch.zeros(len(values), dtype=torch.float64))
    gradient = torch.tensor(values, dtype=torch.float64)
    parameter.grad = gradient.clone()
    norm = torch.nn.utils.clip_grad_norm_([parameter], limit)
    factor = clipping_factor(float(norm) ** 2, limit)
    torch.testing.assert_close(parameter.grad, gradient * factor, rtol=1e-12, atol=1e-12)


def test_a_gradient_within_the_limit_is_not_scaled() -> None:
    assert clipping_factor(4.0, 2.1) == 1.0
