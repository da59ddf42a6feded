"""Accounts of steps that are made of several updates each: a bound of updates counts these, and not steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psplatform.jobs.replication import Bounded
from psplatform.replication.accounts import Account, account_factory


def lacking(*updates: int, **bounds: float) -> Account:
    """Make an account of steps of norm 1 with so many updates each, from position 1 on."""
    account = Account(**bounds)
    for position, count in enumerate(updates, start=1):
        account.add(position, 1.0, count)
    return account


def test_what_is_lacking_is_counted_in_updates() -> None:
    assert lacking(3, 1, 4).updates == 8


def test_a_step_is_one_update_where_nothing_else_is_said() -> None:
    account = Account()
    account.add(1, 1.0)
    assert account.updates == 1


def test_what_has_arrived_is_settled_step_by_step_with_all_its_updates() -> None:
    account, found = lacking(3, 1, 4, 2), []
    for position in (0, 1, 1, 3, 2, 4, 9):
        account.settle(position)
        found.append(account.updates)
    assert found == [10, 7, 7, 2, 2, 0, 0]


@pytest.mark.parametrize(
    ("updates", "within"), [((4,), True), ((5,), False), ((3, 1), True), ((3, 2), False), ((1, 1, 1, 1, 1), False)]
)
def test_a_version_is_within_as_long_as_no_more_updates_are_lacking_than_may(
    updates: tuple[int, ...], within: bool
) -> None:
    assert lacking(*updates, most_updates=4).within is within


def test_one_sum_above_the_bound_is_within_again_when_it_has_arrived() -> None:
    account = lacking(9, most_updates=4)
    assert (account.within, account.due) == (False, True)
    account.settle(1)
    assert (account.within, account.due) == (True, False)


def test_the_distance_does_not_depend_on_how_many_updates_a_step_is_made_of() -> None:
    for most in (2.5, 3.5):
        one, other = lacking(1, 1, 1, most_distance=most), lacking(8, 3, 5, most_distance=most)
        assert (one.distance, one.within, one.due) == (other.distance, other.within, other.due)
        for account in (one, other):
            account.settle(1)
        assert (one.distance, one.within, one.due) == (other.distance, other.within, other.due)


def due_at(account: Account, begin: int, updates: int) -> int:
    """Stage steps of so many updates from `begin` on until a transfer is due; return how many updates lack then."""
    for position in range(begin, begin + 1000):
        account.add(position, 1.0, updates)
        if account.due:
            return account.updates
    raise AssertionError("nothing is ever due")


@pytest.mark.parametrize(("updates", "lacks"), [(1, 10), (2, 10), (4, 12), (5, 10), (20, 20)])
def test_the_first_transfer_is_due_when_half_of_the_updates_that_may_lack_do(updates: int, lacks: int) -> None:
    assert due_at(Account(most_updates=20), 1, updates) == lacks


@pytest.mark.parametrize(
    ("meanwhile", "updates", "lacks"),
    [((), 1, 19), ((), 2, 18), ((), 4, 16), ((3,), 1, 13), ((1, 1, 1), 1, 13), ((2,), 4, 14), ((1, 1), 2, 14)],
)
def test_the_next_leaves_room_for_twice_the_updates_staged_meanwhile_and_for_one_step(
    meanwhile: tuple[int, ...], updates: int, lacks: int
) -> None:
    """As many updates as the last step has: to take a step for one update would hold versions back."""
    account = Account(most_updates=20)
    account.add(1, 1.0)
    for position, count in enumerate(meanwhile, start=2):
        account.add(position, 1.0, count)
    account.settle(1)
    assert due_at(account, 2 + len(meanwhile), updates) == lacks


def test_a_bound_of_a_job_counts_updates_whatever_steps_they_come_in() -> None:
    make = account_factory(Bounded(max_divergence=6, unit="updates"), 3)
    single, summed = make(), make()
    for position in range(1, 7):
        single.add(position, 1e9)
    for position in (1, 2):
        summed.add(position, 1e9, 3)
    assert (single.updates, single.within) == (summed.updates, summed.within) == (6, True)
    for account in (single, summed):
        account.add(7, 1e9)
    assert (single.updates, single.within) == (summed.updates, summed.within) == (7, False)


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 40))
@settings(max_examples=150)
def test_whatever_is_staged_and_arrives_the_updates_are_those_of_the_steps_that_lack(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    most = int(rng.integers(0, 30))
    account, staged, replica = Account(most_updates=most), [0], 0
    for position in range(1, count + 1):
        staged.append(int(rng.integers(1, 9)))
        account.add(position, float(rng.exponential()), staged[-1])
        if rng.random() < 0.4:
            replica = int(rng.integers(replica, position + 1))
            account.settle(replica)
        assert account.updates == sum(staged[replica + 1 :]), f"seed {seed}"
        assert account.within is (account.updates <= most), f"seed {seed}"


@given(seed=st.integers(0, 2**32 - 1), most=st.integers(1, 60))
@settings(max_examples=100)
def test_a_transfer_is_due_between_half_of_the_updates_that_may_lack_and_all_of_them(seed: int, most: int) -> None:
    rng = np.random.default_rng(seed)
    account, newest = Account(most_updates=most), 0
    for _ in range(20):
        while not account.due:
            newest += 1
            account.add(newest, 1.0, int(rng.integers(1, 9)))
            assert account.due or account.within, f"seed {seed}: nothing was sent, and nothing is visible any more"
        assert 2 * account.updates >= most, f"seed {seed}"
        begun = newest
        for _ in range(int(rng.integers(0, 4))):
            newest += 1
            account.add(newest, 1.0, int(rng.integers(1, 9)))
        account.settle(begun)
