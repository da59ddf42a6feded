"""What one shard does with contributions, and that the number of shards changes no bit."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from psplatform.errors import InvariantViolation, ProtocolError
from psplatform.jobs.optimizers import SGD, AdaGrad, Adam, AdamW, Additive, Group, Optimizer, RMSProp, assign_groups
from psplatform.tensors import shard as shard_module
from psplatform.tensors.flat import FlatModel, specs_of, tensors_of, trainable_parameters
from psplatform.tensors.layout import Layout, TensorSpec
from psplatform.tensors.norms import norm
from psplatform.tensors.shard import Shard
from psplatform.tensors.shares import shares
from psplatform.tensors.step_norm import PRECISION
from psplatform.tensors.vectors import allocate, fill, shard_vectors

Vectors = dict[str, Tensor]

SPECS = [
    TensorSpec("a", (7, 31), "float32", "parameter"),
    TensorSpec("b", (13,), "float32", "parameter", 1),
    TensorSpec("c", (601,), "float32", "parameter", 1),
    TensorSpec("d", (5,), "float64", "parameter", 1),
    TensorSpec("mean", (17,), "float32", "buffer"),
    TensorSpec("steps", (3,), "int64", "buffer"),
    TensorSpec("mask", (4,), "bool", "buffer"),
]
GROUPS = (Group("*", lr=0.02, weight_decay=0.1),)
OPTIMIZERS: list[Optimizer] = [
    SGD(groups=GROUPS),
    SGD(momentum=0.9, nesterov=True, groups=GROUPS),
    Adam(groups=GROUPS),
    AdamW(groups=GROUPS),
    AdaGrad(groups=GROUPS),
    RMSProp(centered=True, momentum=0.5, groups=GROUPS),
    Additive(groups=(Group("*"),)),
]


def random_vectors(layout: Layout, seed: int) -> Vectors:
    """Return whole regions whose contents depend on the seed alone."""
    generator = torch.Generator().manual_seed(seed)
    vectors = allocate(layout)
    for vector in vectors.values():
        vector.copy_(torch.randn(vector.shape, generator=generator) * 3)
    return vectors


def make_shard(layout: Layout, index: int, spec: Optimizer, initial: Vectors) -> Shard:
    storage = allocate(layout, index), allocate(layout, index)
    return Shard(layout, index, spec, shard_vectors(layout, index, initial), storage)


def train(spec: Optimizer, shards: int, commits: int = 4, workers: int = 3) -> tuple[Vectors, list[float]]:
    """Return all regions after some clipped commits, and the norms that were clipped by."""
    layout = Layout.of(SPECS, shards=shards)
    team = [make_shard(layout, index, spec, random_vectors(layout, 99)) for index in range(shards)]
    norms = []
    for commit in range(commits):
        pushed = [random_vectors(layout, commit * workers + worker) for worker in range(workers)]
        for shard in team:
            shard.gather([shard_vectors(layout, shard.index, vectors) for vectors in pushed])
        norms.append(norm(square for shard in team for square in shard.squared_norms()))
        for shard in team:
            shard.scale(min(1.0, 10.0 / norms[-1]))
            shard.stage(rate=0.9)
            shard.publish(commit + 1)
    return {key: torch.cat([shard.front[key] for shard in team]) for key in team[0].front}, norms


@pytest.mark.parametrize("spec", OPTIMIZERS, ids=lambda spec: spec.name)
def test_training_has_the_same_bits_for_every_number_of_shards(spec: Optimizer) -> None:
    expected, expected_norms = train(spec, 1)
    for shards in (2, 3, 5):
        found, norms = train(spec, shards)
        assert norms == expected_norms
        assert all(torch.equal(found[key], expected[key]) for key in expected)


def test_shards_that_own_nothing_of_some_regions_change_no_bit() -> None:
    expected, expected_norms = train(OPTIMIZERS[1], 1)
    found, norms = train(OPTIMIZERS[1], 40)
    assert norms == expected_norms
    assert all(torch.equal(found[key], expected[key]) for key in expected)


@pytest.mark.parametrize("spec", OPTIMIZERS, ids=lambda spec: spec.name)
def test_the_bits_do_not_depend_on_tiles(spec: Optimizer, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, _ = train(spec, 2)
    monkeypatch.setattr(shard_module, "tile", partial(int, 5))
    found, _ = train(spec, 2)
    assert all(torch.equal(found[key], expected[key]) for key in expected)


@pytest.mark.parametrize("spec", OPTIMIZERS, ids=lambda spec: spec.name)
def test_the_bits_do_not_depend_on_how_many_threads_share_the_work(
    spec: Optimizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = train(spec, 2)
    for count in (2, 3):
        monkeypatch.setattr(shard_module, "shares", partial(shares, count=count))
        found, _ = train(spec, 2)
        assert all(torch.equal(found[key], expected[key]) for key in expected)


@pytest.mark.parametrize("options", [{"foreach": False}, {}], ids=["foreach=False", "default"])
@pytest.mark.parametrize("shards", [1, 2, 3, 5])
def test_one_worker_has_the_bits_of_a_plain_loop_in_torch(shards: int, options: dict[str, bool]) -> None:
    """A module with batch norm, stepped by torch tensor by tensor, with other hyper-parameters for its biases."""
    torch.manual_seed(0)
    free = nn.Sequential(nn.Linear(9, 17), nn.BatchNorm1d(17), nn.Tanh(), nn.Linear(17, 3))
    module = copy.deepcopy(free)
    weights, biases = [[p for n, p in free.named_parameters() if n.endswith("bias") == bias] for bias in (False, True)]
    groups = [{"params": weights, "weight_decay": 0.01}, {"params": biases, "lr": 0.05, "nesterov": True}]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9, **options)

    spec = SGD(
        lr=0.1, momentum=0.9, weight_decay=0.01, groups=(Group("*bias", lr=0.05, nesterov=True, weight_decay=0),)
    )
    layout = Layout.of(specs_of(module, assign_groups(spec, list(trainable_parameters(module)))), shards=shards)
    values = allocate(layout)
    fill(layout, values, tensors_of(module))
    flat = FlatModel(module, layout, values, allocate(layout))
    team = [make_shard(layout, index, spec, values) for index in range(shards)]
    for commit in range(100):
        inputs = torch.randn(6, 9)
        for model, zero in ((free, free.zero_grad), (module, flat.zero_gradients)):
            zero()
            model(inputs).square().mean().backward()
        optimizer.step()
        flat.collect()
        for shard in team:
            shard.gather([shard_vectors(layout, shard.index, flat.updates)])
        assert norm(square for shard in team for square in shard.squared_norms()) == flat.gradient_norm()
        for shard in team:
            shard.stage(rate=1.0)
            shard.publish(commit + 1)
        flat.load({key: torch.cat([shard.front[key] for shard in team]) for key in values})
    expected = free.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in module.state_dict().items())


LAYOUT = Layout.of(SPECS, shards=1)
PLAIN = SGD(groups=GROUPS)
shard_of = partial(make_shard, LAYOUT, 0)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_floats_get_the_mean_and_counters_the_maximum(count: int) -> None:
    pushed = [random_vectors(LAYOUT, seed) for seed in range(count)]
    shard = shard_of(PLAIN, random_vectors(LAYOUT, 99))
    shard.gather(pushed)
    for key in ("parameter.float32", "parameter.float64", "buffer.float32"):
        total = pushed[0][key].clone()
        for vectors in pushed[1:]:
            total += vectors[key]
        assert torch.equal(shard.gathered[key], total / count)
    for key in ("buffer.int64", "buffer.bool"):
        assert torch.equal(shard.gathered[key], torch.stack([vectors[key] for vectors in pushed]).amax(0))


def test_buffers_become_what_was_gathered_whatever_rate_and_scale() -> None:
    shard, pushed = shard_of(PLAIN, random_vectors(LAYOUT, 99)), random_vectors(LAYOUT, 1)
    shard.gather([pushed])
    shard.scale(0.5)
    shard.stage(rate=0.1)
    shard.publish(1)
    assert all(torch.equal(shard.front[key], pushed[key]) for key in pushed if key.startswith("buffer"))


@pytest.mark.parametrize("spec", OPTIMIZERS, ids=lambda spec: spec.name)
@pytest.mark.parametrize("count", [1, 3])
def test_neither_the_front_copy_nor_contributions_change_before_publication(spec: Optimizer, count: int) -> None:
    initial = random_vectors(LAYOUT, 99)
    pushed = [random_vectors(LAYOUT, seed) for seed in range(count)]
    before = copy.deepcopy(pushed)
    shard = shard_of(spec, initial)
    front = shard.front
    shard.gather(pushed)
    shard.scale(0.3)
    shard.stage(rate=1.0)
    shard.displacement_norm()
    assert shard.front is front
    assert all(torch.equal(front[key], initial[key]) for key in initial)
    assert all(torch.equal(was[key], now[key]) for was, now in zip(before, pushed, strict=True) for key in was)
    shard.publish(1)
    assert not torch.equal(shard.front["parameter.float32"], initial["parameter.float32"])


@pytest.mark.parametrize("spec", OPTIMIZERS, ids=lambda spec: spec.name)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_merging_and_stepping_in_one_pass_changes_no_bit(
    spec: Optimizer, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what was merged is told afterwards as before."""
    monkeypatch.setattr(shard_module, "tile", lambda: 100)
    pushed = [random_vectors(LAYOUT, seed) for seed in range(count)]
    at_once, after = (shard_of(spec, random_vectors(LAYOUT, 99)) for _ in range(2))
    for shard in (at_once, after):
        shard.gather(pushed)
    merged = {key: vector.clone() for key, vector in after.gathered.items()}
    for shard in (at_once, after):
        shard.stage(rate=0.5, measure=True)
    for key, vector in merged.items():
        assert torch.equal(at_once.back[key], after.back[key])
        assert torch.equal(at_once.gathered[key], vector)
    for one, other in zip(at_once.state().values(), after.state().values(), strict=True):
        assert torch.equal(one, other)


