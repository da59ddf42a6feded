"""The compiled step gives the bits of torch's operations, says how far it leads, and is done without if it must be."""

from __future__ import annotations

import ctypes
import math
import shutil
import sysconfig
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from psplatform.jobs.optimizers import SGD, Adam
from psplatform.tensors import fused
from psplatform.tensors.fused import FusedSGD, agrees
from psplatform.tensors.layout import Layout, TensorSpec
from psplatform.tensors.optimizers import SGDEquations
from psplatform.tensors.shard import Shard
from psplatform.tensors.step_norm import PRECISION
from psplatform.tensors.vectors import allocate, shard_vectors

FUNCTION = fused._function(SGDEquations)
compiled = pytest.mark.skipif(FUNCTION is None, reason="there was no C compiler when psplatform was installed")
HAS_COMPILER = shutil.which(sysconfig.get_config_var("CC").split()[0]) is not None
FUSES = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let rules that are made from now on take every step with torch."""
    return lambda: monkeypatch.setattr("psplatform.tensors.optimizers.fused_sgd", lambda *_: None)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Note of each compiled step whether it was measured by difference."""
    noted: list[bool] = []
    plain = FusedSGD.step

    def step(self: FusedSGD, *arguments: Any, by_difference: bool, **others: Any) -> tuple[float, float]:
        noted.append(by_difference)
        return plain(self, *arguments, by_difference=by_difference, **others)

    monkeypatch.setattr(FusedSGD, "step", step)
    return noted


def make(spec: Any, sizes: tuple[int, ...], *, shards: int = 1, dtype: str = "float32", index: int = 0) -> Shard:
    layout = Layout.of(
        [TensorSpec(f"t{n}", (size,), dtype, "parameter") for n, size in enumerate(sizes)], shards=shards
    )
    whole = allocate(layout)
    generator = torch.Generator().manual_seed(1)
    for vector in whole.values():
        vector.copy_(torch.randn(vector.numel(), generator=generator))
    first, second = allocate(layout, index), allocate(layout, index)
    return Shard(layout, index, spec, shard_vectors(layout, index, whole), (first, second))


def contributions(shard: Shard, count: int, commit: int) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(100 * commit + count)
    return [
        {key: torch.randn(vector.numel(), generator=generator).to(vector.dtype) for key, vector in shard.front.items()}
        for _ in range(count)
    ]


def train(shard: Shard, count: int, *, into: bool = False) -> Iterator[tuple[float, float]]:
    """Take four steps; yield of each what was measured of it, and the truth."""
    for commit in range(4):
        room = {key: torch.full_like(vector, math.nan) for key, vector in shard.front.items()} if into else None
        given = contributions(shard, count, commit)
        shard.gather(given, into=room)
        said = shard.stage(0.5, measure=True)
        yield said, shard.displacement_norm()
        if room is not None:
            for key, vector in shard.gathered.items():
                assert vector is room[key]
                assert torch.equal(vector, sum((one[key] for one in given[1:]), given[0][key]) / count)
        shard.publish(commit + 1)


