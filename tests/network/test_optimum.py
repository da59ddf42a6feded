"""The order of a few gradients beside optima: the best of all orders, and an integer program that no order can beat.

MLfabric (R. Viswanathan and A. Akella, 2020, section 10.1) states what an order should be as an integer program, and
replaces it by the greedy Algorithm 2.  Here both are solved for at most 5 gradients at steady rates.

* *The best order* is found by trying all of them on the product's own arithmetic of rates.
* *The integer program* places gradients at positions, and knows two things of a network: until the first i gradients
  have arrived, all of them have passed the server's interface, and those of each host that host's.  No way to send them
  has a lower mean, be it one after the other, at once or in pieces; some networks allow none with as low a mean.  It is
  written for this bound, and is not the paper's term by term.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest
from fabric_cases import network
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp

from psplatform.core.transfers import Offer
from psplatform.network.ordering import order
from psplatform.network.state import NetworkState

Array = NDArray[np.float64]

CASES, BLOCK = 400, 50
TO_THE_BEST_ORDER = 1.25
"""What the greedy mean is of the best order's at most.

Measured on 4300 drawn cases: 1.02 in the mean, 1.13 at the 95th percentile, 1.202 at most; 1.21 is the worst that a
search for bad cases found.  It is not proven.  The loss comes from slow hosts, which the greedy order lets wait behind
fast ones although they would leave most of the server's interface free.
"""

TO_THE_PROGRAM = 2.0
"""What each arrival of the greedy order is of the program's at the same position at most, which is proven.

The program's first i gradients hold one of some host h that is not among the first i - 1 of the greedy order.  Sent
next, it waits only while the server's interface is full, with i gradients at most, or that of h, with no more of its
gradients than the program has sent by then.  The program's i-th arrival is no sooner than either of the two, and the
greedy order sends what arrives first.  Of the means, 1.37 was the most on the same cases, 1.06 in the mean.
"""

ROUNDING = 1 + 1e-6


def drawn(seed: int) -> tuple[list[Offer], dict[str, float], float]:
    """Return 2 to 5 offers without deadlines, the rates of hosts and server, and the size; half with MLfabric's."""
    rng = random.Random(seed)
    hosts = [f"h{number}" for number in range(rng.randrange(1, 6))]
    printed = rng.random() < 0.5
    rates = {
        host: rng.choice((1.0, 2.5, 3.3, 5.0, 10.0)) if printed else rng.uniform(0.5, 10) for host in [*hosts, "s"]
    }
    return [Offer(key, rng.choice(hosts)) for key in range(rng.randrange(2, 6))], rates, rng.uniform(1, 8)


def steady(rates: dict[str, float]) -> NetworkState:
    return network({host: (rate, rate) for host, rate in rates.items()})


def greedy(offers: Sequence[Offer], rates: dict[str, float], size: float) -> Array:
    """Return when the gradients arrive that the product orders."""
    return np.array([one.end for one in order(offers, steady(rates), [("s", size)], now=0.0).transfers])


def served(offers: Sequence[Offer], rates: dict[str, float], size: float) -> Array:
    """Return when gradients arrive that are sent in this order."""
    state, ends = steady(rates), []
    for one in offers:
        transfer = state.transfer(one.host, [("s", size)], begin=0.0)
        state.reserve(transfer)
        ends.append(transfer.end)
    return np.array(ends)


def program(offers: Sequence[Offer], rates: dict[str, float], size: float) -> Array:
    """Return the arrivals T_1 <= T_2 ... with the smallest mean, by an integer program.

    x[g, i] is 1 if gradient g arrives as number i, counted from 1; each has one position, each position one gradient.

        T_i >= i * size / (rate of the server)
        T_i >= sum of x[g, j] over the gradients g of host h and j <= i * size / (rate of h)      for each host h
    """
    count = len(offers)
    each, every = np.eye(count), np.ones((1, count))
    placed = np.vstack([np.kron(each, every), np.kron(every, each)])
    constraints = [LinearConstraint(np.hstack([placed, np.zeros((2 * count, count))]), 1, 1)]
    for host in sorted({one.host for one in offers}):
        of_host = np.array([[float(one.host == host) for one in offers]])
        sent = np.kron(of_host, np.tril(np.ones((count, count))))
        constraints.append(LinearConstraint(np.hstack([-size / rates[host] * sent, each]), 0, np.inf))
    binaries = count * count
    soonest = size / rates["s"] * np.arange(1, count + 1)
    found = milp(
        np.repeat([0.0, 1 / count], [binaries, count]),
        integrality=np.repeat([1, 0], [binaries, count]),
        bounds=Bounds(np.concatenate([np.zeros(binaries), soonest]), np.repeat([1.0, np.inf], [binaries, count])),
        constraints=constraints,
        options={"mip_rel_gap": 0.0},
    )
    assert found.success, found.message
    return found.x[binaries:]