def test_a_single_contribution_is_read_where_it_lies() -> None:
    shard, pushed = shard_of(Adam(groups=GROUPS), random_vectors(LAYOUT, 99)), random_vectors(LAYOUT, 1)
    shard.gather([pushed])
    assert all(shard.gathered[key] is pushed[key] for key in pushed)


def test_scaling_multiplies_the_gradient_and_its_norm() -> None:
    shard, pushed = shard_of(OPTIMIZERS[-1], allocate(LAYOUT)), random_vectors(LAYOUT, 1)
    shard.gather([pushed])
    before = norm(shard.squared_norms())
    shard.scale(0.5)
    shard.scale(0.5)
    assert norm(shard.squared_norms()) == before / 4
    shard.stage(rate=1.0)
    assert torch.equal(shard.back["parameter.float32"], pushed["parameter.float32"] / 4)


def test_the_displacement_is_the_distance_of_the_staged_parameters() -> None:
    shard = shard_of(PLAIN, random_vectors(LAYOUT, 99))
    shard.gather([random_vectors(LAYOUT, 1)])
    shard.stage(rate=1.0)
    keys = ("parameter.float32", "parameter.float64")
    difference = torch.cat([shard.back[key].double() - shard.front[key].double() for key in keys])
    assert shard.displacement_norm() == pytest.approx(float(difference.norm()), rel=1e-14)


