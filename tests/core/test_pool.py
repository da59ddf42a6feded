"""The pool: what waits for the commit of its round."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from psplatform.core.coordination.order.commit_logs import Pool
from psplatform.core.policy import Gradient


@pytest.mark.parametrize("order", list(itertools.permutations([(0, 5), (0, 6), (2, 1)])))
def test_gradients_come_out_by_slot_and_sequence_whatever_the_order_of_arrival(
    order: tuple[tuple[int, int], ...], gradient: Callable[..., Gradient]
) -> None:
    pool = Pool()
    for slot, sequence in order:
        pool.add(gradient(slot, sequence))
    assert [(one.slot, one.sequence) for one in pool.drain()] == [(0, 5), (0, 6), (2, 1)]


def test_the_same_gradient_twice_is_one(gradient: Callable[..., Gradient]) -> None:
    pool = Pool()
    pool.add(gradient(1, 1))
    pool.add(gradient(1, 1))
    assert len(pool) == 1
    assert pool.holds(1, 1)
    assert not pool.holds(1, 2)


def test_draining_empties_the_pool(gradient: Callable[..., Gradient]) -> None:
    pool = Pool()
    pool.add(gradient(1, 1))
    pool.drain()
    assert not pool
    assert pool.drain() == ()
