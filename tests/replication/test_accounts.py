"""The accounts of what replicas lack: never below the truth, and within exactly where the bound is kept."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psplatform.jobs.replication import Bounded, Chain, NoReplication
from psplatform.replication.accounts import Account, account_factory

MAGNITUDES = st.sampled_from([1e-30, 1e-8, 1.0, 1e8, 1e30])


@given(
    seed=st.integers(0, 2**32 - 1),
    scales=st.lists(MAGNITUDES, min_size=1, max_size=30),
    settles=st.lists(st.booleans(), min_size=30, max_size=30),
)
@settings(max_examples=150)
def test_the_estimate_is_never_below_the_true_distance(seed: int, scales: list[float], settles: list[bool]) -> None:
    """Parameters in float64; steps are measured in float64 from where they begin to where they really end."""
    rng = np.random.default_rng(seed)
    account, server = Account(), [np.zeros(7)]
    replica = 0
    for position, (scale, settled) in enumerate(zip(scales, settles, strict=False), start=1):
        server.append(server[-1] + rng.standard_normal(7) * scale)
        account.add(position, float(np.linalg.norm(server[-1] - server[-2])))
        if settled:
            replica = int(rng.integers(replica, position + 1))
            account.settle(replica)
        assert account.distance >= np.linalg.norm(server[-1] - server[replica])
        assert account.updates == position - replica


def test_a_replica_that_lacks_nothing_is_at_distance_zero_exactly() -> None:
    account = Account(most_distance=1.0)
    for position, step in enumerate((0.1, 1e9, 0.3), start=1):
        account.add(position, step)
    account.settle(3)
    assert (account.distance, account.updates, account.within, account.due) == (0.0, 0, True, False)


def test_settling_what_is_settled_changes_nothing() -> None:
    account = Account()
    for position in (1, 2, 3):
        account.add(position, 1.0)
    account.settle(2)
    before = account.distance
    for position in (2, 1, 0):
        account.settle(position)
    assert (account.distance, account.updates) == (before, 1)


def test_positions_that_were_lost_are_no_steps() -> None:
    """The order goes on at 7, and a replica that stands at 6 has everything before it."""
    account = Account(most_updates=1)
    account.add(7, 1.0)
    account.settle(6)
    assert account.updates == 1
    account.settle(9)
    assert account.updates == 0


@pytest.mark.parametrize("account", [Account(0.0, 0), account_factory(Chain(), 3)()], ids=["both", "of a job"])
def test_a_bound_of_nothing_is_chain_replication(account: Account) -> None:
    """Not even a step that moves nothing may be visible before the replica has it."""
    assert account.within
    account.add(1, 0.0)
    assert not account.within
    assert account.due
    account.settle(1)
    assert account.within


def test_updates_are_counted() -> None:
    account = account_factory(Bounded(max_divergence=4, unit="updates"), 9)()
    found = []
    for position in range(1, 6):
        account.add(position, 1e9)
        found.append((account.within, account.due))
    assert found == [(True, False), (True, True), (True, True), (True, True), (False, True)]


def due_at(account: Account, begin: int, step: float = 1.0) -> int:
    """Stage steps from `begin` on until a transfer is due; return the position at which it is."""
    for position in range(begin, begin + 1000):
        account.add(position, step)
        if account.due:
            return position
    raise AssertionError("nothing is ever due")


@pytest.mark.parametrize("account", [Account(most_updates=20), Account(most_distance=20.0)], ids=["updates", "norm"])
def test_a_transfer_begins_as_late_as_the_last_ones_tell(account: Account) -> None:
    """The first at half of the bound; then there is room for twice what was staged meanwhile, and for one step."""
    begun = due_at(account, 1)
    assert begun == 10
    for meanwhile, lacking in ((0, 19), (1, 17), (3, 13), (9, 10)):
        for position in range(begun + 1, begun + 1 + meanwhile):
            account.add(position, 1.0)
        account.settle(begun)
        assert account.within
        begun, before = due_at(account, begun + 1 + meanwhile), begun
        assert begun - before == lacking


def test_a_slow_transfer_is_remembered_for_as_long_as_it_is_one_of_the_last_eight() -> None:
    account, begun, merged = Account(most_updates=20), 0, []
    for meanwhile in (3, 0, 0, 0, 0, 0, 0, 0, 0):
        standing, begun = begun, due_at(account, account.updates + begun + 1)
        merged.append(begun - standing)
        for position in range(begun + 1, begun + 1 + meanwhile):
            account.add(position, 1.0)
        account.settle(begun)
    assert merged == [10, *[13] * 8]
    assert due_at(account, begun + 1) - begun == 19


@given(seed=st.integers(0, 2**32 - 1), most=st.floats(0.0, 1e6), slowest=st.integers(0, 30))
@settings(max_examples=100)
def test_a_transfer_is_due_between_half_of_the_bound_and_all_of_it(seed: int, most: float, slowest: int) -> None:
    rng = np.random.default_rng(seed)
    account, newest = Account(most_distance=most), 0
    for _ in range(20):
        while not account.due:
            newest += 1
            account.add(newest, float(rng.exponential(most / 10 + 1e-3)))
            assert account.due or account.within, f"seed {seed}: nothing was sent, and nothing is visible any more"
        assert 2 * account.distance >= most
        begun = newest
        for _ in range(int(rng.integers(0, slowest + 1))):
            newest += 1
            account.add(newest, float(rng.exponential(most / 10 + 1e-3)))
        account.settle(begun)


def test_a_distance_of_the_model_is_shared_among_its_shards() -> None:
    """Distances add up as squares: each of four shards may use up half."""
    account = account_factory(Bounded(max_divergence=1.0), 4)()
    found = []
    for position, step in enumerate((0.2, 0.1, 0.199, 0.01), start=1):
        account.add(position, step)
        found.append((account.within, account.due))
    assert found == [(True, False), (True, True), (True, True), (False, True)]


def test_without_a_bound_nothing_is_ever_due() -> None:
    account = account_factory(NoReplication(), 1)()
    account.add(1, 1e300)
    assert account.within
    assert not account.due


def test_a_step_that_is_not_finite_is_never_within_a_distance() -> None:
    account = Account(most_distance=1e300)
    account.add(1, math.inf)
    assert not account.within
    assert account.due