@pytest.mark.parametrize("spec", OPTIMIZERS, ids=lambda spec: spec.name)
@pytest.mark.parametrize("shards", [1, 3])
def test_a_step_measured_on_the_way_is_never_shorter_than_it_is_and_hardly_longer(spec: Optimizer, shards: int) -> None:
    layout = Layout.of(SPECS, shards=shards)
    for index in range(shards):
        shard = make_shard(layout, index, spec, random_vectors(layout, 99))
        for version in (1, 2, 3):
            shard.gather([shard_vectors(layout, index, random_vectors(layout, version))])
            step = shard.stage(0.9, measure=True)
            assert 1.0 <= step / shard.displacement_norm() < 1 + PRECISION
            shard.publish(version)


@pytest.mark.parametrize("spec", OPTIMIZERS, ids=lambda spec: spec.name)
def test_measuring_and_touching_change_no_bit(spec: Optimizer) -> None:
    plain, measured = (shard_of(spec, random_vectors(LAYOUT, 99)) for _ in range(2))
    measured.touch()
    for version in (1, 2, 3):
        for shard in (plain, measured):
            shard.gather([random_vectors(LAYOUT, 10 * version + seed) for seed in range(2)])
            shard.stage(0.9, measure=shard is measured)
            shard.publish(version)
    assert all(torch.equal(tensor, measured.state()[name]) for name, tensor in plain.state().items())


