"""Commits of which some contributions are sums already: what a shard makes of them is what adding by hand makes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial

import pytest
import torch
from torch import Tensor

from psplatform.jobs.optimizers import SGD, AdaGrad, Adam, Additive, Group, Optimizer, RMSProp
from psplatform.tensors.layout import Layout, TensorSpec
from psplatform.tensors.norms import norm
from psplatform.tensors.shard import Shard
from psplatform.tensors.step_norm import PRECISION
from psplatform.tensors.sums import add_up
from psplatform.tensors.vectors import allocate, shard_vectors

Vectors = dict[str, Tensor]

SPECS = [
    TensorSpec("a", (7, 31), "float32", "parameter"),
    TensorSpec("b", (601,), "float32", "parameter"),
    TensorSpec("c", (67,), "float64", "parameter"),
    TensorSpec("mean", (17,), "float32", "buffer"),
    TensorSpec("steps", (3,), "int64", "buffer"),
    TensorSpec("mask", (4,), "bool", "buffer"),
]
LAYOUT = Layout.of(SPECS, shards=1)
PARAMETERS = ("parameter.float32", "parameter.float64")
FLOATS = (*PARAMETERS, "buffer.float32")
OTHERS = ("buffer.int64", "buffer.bool")
LR = 0.1
PLAIN = SGD(lr=LR)
OPTIMIZERS: list[Optimizer] = [
    PLAIN,
    SGD(lr=LR, momentum=0.9, nesterov=True, weight_decay=0.1),
    Adam(),
    AdaGrad(),
    RMSProp(centered=True, momentum=0.5),
    Additive(groups=(Group("*"),)),
]


def random_vectors(seed: int, layout: Layout = LAYOUT) -> Vectors:
    """Return whole regions whose contents depend on the seed alone, of magnitudes that make rounding visible."""
    generator = torch.Generator().manual_seed(seed)
    vectors = allocate(layout)
    for vector in vectors.values():
        first, second = torch.randn(2, *vector.shape, generator=generator, dtype=torch.float64)
        drawn = first * 10**second
        vector.copy_(drawn > 0 if vector.dtype == torch.bool else drawn * 3)
    return vectors


def make_shard(spec: Optimizer, initial: Vectors, layout: Layout = LAYOUT, index: int = 0) -> Shard:
    storage = allocate(layout, index), allocate(layout, index)
    return Shard(layout, index, spec, shard_vectors(layout, index, initial), storage)


def summed(parts: Sequence[Vectors]) -> Vectors:
    """Return what an aggregator sends."""
    out = allocate(LAYOUT)
    add_up(parts, out)
    return out


def by_hand(parts: Sequence[Vectors], key: str) -> Tensor:
    """Add one region up in the order given; of what is no floating-point number, return the maximum."""
    out = parts[0][key]
    for one in parts[1:]:
        out = out + one[key] if out.is_floating_point() else torch.maximum(out, one[key])
    return out


def is_same(one: Vectors, other: Vectors) -> bool:
    """Whether two sets of vectors have the same bits."""
    return one.keys() == other.keys() and all(torch.equal(vector, other[key]) for key, vector in one.items())


def commit(target: Shard, rate: float = 1.0) -> None:
    target.stage(rate)
    target.publish(target.version + 1)


GRADIENTS = [random_vectors(seed) for seed in range(5)]
INITIAL = random_vectors(99)
# What servers get of five gradients, and how it must be added up.
PARTS = [summed(GRADIENTS[:2]), GRADIENTS[2], summed(GRADIENTS[3:])]


def expected(key: str) -> Tensor:
    """Return the sum that is made of `PARTS`, with every addition written down."""
    a, b, c, d, e = (one[key] for one in GRADIENTS)
    if key in FLOATS:
        return ((a + b) + c) + (d + e)
    return torch.stack([a, b, c, d, e]).amax(0)


# --- what an aggregator does ---


@pytest.mark.parametrize("count", [1, 2, 5])
def test_parts_are_added_in_their_order_and_of_counters_the_maximum_is_taken(count: int) -> None:
    parts, out = GRADIENTS[:count], {key: torch.ones_like(vector) for key, vector in INITIAL.items()}
    before = copy.deepcopy(parts)
    out["parameter.float32"].fill_(float("nan"))
    add_up(parts, out)
    assert all(torch.equal(out[key], by_hand(parts, key)) for key in out)
    assert all(is_same(was, now) for was, now in zip(before, parts, strict=True)), "parts are only read"


@pytest.mark.parametrize("key", FLOATS)
def test_another_order_makes_other_bits(key: str) -> None:
    """Or the order would be nothing to agree on, and the tests here would not see it."""
    assert not torch.equal(summed(GRADIENTS)[key], summed(GRADIENTS[::-1])[key])
    assert not torch.equal(expected(key), by_hand(GRADIENTS, key))


def test_only_what_there_is_room_for_is_summed() -> None:
    out = {"parameter.float32": torch.empty_like(INITIAL["parameter.float32"])}
    add_up(GRADIENTS, out)
    assert list(out) == ["parameter.float32"]
    assert torch.equal(out["parameter.float32"], by_hand(GRADIENTS, "parameter.float32"))


# --- the mean ---


def test_the_mean_is_over_all_gradients_that_the_sums_are_made_of() -> None:
    shard = make_shard(PLAIN, INITIAL)
    shard.gather(PARTS, gradients=5)
    assert all(torch.equal(shard.gathered[key], expected(key) / 5) for key in FLOATS)
    assert all(torch.equal(shard.gathered[key], expected(key)) for key in OTHERS)


def test_a_sum_alone_becomes_a_mean_and_stays_what_it_was() -> None:
    shard, contribution = make_shard(PLAIN, INITIAL), summed(GRADIENTS[:3])
    shard.gather([contribution], gradients=3)
    for key in FLOATS:
        a, b, c = (one[key] for one in GRADIENTS[:3])
        assert torch.equal(shard.gathered[key], ((a + b) + c) / 3)
    shard.scale(0.5)
    commit(shard)
    assert is_same(contribution, summed(GRADIENTS[:3]))


@pytest.mark.parametrize("count", [1, 3])
def test_gradients_that_came_one_by_one_are_merged_as_if_nobody_had_counted_them(count: int) -> None:
    counted, plain = make_shard(PLAIN, INITIAL), make_shard(PLAIN, INITIAL)
    counted.gather(GRADIENTS[:count], gradients=count)
    plain.gather(GRADIENTS[:count])
    assert is_same(dict(counted.gathered), dict(plain.gathered))
    for shard in (counted, plain):
        commit(shard)
    assert is_same(counted.state(), plain.state())


# --- the sum ---


@pytest.mark.parametrize(
    ("parts", "gradients"), [(PARTS, 5), (GRADIENTS[:3], 3), (GRADIENTS[:3], 0), (PARTS[:1], 2), (GRADIENTS[:1], 1)]
)
def test_parameters_get_the_sum_of_updates_and_buffers_what_they_always_get(
    parts: list[Vectors], gradients: int
) -> None:
    shard = make_shard(PLAIN, INITIAL)
    shard.gather(parts, gradients=gradients, added=True)
    assert all(torch.equal(shard.gathered[key], by_hand(parts, key)) for key in PARAMETERS)
    assert torch.equal(shard.gathered["buffer.float32"], by_hand(parts, "buffer.float32") / (gradients or len(parts)))
    assert all(torch.equal(shard.gathered[key], by_hand(parts, key)) for key in OTHERS)
    commit(shard, rate=0.25)
    assert torch.equal(shard.front["buffer.float32"], by_hand(parts, "buffer.float32") / (gradients or len(parts)))
    assert all(torch.equal(shard.front[key], by_hand(parts, key)) for key in OTHERS)


@pytest.mark.parametrize("added", [False, True])
def test_changes_are_always_summed(added: bool) -> None:
    shard = make_shard(OPTIMIZERS[-1], INITIAL)
    shard.gather(PARTS, gradients=5, added=added)
    assert all(torch.equal(shard.gathered[key], expected(key)) for key in PARAMETERS)
    assert torch.equal(shard.gathered["buffer.float32"], expected("buffer.float32") / 5)
    assert all(torch.equal(shard.gathered[key], expected(key)) for key in OTHERS)


@pytest.mark.parametrize("rate", [1.0, 0.25])
def test_a_step_with_a_sum_goes_as_far_as_all_its_updates(rate: float) -> None:
    """To w - lr * sum; the parameters that workers see do not change before that is published."""
    shard = make_shard(PLAIN, INITIAL)
    shard.gather(PARTS, gradients=5, added=True)
    shard.stage(rate)
    assert all(torch.equal(shard.front[key], INITIAL[key]) for key in INITIAL)
    shard.publish(5)
    for key in PARAMETERS:
        wanted = INITIAL[key].double() - rate * LR * expected(key).double()
        torch.testing.assert_close(shard.front[key].double(), wanted, rtol=1e-5, atol=1e-5)
    wanted = INITIAL["parameter.float64"] - rate * LR * expected("parameter.float64")
    torch.testing.assert_close(shard.front["parameter.float64"], wanted, rtol=0, atol=1e-12)
    assert (shard.version, shard.commits) == (5, 1)


@pytest.mark.parametrize("gamma", [0.5, 0.9])
def test_with_momentum_the_old_velocity_counts_once(gamma: float) -> None:
    """To w' = w - lr (gamma v + sum) and v' = gamma v + sum, after three commits of one gradient each."""
    key = "parameter.float64"
    shard = make_shard(SGD(lr=LR, momentum=gamma), INITIAL)
    w, v = INITIAL[key].clone(), torch.zeros_like(INITIAL[key])
    for seed in (11, 12, 13):
        one = random_vectors(seed)
        shard.gather([one])
        commit(shard)
        v = gamma * v + one[key]
        w -= LR * v
    for merged, fields in ((expected(key), {"added": True}), (expected(key) / 5, {})):
        shard.gather(PARTS, gradients=5, **fields)
        commit(shard)
        v = gamma * v + merged
        w -= LR * v
        torch.testing.assert_close(shard.state()[f"momentum.{key}"], v, rtol=0, atol=1e-11)
        torch.testing.assert_close(shard.front[key], w, rtol=0, atol=1e-11)


# --- with what else a shard does ---


@pytest.mark.parametrize("spec", OPTIMIZERS, ids=lambda spec: type(spec).__name__)
@pytest.mark.parametrize("added", [False, True])
def test_gathering_what_was_gathered_repeats_the_commit_bit_for_bit(spec: Optimizer, added: bool) -> None:
    """So a replica replays it without the sums; commits of single gradients come before, between and after."""
    server, replica = make_shard(spec, INITIAL), make_shard(spec, INITIAL)
    for version in range(1, 6):
        if version % 2:
            server.gather([random_vectors(10 * version + one) for one in range(3)])
        else:
            server.gather(PARTS, gradients=5, added=added)
        if version > 2:
            server.scale(0.7)
        replica.gather([server.gathered])
        for shard in (server, replica):
            commit(shard, rate=0.9)
        assert is_same(server.state(), replica.state())


@pytest.mark.parametrize("added", [False, True])
def test_norms_are_those_of_what_was_gathered(added: bool) -> None:
    shard, other = make_shard(PLAIN, INITIAL), make_shard(PLAIN, INITIAL)
    shard.gather(PARTS, gradients=5, added=added)
    other.gather([{key: expected(key) / (1 if added and key in PARAMETERS else 5) for key in FLOATS} | _others()])
    assert shard.squared_norms() == other.squared_norms()
    together = torch.cat([expected(key).double() for key in PARAMETERS]) / (1 if added else 5)
    assert norm(shard.squared_norms()) == pytest.approx(float(together.norm()), rel=1e-6)


def _others() -> Vectors:
    return {key: expected(key) for key in OTHERS}


@pytest.mark.parametrize("added", [False, True])
def test_scaling_multiplies_the_sum_and_leaves_buffers(added: bool) -> None:
    shard = make_shard(PLAIN, INITIAL)
    shard.gather(PARTS, gradients=5, added=added)
    before = {key: vector.clone() for key, vector in shard.gathered.items()}
    shard.scale(0.5)
    assert all(torch.equal(shard.gathered[key], before[key] / 2) for key in PARAMETERS)
    assert all(torch.equal(shard.gathered[key], before[key]) for key in before if key not in PARAMETERS)


@pytest.mark.parametrize("spec", OPTIMIZERS, ids=lambda spec: type(spec).__name__)
@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("roomy", [False, True])
def test_sums_are_merged_into_room_and_need_to_stay_only_until_that_is_done(
    spec: Optimizer, copied: bool, roomy: bool
) -> None:
    plain, shard = make_shard(spec, INITIAL), make_shard(spec, INITIAL)
    for version in (1, 2, 3):
        parts, room = copy.deepcopy(PARTS), allocate(LAYOUT)
        plain.gather(PARTS, gradients=5, added=version == 2)
        shard.gather(parts, copied=copied, into=room if roomy else None, gradients=5, added=version == 2)
        if copied:
            for vector in (vector for one in parts for vector in one.values()):
                vector.zero_()
        said = shard.stage(0.5, measure=True)
        plain.stage(0.5)
        assert 1.0 <= said / shard.displacement_norm() < 1 + PRECISION
        assert is_same(dict(shard.gathered), dict(plain.gathered))
        if roomy:
            assert all(shard.gathered[key] is vector for key, vector in room.items())
        elif not copied:
            assert all(is_same(was, now) for was, now in zip(PARTS, parts, strict=True))
        for one in (plain, shard):
            one.publish(version)
        assert is_same(plain.state(), shard.state())


@pytest.mark.parametrize("spec", OPTIMIZERS, ids=lambda spec: type(spec).__name__)
def test_commits_with_sums_have_the_same_bits_for_every_number_of_shards(spec: Optimizer) -> None:
    def train(shards: int) -> Vectors:
        layout = Layout.of(SPECS, shards=shards)
        team = [make_shard(spec, INITIAL, layout, index) for index in range(shards)]
        for added in (True, False, True):
            for one in team:
                cut = partial(shard_vectors, layout, one.index)
                one.gather([cut(part) for part in PARTS], gradients=5, added=added)
                commit(one, rate=0.5)
        return {key: torch.cat([one.front[key] for one in team]) for key in team[0].front}

    whole = train(1)
    for shards in (2, 3):
        assert is_same(train(shards), whole)


@pytest.mark.parametrize(
    ("spec", "adds_up"),
    [
        (SGD(lr=0.1), True),
        (SGD(lr=0.1, momentum=0.9), True),
        (Additive(groups=(Group("*"),)), True),
        (Adam(), False),
        (RMSProp(), False),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_step_along_the_mean_is_as_many_times_longer_where_the_optimiser_divides_by_the_size_of_gradients(
    spec: Optimizer, adds_up: bool
) -> None:
    target = make_shard(spec, random_vectors(1))
    parts = [random_vectors(seed) for seed in (2, 3, 4)]
    target.gather(parts, gradients=3, added=True)
    assert (target.adds_up, target.rate_of(0.5, 3)) == (adds_up, 0.5 if adds_up else 1.5)
    for key in PARAMETERS:
        assert torch.equal(target.gathered[key], by_hand(parts, key) if adds_up else by_hand(parts, key).div(3))
