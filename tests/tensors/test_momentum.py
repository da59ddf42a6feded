"""One step with the plain sum of several updates, and the same updates one after the other.

MLfabric (R. Viswanathan and A. Akella, 2020, section 5.2) sums updates on their way and applies the sum.  Update
u = -lr g; h is the last displacement, h_v = gamma h_(v-1) + u_v and w_v = w_(v-1) + h_v.  After m updates, with
S_q = 1 + gamma + ... + gamma^(q-1),

    w_m = w_0 + gamma S_m h_0 + sum_j S_(m-j+1) u_j      h_m = gamma^m h_0 + sum_j gamma^(m-j) u_j

A sum that aggregators make is applied as **one step** with the plain sum: w_0 + gamma h_0 + sum_j u_j.  That is the
same for gamma = 0 alone.  To be exact with momentum, an aggregator would have to forward both weighted sums.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from psplatform.jobs.optimizers import SGD
from psplatform.tensors.layout import Layout, TensorSpec
from psplatform.tensors.shard import Shard
from psplatform.tensors.vectors import allocate

Array = NDArray[np.float64]

LR = 0.1
SIZE = 37
LAYOUT = Layout.of([TensorSpec("w", (SIZE,), "float64", "parameter")], shards=1)
(REGION,) = LAYOUT.regions


def shard(momentum: float, initial: Array) -> Shard:
    storage = allocate(LAYOUT, 0), allocate(LAYOUT, 0)
    return Shard(LAYOUT, 0, SGD(lr=LR, momentum=momentum), {REGION.key: torch.from_numpy(initial)}, storage)


def apply(target: Shard, gradients: Sequence[Array], rate: float = 1.0) -> None:
    """Take one step with these contributions."""
    target.gather([{REGION.key: torch.from_numpy(one)} for one in gradients])
    target.stage(rate)
    target.publish(target.version + 1)


def parameters(target: Shard) -> Array:
    return target.front[REGION.key].numpy().copy()


def displacement(target: Shard) -> Array:
    """Return h, the last displacement: -lr times the velocity that the optimiser keeps."""
    state = target.state()
    name = f"momentum.{REGION.key}"
    return -LR * state[name].numpy() if name in state else np.zeros(SIZE)


def case(momentum: float, members: int) -> tuple[Shard, Shard, Array, Array, list[Array]]:
    """Return two equal shards that have taken three steps, their w_0 and h_0, and the next gradients."""
    rng = np.random.default_rng(members)
    initial = rng.normal(size=SIZE)
    pair = shard(momentum, initial), shard(momentum, initial)
    for gradient in rng.normal(size=(3, SIZE)):
        for one in pair:
            apply(one, [gradient])
    return *pair, parameters(pair[0]), displacement(pair[0]), list(rng.normal(size=(members, SIZE)))


def partial_sum(gamma: float, count: int) -> float:
    """S_q of the module's docstring."""
    return sum(gamma**power for power in range(count))


@pytest.mark.parametrize("members", [1, 2, 3, 7])
def test_without_momentum_one_step_with_the_sum_is_all_steps(members: int) -> None:
    in_turn, at_once, *_, gradients = case(0.0, members)
    for one in gradients:
        apply(in_turn, [one])
    apply(at_once, [np.sum(gradients, axis=0)])
    np.testing.assert_allclose(parameters(at_once), parameters(in_turn), rtol=0, atol=1e-13)


@pytest.mark.parametrize("gamma", [0.5, 0.9])
@pytest.mark.parametrize("members", [1, 2, 3, 7])
def test_with_momentum_the_two_weighted_sums_are_all_steps(gamma: float, members: int) -> None:
    in_turn, _, w, h, gradients = case(gamma, members)
    for one in gradients:
        apply(in_turn, [one])
    behind = range(members - 1, -1, -1)  # m - j
    ahead = sum(partial_sum(gamma, later + 1) * -LR * one for later, one in zip(behind, gradients, strict=True))
    kept = sum(gamma**later * -LR * one for later, one in zip(behind, gradients, strict=True))
    np.testing.assert_allclose(
        parameters(in_turn), w + gamma * partial_sum(gamma, members) * h + ahead, rtol=0, atol=1e-12
    )
    np.testing.assert_allclose(displacement(in_turn), gamma**members * h + kept, rtol=0, atol=1e-12)


@pytest.mark.parametrize("gamma", [0.5, 0.9])
@pytest.mark.parametrize("members", [2, 3, 7])
def test_with_momentum_one_step_with_the_sum_falls_short_by_what_the_momentum_of_the_members_adds(
    gamma: float, members: int
) -> None:
    """The platform takes the single step: w_0 + gamma h_0 + sum_j u_j, and version + m.

    All steps lead further by gamma S_(m-1) (gamma h_0 + ...) = gamma (S_m - 1) h_0 + sum_j (S_(m-j+1) - 1) u_j.
    """
    in_turn, at_once, w, h, gradients = case(gamma, members)
    for one in gradients:
        apply(in_turn, [one])
    apply(at_once, [np.sum(gradients, axis=0)])
    np.testing.assert_allclose(parameters(at_once), w + gamma * h - LR * np.sum(gradients, axis=0), rtol=0, atol=1e-12)
    behind = range(members - 1, -1, -1)
    missing = gamma * (partial_sum(gamma, members) - 1) * h + sum(
        (partial_sum(gamma, later + 1) - 1) * -LR * one for later, one in zip(behind, gradients, strict=True)
    )
    np.testing.assert_allclose(parameters(in_turn) - parameters(at_once), missing, rtol=0, atol=1e-12)
    assert np.linalg.norm(missing) > 0.1 * np.linalg.norm(parameters(at_once) - w)


@pytest.mark.parametrize("gamma", [0.0, 0.9])
def test_the_mean_at_m_times_the_rate_is_the_plain_sum_without_momentum_alone(gamma: float) -> None:
    """The learning rate multiplies the velocity: m times the rate takes the old velocity m times as well.

    A step with the mean of m gradients at m times the rate leads to w_0 + m gamma h_0 + sum_j u_j, and keeps a velocity
    of gamma v_0 + mean instead of gamma v_0 + sum.  So a sum must be applied as a sum.
    """
    by_rate, at_once, w, h, gradients = case(gamma, 4)
    apply(by_rate, gradients, rate=4.0)
    apply(at_once, [np.sum(gradients, axis=0)])
    np.testing.assert_allclose(
        parameters(by_rate), w + 4 * gamma * h - LR * np.sum(gradients, axis=0), rtol=0, atol=1e-12
    )
    np.testing.assert_allclose(parameters(by_rate) - parameters(at_once), 3 * gamma * h, rtol=0, atol=1e-12)
    if gamma:
        kept = displacement(at_once) - displacement(by_rate)
        np.testing.assert_allclose(kept, -LR * (1 - 1 / 4) * np.sum(gradients, axis=0), rtol=0, atol=1e-12)
