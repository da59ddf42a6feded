"""How far a step leads: never said to be shorter than it is, and hardly longer."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from psplatform.tensors.norms import norm, squared_norms
from psplatform.tensors.step_norm import PRECISION, StepNorm, copy_and_measure

KINDS = [torch.float64, torch.float32]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(7)


class Scene:
    """Parameters that move, and a count of the passes that measure them by themselves."""

    def __init__(self, before: Tensor) -> None:
        self.before = self.after = before
        self.passes = {"reach": 0, "exact": 0}
        self.norm = StepNorm(self._reach, self._exact)

    def step(self, vector: Tensor, factor: float, part: int = 10_000, *, told: bool = True) -> float:
        """Add `factor` times a vector, part by part; return what is said of the step, which must hold."""
        self.before = self.after
        self.after = torch.add(self.before, vector, alpha=factor)
        (measure,) = self.norm.begin()
        for old, new, added in zip(*(one.split(part) for one in (self.before, self.after, vector)), strict=True):
            measure.add(old, new, (added, factor) if told else None)
        said, truth = self.norm.end(), self.truth
        assert truth <= said <= truth * (1 + PRECISION)
        return said

    @property
    def truth(self) -> float:
        return norm(squared_norms(self.after, 1024, minus=self.before))

    def _reach(self) -> float:
        self.passes["reach"] += 1
        return norm(squared_norms(self.before, 1024))

    def _exact(self) -> float:
        self.passes["exact"] += 1
        return self.truth


@pytest.mark.parametrize("told", [True, False], ids=["added", "difference"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("size", [1, 1023, 1025, 70_000])
def test_it_is_an_upper_bound_whatever_parts_it_is_taken_in_by(size: int, kind: torch.dtype, told: bool) -> None:
    scales = torch.logspace(-6, 3, size)
    for part in (7000, 33_333, 100_000):
        scene = Scene(torch.randn(size).to(kind))
        for factor in (-0.9, 1e-3, -30.0):
            scene.step((torch.randn(size) * scales).to(kind), factor, part, told=told)


@pytest.mark.parametrize("ratio", [1e-2, 1e-3, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6, 1e-7, 1e-8])
def test_it_holds_however_little_of_a_step_rounding_leaves(ratio: float) -> None:
    generator = torch.Generator().manual_seed(3)
    scene = Scene(torch.randn(50_000, generator=generator))
    for _ in range(5):
        scene.step(torch.randn(50_000, generator=generator), -ratio)


def test_steps_that_rounding_makes_longer_are_not_said_to_be_shorter() -> None:
    """Each element moves by a little more than half a unit in its last place, and so by a whole one."""
    scene = Scene(torch.ones(5000))
    said = scene.step(torch.full((5000,), 0.51 * torch.finfo(torch.float32).eps), 1.0)
    assert said == pytest.approx(5000**0.5 * torch.finfo(torch.float32).eps)


def test_ordinary_steps_take_no_pass_of_their_own_but_the_first() -> None:
    scene = Scene(torch.randn(20_000))
    for _ in range(50):
        scene.step(torch.randn(20_000), -1e-2)
    assert scene.passes == {"reach": 1, "exact": 0}


def test_the_reach_is_measured_again_when_the_sum_of_steps_says_too_much_of_it() -> None:
    """Parameters that run to and fro stay where they are, but the sum of their steps does not."""
    scene = Scene(torch.zeros(2000))
    vector = torch.randn(2000)
    for number in range(300):
        scene.step(vector, 1.0 if number % 2 else -1.0)
    scene.step(vector, 3e-4)
    assert scene.passes["reach"] == 2
    assert scene.passes["exact"] == 0


@pytest.mark.parametrize("told", [True, False])
def test_it_holds_after_the_parameters_were_replaced(told: bool) -> None:
    """Steps are differences at first, which need no pass; with the norm of what was loaded there is never one."""
    scene = Scene(torch.zeros(2000))
    scene.step(torch.randn(2000), 1e-3)
    scene.after = torch.full((2000,), 10.0)
    scene.norm.forget(10.0 * 2000**0.5 if told else math.nan)
    before = dict(scene.passes)
    for _ in range(5):
        scene.step(torch.randn(2000), 1e-3)
    assert scene.passes == before
    for _ in range(5):
        scene.step(torch.randn(2000), 1e-3)
    assert scene.passes["reach"] == before["reach"] + (not told)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("size", [1, 1000, 300_000])
def test_a_copy_is_measured_on_the_way(size: int, kind: torch.dtype) -> None:
    source, target = torch.randn(size, dtype=kind), torch.empty(size, dtype=kind)
    said, truth = copy_and_measure(source, target), sum(squared_norms(source, 1024))
    assert torch.equal(source, target)
    assert truth <= said <= truth * (1 + PRECISION)


@pytest.mark.parametrize("size", [0.0, 1e-30, 1e30])
def test_what_squares_cannot_tell_is_measured_by_itself(size: float) -> None:
    scene = Scene(torch.zeros(5000))
    assert scene.step(torch.full((5000,), size), 1.0) == pytest.approx(size * 5000**0.5)
    assert scene.passes["exact"] == 1


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_step_to_nowhere_is_not_said_to_be_one(value: float) -> None:
    scene = Scene(torch.zeros(2000))
    scene.after = torch.full((2000,), value)
    (measure,) = scene.norm.begin()
    measure.add(scene.before, scene.after, (scene.after, 1.0))
    assert not math.isfinite(scene.norm.end())


def test_vectors_of_several_precisions_make_one_step() -> None:
    before = [torch.randn(3000, dtype=kind) for kind in KINDS]
    after = [one + torch.randn_like(one) for one in before]
    truth = math.hypot(*(norm(squared_norms(new, 1024, minus=old)) for old, new in zip(before, after, strict=True)))
    measured = StepNorm(lambda: math.inf, lambda: math.nan)
    (measure,) = measured.begin()
    for old, new in zip(before, after, strict=True):
        measure.add(old, new, None)
    assert truth <= measured.end() <= truth * (1 + PRECISION)


def test_threads_take_in_parts_of_one_step() -> None:
    """Of which what is added may be known to one and not to another, in several precisions."""
    before = [torch.randn(3000, dtype=kind) for kind in KINDS]
    steps = [torch.randn_like(one) for one in before]
    after = [torch.add(one, step, alpha=-0.5) for one, step in zip(before, steps, strict=True)]
    truth = math.hypot(*(norm(squared_norms(new, 1024, minus=old)) for old, new in zip(before, after, strict=True)))
    measured = StepNorm(lambda: math.hypot(*(float(one.norm()) for one in before)), lambda: math.nan)
    for told in ((True, True), (True, False), (False, False)):
        measures = measured.begin(2)
        for measure, old, new, step, known in zip(measures, before, after, steps, told, strict=True):
            measure.add(old, new, (step, -0.5) if known else None)
        assert truth <= measured.end() <= truth * (1 + PRECISION)


def test_a_factor_that_the_precision_cannot_hold_is_not_trusted() -> None:
    scene = Scene(torch.zeros(1000))
    scene.step(torch.ones(1000), 1.1e-45)
    assert scene.passes["exact"] == 1


def test_sums_beyond_float64_are_measured_by_themselves() -> None:
    measured = StepNorm(lambda: 0.0, lambda: math.inf)
    (measure,) = measured.begin()
    for _ in range(3):
        large = torch.full((2,), 8e153, dtype=torch.float64)
        measure.add(torch.zeros_like(large), large, (large, 1.0))
    assert measured.end() == math.inf


def test_a_step_of_nothing_is_zero() -> None:
    measured = StepNorm(lambda: 0.0, lambda: 0.0)
    measured.begin()
    assert measured.end() == 0