@pytest.mark.parametrize("size", [0.0, 1e-30, 1e30])
def test_steps_beyond_what_squares_can_tell_are_measured_all_the_same(size: float) -> None:
    layout = Layout.of([TensorSpec("a", (5000,), "float32", "parameter")], shards=1)
    shard = make_shard(layout, 0, SGD(lr=1.0), allocate(layout))
    shard.gather([{"parameter.float32": torch.full((5000,), size)}])
    step = shard.stage(1.0, measure=True)
    assert step == shard.displacement_norm() == pytest.approx(size * 5000**0.5, rel=1e-6)


def test_gathering_what_was_gathered_repeats_the_commit_bit_for_bit() -> None:
    """So a replica replays an update without the contributions it was made of."""
    initial = random_vectors(LAYOUT, 99)
    server, replica = shard_of(OPTIMIZERS[1], initial), shard_of(OPTIMIZERS[1], initial)
    for version in (1, 2, 3):
        server.gather([random_vectors(LAYOUT, 10 * version + seed) for seed in range(3)])
        server.scale(0.7)
        replica.gather([server.gathered])
        for shard in (server, replica):
            shard.stage(rate=0.9)
            shard.publish(version)
    assert all(torch.equal(tensor, replica.state()[name]) for name, tensor in server.state().items())