KINDS = [
    SGD(lr=0.1),
    SGD(lr=0.1, weight_decay=0.01),
    SGD(lr=0.1, momentum=0.9),
    SGD(lr=0.1, momentum=0.9, dampening=0.4, weight_decay=0.01),
    SGD(lr=0.1, momentum=0.9, nesterov=True),
    SGD(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
]


@pytest.mark.skipif(not (HAS_COMPILER and FUSES), reason="there is no C compiler, or no product is fused here")
def test_where_there_is_a_compiler_there_is_a_compiled_step() -> None:
    assert FUNCTION is not None, "install psplatform again: fused.c has changed since, or gives other bits than torch"


@compiled
@pytest.mark.parametrize("spec", KINDS, ids=repr)
@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("into", [False, True], ids=["", "into a room"])
def test_it_gives_the_bits_of_torch(
    spec: SGD, count: int, into: bool, without: Callable[[], None], calls: list[bool]
) -> None:
    ours, made = [], []
    for _ in range(2):
        shard = make(spec, (1, 2047, 4099, 70_001))
        for said, truth in train(shard, count, into=into):
            assert truth <= said <= (1 + PRECISION) * truth
        ours.append({key: vector.clone() for key, vector in shard.state().items()})
        made.append(len(calls))
        without()
    assert made[0] >= 4, "the first four steps were compiled ones"
    assert made[1] == made[0], "and the others were torch's"
    assert ours[0].keys() == ours[1].keys()
    assert all(torch.equal(vector, ours[1][key]) for key, vector in ours[0].items())


@compiled
def test_steps_after_one_that_was_not_measured_are_measured_by_what_they_did(calls: list[bool]) -> None:
    """As of a replica that has become the server: what was added does not tell how the parameters were rounded."""
    shard = make(KINDS[2], (5000,))
    shard.gather(contributions(shard, 2, 9))
    shard.stage(0.5)
    shard.publish(1)
    for commit in range(10):
        shard.gather(contributions(shard, 2, commit))
        said, truth = shard.stage(0.5, measure=True), shard.displacement_norm()
        assert truth <= said <= (1 + PRECISION) * truth
        shard.publish(commit + 2)
    assert calls[:8] == [False] + [True] * 7
    assert not calls[-1], "once the norm of the parameters is known, what was added tells enough"


@compiled
@pytest.mark.parametrize("scale", [1e-30, 1e25])
def test_what_float32_cannot_square_is_measured_all_the_same(scale: float) -> None:
    shard = make(SGD(lr=1.0), (3000,))
    for vector in shard.front.values():
        vector.zero_()
    shard.gather([{key: torch.full_like(vector, scale) for key, vector in shard.front.items()}])
    said = shard.stage(1.0, measure=True)
    assert 0 < shard.displacement_norm() <= said < math.inf


@compiled
@pytest.mark.parametrize("shards", [1, 2, 3])
def test_the_bits_do_not_depend_on_how_vectors_are_cut(shards: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psplatform.tensors.shares._LEAST", 1000)
    monkeypatch.setattr("psplatform.tensors.shares._cores", lambda: 3)
    found = []
    for index in range(shards):
        shard = make(KINDS[3], (40_000, 40_000, 50_000), shards=shards, index=index)
        layout = shard.layout
        for commit in range(3):
            generator = torch.Generator().manual_seed(commit)
            whole = [torch.randn(layout.region(key).size, generator=generator) for key in shard.front]
            given = {key: vector[layout.piece(index, key)] for key, vector in zip(shard.front, whole, strict=True)}
            shard.gather([given, given])
            shard.stage(0.5)
            shard.publish(commit + 1)
        found.append(torch.cat(list(shard.front.values())))
    alone = make(KINDS[3], (40_000, 40_000, 50_000))
    monkeypatch.setattr("psplatform.tensors.shares._cores", lambda: 1)
    for commit in range(3):
        generator = torch.Generator().manual_seed(commit)
        given = {key: torch.randn(vector.numel(), generator=generator) for key, vector in alone.front.items()}
        alone.gather([given, given])
        alone.stage(0.5)
        alone.publish(commit + 1)
    assert torch.equal(torch.cat(found), torch.cat(list(alone.front.values())))


def test_what_it_does_not_take_is_left_to_torch() -> None:
    double = make(SGD(lr=0.1, momentum=0.9), (100,), dtype="float64")
    other = make(Adam(), (100,))
    for shard in (double, other):
        for said, truth in train(shard, 2):
            assert truth <= said <= (1 + PRECISION) * truth
    assert not fused.fits([torch.zeros(4, dtype=torch.float64)])
    assert not fused.fits([torch.zeros(8)[::2]])
    assert not fused.fits([torch.zeros(4, device="meta")])
    assert not fused.fits([torch.frombuffer(bytearray(9), dtype=torch.float32, offset=1, count=2)])


@compiled
def test_what_a_program_has_made_torch_s_defaults_does_not_matter() -> None:
    assert FUNCTION is not None
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            assert agrees(FUNCTION, SGDEquations)
    finally:
        torch.set_default_dtype(torch.float32)


@compiled
def test_a_function_that_measures_too_little_is_not_used() -> None:
    assert FUNCTION is not None
    assert not agrees(lambda *arguments: 0.99 * FUNCTION(*arguments), SGDEquations)


@compiled
def test_a_function_that_rounds_in_another_way_is_not_used() -> None:
    assert FUNCTION is not None
    assert agrees(FUNCTION, SGDEquations)

    def flawed(how: Any, size: int, *others: Any) -> float:
        squares = FUNCTION(how, size, *others)
        out = torch.frombuffer((ctypes.c_float * size).from_address(others[-1]), dtype=torch.float32)
        out[-1] = torch.nextafter(out[-1], torch.tensor(math.inf))
        return squares

    assert not agrees(flawed, SGDEquations)


def test_a_library_that_is_none_is_done_without(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "_fused.abi3.so").write_bytes(b"no library")
    monkeypatch.setattr(fused, "__file__", str(tmp_path / "fused.py"))
    assert fused._function.__wrapped__(SGDEquations) is None


@compiled
def test_a_vector_that_is_not_finite_is_not_said_to_be_near() -> None:
    assert FUNCTION is not None
    w, out = torch.zeros(10), torch.empty(10)
    for value in (math.inf, math.nan):
        squares, _ = FusedSGD(FUNCTION, SGD(lr=0.1)).step(w, [torch.full((10,), value)], None, out, 1.0, 1)
        assert not math.isfinite(squares)