@pytest.mark.parametrize("block", range(CASES // BLOCK))
def test_the_greedy_order_is_near_the_best_one_and_neither_beats_the_program(block: int) -> None:
    for seed in range(BLOCK * block, BLOCK * (block + 1)):
        offers, rates, size = drawn(seed)
        ours, bound = greedy(offers, rates, size), program(offers, rates, size)
        best = min(served(one, rates, size).mean() for one in permutations(offers))
        assert bound.mean() <= best * ROUNDING, f"seed {seed}"
        assert best <= ours.mean() * ROUNDING, f"seed {seed}"
        assert ours.mean() <= TO_THE_BEST_ORDER * best, f"seed {seed}"
        assert (ours <= TO_THE_PROGRAM * ROUNDING * bound).all(), f"seed {seed}"


@pytest.mark.parametrize("seed", range(50))
def test_where_no_host_is_slower_than_the_server_all_three_are_the_same(seed: int) -> None:
    """One gradient arrives after the other, each in the time that the server's interface takes."""
    offers, rates, size = drawn(seed)
    rates["s"] = min(rates.values())
    expected = pytest.approx(size / rates["s"] * np.arange(1, len(offers) + 1))
    assert greedy(offers, rates, size) == expected, f"seed {seed}"
    assert program(offers, rates, size) == expected, f"seed {seed}"
    assert served(offers, rates, size) == expected, f"seed {seed}"


def test_beside_a_slow_host_the_greedy_order_is_not_the_best() -> None:
    """It arrives at 1 and 5 s, slow first at 4/3 and 4 s; the program's bound is 1 and 4 s."""
    offers, rates = [Offer(0, "slow"), Offer(1, "fast")], {"slow": 0.25, "fast": 1.0, "s": 1.0}
    assert greedy(offers, rates, 1.0) == pytest.approx([1.0, 5.0])
    assert served(offers, rates, 1.0) == pytest.approx([4.0, 4 / 3])
    assert program(offers, rates, 1.0) == pytest.approx([1.0, 4.0])


def most_kept(offers: Sequence[Offer]) -> int:
    """Return how many can be committed by their deadlines, by an integer program over the same x[g, i]."""
    count = len(offers)
    each, every = np.eye(count), np.ones((1, count))
    allowed = [float(one.deadline is None or place <= one.deadline) for one in offers for place in range(1, count + 1)]
    found = milp(
        -np.ones(count * count),
        integrality=np.ones(count * count),
        bounds=Bounds(np.zeros(count * count), np.array(allowed)),
        constraints=LinearConstraint(np.vstack([np.kron(each, every), np.kron(every, each)]), 0, 1),
    )
    assert found.success, found.message
    return round(-found.fun)


@pytest.mark.parametrize("seed", range(200))
def test_under_deadlines_no_more_are_kept_than_can_be_and_as_many_where_interfaces_are_alike(seed: int) -> None:
    """Elsewhere one that would hold up the others is dropped although it could meet its deadline."""
    rng = random.Random(seed)
    plain, rates, size = drawn(seed)
    offers = [Offer(one.key, one.host, rng.choice((None, 0, 1, 1, 2, 2, 3, 5))) for one in plain]
    most = most_kept(offers)
    for given in (rates, dict.fromkeys(rates, 1.0)):
        found = order(offers, steady(given), [("s", size)], now=0.0)
        late = [one.key for place, one in enumerate(found.kept, 1) if one.deadline is not None and place > one.deadline]
        assert late == [], f"seed {seed}"
        assert len(found.kept) <= most, f"seed {seed}"
    assert len(found.kept) == most, f"seed {seed}"
