"""Sums of squares that depend on the elements alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import pytest
import torch

from psplatform.tensors import norms
from psplatform.tensors.norms import norm, squared_norm, squared_norms


@pytest.fixture
def threads() -> Iterator[None]:
    """Give the number of threads back after the test."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("block", [1, 2, 64, 1024, 4096])
@pytest.mark.parametrize("size", [1, 2, 63, 1025, 5000])
def test_each_block_has_the_sum_of_its_squares(size: int, block: int) -> None:
    vector = torch.randn(size)
    expected = [float((part.double() ** 2).sum()) for part in vector.split(block)]
    assert squared_norms(vector, block) == pytest.approx(expected, rel=1e-14)


def test_a_difference_is_formed_in_float64() -> None:
    """Float32 represents neither of these differences."""
    left, right = torch.tensor([2.0**24 + 2, 1.0]), torch.tensor([1.0, 2.0**-26])
    assert squared_norms(left, 1, minus=right) == [(2.0**24 + 1) ** 2, (1 - 2.0**-26) ** 2]


def test_an_empty_piece_has_no_blocks() -> None:
    assert squared_norms(torch.empty(0), 64) == []


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("block", [1 << 10, 1 << 16, 1 << 18])
def test_the_bits_depend_neither_on_threads_nor_tiles_nor_on_where_a_piece_begins(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    vector = torch.randn(3 * (1 << 18) + 12345)
    expected = squared_norms(vector, block)
    for count, tile in ((1, 1 << 19), (2, 1 << 18), (3, 1 << 16), (5, 1 << 22)):
        torch.set_num_threads(count)
        monkeypatch.setattr(norms, "tile", partial(int, tile))
        whole = squared_norms(vector, block)
        alone = [square for part in vector.split(block) for square in squared_norms(part.clone(), block)]
        assert whole == expected
        assert alone == expected


def test_a_norm_is_exact_in_whatever_order_blocks_arrive() -> None:
    sums = squared_norms(torch.randn(100_000) * torch.logspace(-9, 9, 100_000), 256)
    assert norm(sums) == norm(reversed(sums)) == norm(sorted(sums))


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_norm_is_finite_only_if_every_element_is(value: float) -> None:
    vector = torch.randn(1000)
    assert math.isfinite(norm(squared_norms(vector, 2)))
    vector[777] = value
    assert not math.isfinite(norm(squared_norms(vector, 2)))


def test_float32_never_overflows_and_float64_overflows_to_infinity() -> None:
    assert math.isfinite(norm(squared_norms(torch.full((1000,), 3e38), 2)))
    assert norm([1e308, 1e308]) == math.inf


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [1, 1023, 1024, 5000, 300_000])
def test_a_squared_norm_is_as_good_as_it_says(size: int, kind: torch.dtype) -> None:
    vectors = [torch.randn(size).to(kind), torch.randn(77).to(kind)]
    expected = sum(float(vector.double().square().sum()) for vector in vectors)
    assert squared_norm(vectors) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("scale", [1e-44, 1e-30, 1e-19, 1e19, 3e38])
def test_a_squared_norm_holds_where_float32_does_not_reach(scale: float) -> None:
    vector = torch.full((10_000,), scale)
    assert squared_norm([vector]) == pytest.approx(float(vector.double().square().sum()), rel=1e-6)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_squared_norm_is_finite_only_if_every_element_is(value: float) -> None:
    vector = torch.randn(3000)
    vector[2777] = value
    assert not math.isfinite(squared_norm([vector]))
    assert math.isfinite(squared_norm([torch.full((1000,), 3e38)]))
    assert squared_norm([torch.full((9,), 1e200, dtype=torch.float64)]) == math.inf


def test_nothing_and_zeros_have_a_squared_norm_of_zero() -> None:
    assert squared_norm([]) == squared_norm([torch.empty(0)]) == squared_norm([torch.zeros(2000)]) == 0


@pytest.mark.usefixtures("threads")
def test_the_bits_of_a_squared_norm_depend_neither_on_threads_nor_on_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    vector, found = torch.randn(3 * (1 << 18) + 12345), set()
    for count, tile in ((1, 1 << 19), (2, 1 << 18), (3, 1 << 16), (5, 1 << 22)):
        torch.set_num_threads(count)
        monkeypatch.setattr(norms, "tile", partial(int, tile))
        found.add(squared_norm([vector]))
    assert len(found) == 1


def test_squares_of_several_short_vectors_that_overflow_together_are_infinite() -> None:
    huge = torch.full((2,), 1.2e154 / 2**0.5, dtype=torch.float64)
    assert math.isfinite(squared_norm([huge]))
    assert squared_norm([huge, huge]) == math.inf