@pytest.mark.parametrize("published", [True, False])
@pytest.mark.parametrize("spec", OPTIMIZERS, ids=lambda spec: spec.name)
def test_a_restored_shard_goes_on_with_the_same_bits(spec: Optimizer, published: bool) -> None:
    """`state` describes the newest step, staged or published."""
    first, second = (shard_of(spec, random_vectors(LAYOUT, seed)) for seed in (98, 99))
    for version in (1, 2):
        first.gather([random_vectors(LAYOUT, version)])
        first.stage(rate=1.0)
        if version == 1 or published:
            first.publish(version)
    second.restore(first.state(), version=2, commits=first.commits)
    if not published:
        first.publish(2)
    for shard in (first, second):
        shard.gather([random_vectors(LAYOUT, 3)])
        shard.stage(rate=1.0)
        shard.publish(3)
    assert (second.version, second.commits) == (3, 3)
    assert all(torch.equal(tensor, second.state()[name]) for name, tensor in first.state().items())


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("spec", OPTIMIZERS, ids=lambda spec: spec.name)
def test_a_state_is_restored_by_any_number_of_threads(
    count: int, spec: Optimizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (shard_of(spec, random_vectors(LAYOUT, seed)) for seed in (98, 99))
    monkeypatch.setattr(shard_module, "shares", partial(shares, count=count))
    first.gather([random_vectors(LAYOUT, 1)])
    first.stage(rate=1.0)
    first.publish(1)
    second.restore(first.state(), version=1, commits=1)
    assert all(torch.equal(tensor, second.state()[name]) for name, tensor in first.state().items())
    second.gather([random_vectors(LAYOUT, 2)])
    said = second.stage(rate=1.0, measure=True)
    assert second.displacement_norm() <= said <= second.displacement_norm() * (1 + PRECISION)


def step(shard: Shard) -> None:
    version = shard.version + 1
    shard.gather([random_vectors(LAYOUT, version)])
    shard.stage(rate=1.0)
    shard.publish(version)


@pytest.mark.parametrize("staged", [True, False])
@pytest.mark.parametrize("by", ["a step", "a state"])
def test_what_is_written_over_is_named_before_it_is(staged: bool, by: str) -> None:
    """The step after what is the newest is written beside it, the one after that is not."""
    shard, other = (shard_of(OPTIMIZERS[1], random_vectors(LAYOUT, seed)) for seed in (98, 99))
    step(shard)
    if staged:
        shard.gather([random_vectors(LAYOUT, 7)])
        shard.stage(rate=1.0)
    newest, found = shard.newest, []
    expected = {key: vector.clone() for key, vector in newest.items()}

    def note(vectors: Mapping[str, torch.Tensor]) -> None:
        is_newest = vectors is newest
        found.append(is_newest and all(torch.equal(vector, vectors[key]) for key, vector in expected.items()))

    shard.before_overwriting(note)
    if staged:
        shard.publish(2)
    step(shard)
    assert found == [False]
    if by == "a step":
        step(shard)
    else:
        shard.restore(other.state(), version=shard.version + 1, commits=1)
    assert found == [False, True]
    assert not all(torch.equal(vector, newest[key]) for key, vector in expected.items())


@pytest.mark.parametrize("published", [True, False])
@pytest.mark.parametrize("spec", [one for one in OPTIMIZERS if isinstance(one, SGD)], ids=repr)
def test_the_norm_of_a_restored_state_may_be_said_instead_of_measured(
    spec: Optimizer, published: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard whose steps are rounded knows it.  From then on steps are measured, and never taken for too short."""
    server, replica = (shard_of(spec, random_vectors(LAYOUT, seed)) for seed in (98, 99))
    assert server.reach is None
    for seed in range(12):
        if server.staged:
            server.publish(server.version + 1)
        server.gather([random_vectors(LAYOUT, seed)])
        server.stage(rate=1.0, measure=True)
    if published:
        server.publish(server.version + 1)
    reach = server.reach
    assert reach is not None
    assert reach >= norm(float((vector.double() ** 2).sum()) for vector in parameters_of(server))
    monkeypatch.setattr(shard_module, "copy_and_measure", lambda *_: pytest.fail("measured all the same"))
    state = {"version": 20, "commits": server.commits, "reach": reach}
    for whole in (False, True):
        assert replica.restore(server.state(), **state, whole=lambda whole=whole: whole) is whole
    assert replica.reach == reach
    replica.gather([random_vectors(LAYOUT, 77)])
    said = replica.stage(rate=1.0, measure=True)
    assert replica.displacement_norm() <= said <= replica.displacement_norm() * (1 + PRECISION)


def test_a_norm_that_was_said_is_measured_as_soon_as_it_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be far above the truth: then every step would have to be measured exactly."""
    server, replica = (shard_of(PLAIN, random_vectors(LAYOUT, seed)) for seed in (98, 99))
    step(server)
    replica.restore(server.state(), version=20, commits=server.commits, reach=1e30)
    exact = replica.displacement_norm
    measured: list[float] = []
    monkeypatch.setattr(replica._step_norm, "_exact", lambda: measured.append(exact()) or measured[-1])
    for seed in range(10):
        replica.gather([random_vectors(LAYOUT, seed)])
        said = replica.stage(rate=1.0, measure=True)
        assert exact() <= said <= exact() * (1 + PRECISION)
        replica.publish(replica.version + 1)
    assert measured == []
    assert replica.reach is not None
    assert replica.reach < 1e6


def parameters_of(shard: Shard) -> list[Tensor]:
    return [vector for key, vector in shard.newest.items() if key.startswith("parameter")]


def test_a_state_that_is_written_to_while_it_is_read_changes_nothing_that_is_shown() -> None:
    shard, other = (shard_of(OPTIMIZERS[1], random_vectors(LAYOUT, seed)) for seed in (98, 99))
    step(other)
    front = {key: vector.clone() for key, vector in shard.front.items()}
    asked = []

    def whole() -> bool:
        asked.append(all(torch.equal(vector, other.newest[key]) for key, vector in shard.back.items()))
        return False

    assert not shard.restore(other.state(), version=1, commits=1, whole=whole)
    assert asked == [True], "after everything was read"
    assert (shard.version, shard.commits) == (0, 0)
    assert all(torch.equal(vector, front[key]) for key, vector in shard.front.items())
    assert shard.restore(other.state(), version=1, commits=1)
    assert all(torch.equal(tensor, shard.state()[name]) for name, tensor in other.state().items())


def test_state_vectors_are_named_after_slot_and_region() -> None:
    names = sorted(shard_of(SGD(momentum=0.9, groups=GROUPS), allocate(LAYOUT)).state())
    assert names == sorted([*allocate(LAYOUT), "momentum.parameter.float32", "momentum.parameter.float64"])


def test_a_shard_uses_the_storage_it_is_given() -> None:
    storage = allocate(LAYOUT), allocate(LAYOUT)
    shard = Shard(LAYOUT, 0, PLAIN, random_vectors(LAYOUT, 0), storage, version=7)
    assert (shard.version, shard.front) == (7, storage[0])
    shard.gather([random_vectors(LAYOUT, 1)])
    shard.stage(rate=1.0)
    shard.publish(8)
    assert shard.front["parameter.float32"] is storage[1]["parameter.float32"]


def test_contributions_of_another_layout_are_refused() -> None:
    shard, pushed = shard_of(PLAIN, allocate(LAYOUT)), allocate(LAYOUT)
    key = "parameter.float32"
    for wrong in (pushed[key][1:], pushed[key].double(), pushed[key].view(1, -1)):
        with pytest.raises(ProtocolError, match=key):
            shard.gather([pushed, {**pushed, key: wrong}])
    with pytest.raises(ProtocolError, match="nothing"):
        shard.gather([{}])
    with pytest.raises(ProtocolError, match="cannot restore"):
        shard.restore(shard_of(Adam(groups=GROUPS), pushed).state(), version=1, commits=1)
    shard = shard_of(OPTIMIZERS[1], pushed)
    with pytest.raises(ProtocolError, match=f"momentum.{key}"):
        shard.restore({**shard.state(), f"momentum.{key}": torch.zeros(1)}, version=1, commits=1)


def test_a_layout_with_groups_that_the_optimizer_lacks_is_a_bug() -> None:
    with pytest.raises(InvariantViolation, match="groups"):
        shard_of(SGD(), allocate(LAYOUT))


def test_steps_out_of_order_are_bugs() -> None:
    shard, pushed = shard_of(PLAIN, allocate(LAYOUT)), allocate(LAYOUT)
    for early in (
        partial(shard.stage, 1.0),
        partial(shard.publish, 1),
        shard.displacement_norm,
        partial(shard.gather, []),
    ):
        with pytest.raises(InvariantViolation):
            early()
    shard.gather([pushed])
    shard.stage(1.0)
    for twice in (partial(shard.stage, 1.0), partial(shard.gather, [pushed]), partial(shard.publish, 0)):
        with pytest.raises(InvariantViolation):
            twice()
    shard.publish(4)
    assert (shard.version, shard.commits) == (4, 1)
    with pytest.raises(InvariantViolation):
        shard.stage(1.0)


@pytest.mark.parametrize("spec", OPTIMIZERS, ids=lambda spec: type(spec).__name__)
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("careful", [False, True])
def test_what_is_merged_into_room_that_was_given_is_the_same(
    spec: Optimizer, count: int, careful: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is looked at before the step, which then reads it, or is merged on the way."""
    monkeypatch.setattr(shard_module, "tile", lambda: 64)
    layout = Layout.of(SPECS, shards=2)
    initial = random_vectors(layout, 0)
    plain, roomy, scaled = (make_shard(layout, 1, spec, initial) for _ in range(3))
    for commit in range(3):
        whole = [random_vectors(layout, 10 * commit + one) for one in range(count)]
        contributions = [shard_vectors(layout, 1, vectors) for vectors in whole]
        room = allocate(layout, 1)
        for shard in (plain, roomy, scaled):
            shard.gather(contributions, copied=careful, into=None if shard is plain else room)
            if shard is scaled:
                shard.squared_norms()
                shard.scale(1.0)
            shard.stage(0.1, measure=commit == 1)
            gathered = shard.gathered
            assert all(torch.equal(vector, plain.gathered[key]) for key, vector in gathered.items())
            if shard is not plain:
                assert gathered.keys() == room.keys()
                assert all(gathered[key] is vector for key, vector in room.items())
        for shard in (plain, roomy, scaled):
            shard.publish(commit + 1)
        state = plain.state()
        for shard in (roomy, scaled):
            assert all(torch.equal(vector, state[key]) for key, vector in shard.state().items())
