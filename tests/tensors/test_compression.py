"""Gradients in fewer bytes: what becomes of each element, and that what is unpacked has the same bits."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from psplatform.jobs.compression import Compression
from psplatform.tensors.compression import UNPACKED, Compressor, packing_of

KINDS = ["none", "bf16", "fp16", "topk:0.1", "topk:0.49"]
Vectors = dict[str, Tensor]


def gradient(seed: int, size: int = 1000) -> Vectors:
    generator = torch.Generator().manual_seed(seed)
    return {
        "parameter.float32": torch.randn(size, generator=generator),
        "parameter.float64": torch.randn(size // 10, generator=generator, dtype=torch.float64),
        "buffer.float32": torch.randn(5, generator=generator),
        "buffer.int64": torch.arange(3),
    }


def copied(vectors: Vectors) -> Vectors:
    return {key: vector.clone() for key, vector in vectors.items()}


def wanted(vectors: Vectors) -> dict[str, tuple[str, int]]:
    return {key: (str(vector.dtype).removeprefix("torch."), vector.numel()) for key, vector in vectors.items()}


def total(vectors: Vectors) -> Tensor:
    return torch.cat([vector.double() for key, vector in vectors.items() if key.startswith("parameter")])


def compressor(kind: str) -> Compressor:
    return Compressor(Compression.from_plain(kind))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [0, 10, 1000, 3_000_001])
def test_what_is_unpacked_has_the_bits_that_were_packed(kind: str, size: int) -> None:
    vectors, packing = gradient(1, size), packing_of(Compression.from_plain(kind))
    compressor(kind).compress(vectors, 1.0)

    found = packing.unpack(packing.pack(vectors), wanted(vectors))

    assert list(found) == list(vectors)
    for key, vector in vectors.items():
        assert found[key].dtype == vector.dtype
        assert found[key].numpy().tobytes() == vector.numpy().tobytes(), key


@pytest.mark.parametrize("kind", KINDS)
def test_a_negative_zero_is_as_it_was_sent(kind: str) -> None:
    """Most elements are zero, so that all others are sent; some of the zeros are negative."""
    vectors = {"parameter.float32": torch.zeros(1000), "parameter.float64": torch.zeros(0, dtype=torch.float64)}
    vectors["parameter.float32"][5:8] = -0.0
    vectors["parameter.float32"][9] = 2.0
    packing = packing_of(Compression.from_plain(kind))
    compressor(kind).compress(vectors, 4.0)

    found = packing.unpack(packing.pack(vectors), wanted(vectors))

    assert all(found[key].numpy().tobytes() == vectors[key].numpy().tobytes() for key in vectors)


@pytest.mark.parametrize("kind", KINDS)
def test_what_does_not_fit_is_refused(kind: str) -> None:
    """Arrays of another layout: too few, too many, too long or of another kind."""
    vectors, packing = gradient(9), packing_of(Compression.from_plain(kind))
    compressor(kind).compress(vectors, 1.0)
    arrays, sizes = packing.pack(vectors), wanted(vectors)
    longer = {**sizes, "buffer.int64": ("int64", 4)}
    other = {**sizes, "buffer.int64": ("int32", 3)}
    shorter = {**sizes, "parameter.float32": ("float32", 1)}

    for given, expected in (
        (arrays[:-1], sizes),
        ([*arrays, arrays[-1]], sizes),
        (arrays, longer),
        (arrays, other),
        (arrays, shorter),
    ):
        with pytest.raises(ValueError, match=r"sent|argument"):
            packing.unpack(given, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_are_about_those_foreseen(kind: str) -> None:
    vectors, packing = gradient(2, 100_000), packing_of(Compression.from_plain(kind))
    compressor(kind).compress(vectors, 1.0)

    sent = sum(array.nbytes for array in packing.pack(vectors))

    assert sent == pytest.approx(packing.size_bytes(wanted(vectors)), rel=0.01)
    assert sent <= UNPACKED.size_bytes(wanted(vectors))
    most = {"bf16": 0.46, "fp16": 0.46, "topk:0.1": 0.2}.get(kind, 1.0)
    assert sent <= most * UNPACKED.size_bytes(wanted(vectors)) + 100


@pytest.mark.parametrize("kind", KINDS)
def test_buffers_stay_as_they_are(kind: str) -> None:
    vectors = gradient(3)
    before = copied(vectors)

    compressor(kind).compress(vectors, 1.0)

    assert torch.equal(vectors["buffer.float32"], before["buffer.float32"])
    assert torch.equal(vectors["buffer.int64"], before["buffer.int64"])


@pytest.mark.parametrize(("kind", "half"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_elements_are_rounded_as_torch_does(kind: str, half: torch.dtype) -> None:
    vectors = gradient(4)
    before = copied(vectors)

    compressor(kind).compress(vectors, 1.0)

    for key in ("parameter.float32", "parameter.float64"):
        assert torch.equal(vectors[key], before[key].to(half).to(before[key].dtype))


@pytest.mark.parametrize("kind", ["bf16", "fp16"])
def test_what_is_too_large_becomes_the_largest(kind: str) -> None:
    vectors = {"parameter.float32": torch.tensor([3e38, -3.4028e38, 70000.0, 1.0])}

    compressor(kind).compress(vectors, 1.0)

    largest = torch.finfo(torch.bfloat16 if kind == "bf16" else torch.float16).max
    assert vectors["parameter.float32"].isfinite().all()
    assert float(vectors["parameter.float32"][1]) == -largest


def test_a_sum_of_squares_is_that_of_what_is_sent() -> None:
    """Also where halves are far from what was computed, because they are too small or too large for them."""
    for kind in KINDS:
        for scale in (1.0, 1e-9, 1e6):
            vectors = gradient(5, 10_000)
            for key in ("parameter.float32", "parameter.float64"):
                vectors[key] *= scale
            before = float(total(vectors).square().sum())

            found = compressor(kind).compress(vectors, before)

            assert found == pytest.approx(float(total(vectors).square().sum()), rel=1e-4), (kind, scale)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("squared", [math.inf, math.nan])
def test_one_that_is_not_finite_stays_as_it_is(kind: str, squared: float) -> None:
    one, vectors = compressor(kind), gradient(7)
    one.compress(gradient(8), 1.0)
    vectors["parameter.float32"][3] = squared
    before = copied(vectors)

    found = one.compress(vectors, squared)

    assert math.isnan(found) if math.isnan(squared) else found == squared
    assert all(vectors[key].numpy().tobytes() == before[key].numpy().tobytes() for key in vectors)


def test_what_nobody_gets_is_in_the_next_gradient() -> None:
    """As if the one that was taken back had been computed together with it."""
    one, other = compressor("topk:0.05"), compressor("topk:0.05")
    taken_back, after = gradient(1), gradient(2)
    together = {key: taken_back[key] + after[key] for key in after}

    one.compress(taken_back, 1.0)
    one.take_back(taken_back)
    one.compress(after, 1.0)
    other.compress(together, 1.0)

    assert torch.allclose(total(after), total(together), atol=1e-6)


def test_the_largest_are_sent_and_the_rest_comes_with_the_next() -> None:
    """What has been sent and what is kept back add up to all that was computed: nothing is lost, whatever the order."""
    one, computed, sent = compressor("topk:0.05"), torch.zeros(1100, dtype=torch.float64), torch.zeros(1100).double()
    for seed in range(20):
        vectors = gradient(seed)
        computed += total(vectors)
        one.compress(vectors, 1.0)
        values = total(vectors)
        sent += values
        assert int((values != 0).sum()) == 55
    rest = computed - sent

    assert 0 < float(rest.norm()) < float(computed.norm())
    last = {key: torch.zeros_like(vector) for key, vector in gradient(0).items()}
    one.compress(last, 0.0)
    for _ in range(30):  # nothing new comes: what was kept back is sent bit by bit
        rest = rest - total(last)
        last = {key: torch.zeros_like(vector) for key, vector in gradient(0).items()}
        one.compress(last, 0.0)
    assert float((rest - total(last)).norm()) < 1e-4 * float(computed.norm())


def test_none_of_those_sent_is_smaller_than_one_kept_back() -> None:
    vectors = gradient(6, 3_000_000)
    before = total(vectors)

    compressor("topk:0.01").compress(vectors, 1.0)

    sent = total(vectors) != 0
    assert float(before[sent].abs().min()) >= float(before[~sent].abs().max())
    assert int(sent.sum()) == pytest.approx(0.01 * len(sent), rel=0.05)  # they are told by a sample


@pytest.mark.parametrize("period", [3, 9, 25, 49])
def test_how_many_are_sent_does_not_depend_on_where_the_large_ones_are(period: int) -> None:
    """As in kernels, every so many elements are larger than those between: a sample must not see only these."""
    vectors = {"parameter.float32": torch.randn(2_500_000, generator=torch.Generator().manual_seed(1))}
    vectors["parameter.float32"][::period] *= 1000.0

    compressor("topk:0.1").compress(vectors, 1.0)

    assert int((total(vectors) != 0).sum()) == pytest.approx(250_000, rel=0.05)


def test_every_element_may_be_as_large_as_the_others() -> None:
    vectors = {"parameter.float32": torch.ones(100)}

    compressor("topk:0.01").compress(vectors, 1.0)

    assert torch.equal(vectors["parameter.float32"], torch.ones(100))


def test_a_gradient_of_zeros_stays_one() -> None:
    vectors = {"parameter.float32": torch.zeros(100)}

    assert compressor("topk:0.01").compress(vectors, 0.0) == 0.0
    assert not vectors["parameter.float32"].any()


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_gradients_give_the_same_bits_with_any_number_of_threads(kind: str) -> None:
    def computed(threads: int) -> Vectors:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            one = compressor(kind)
            for seed in range(2):
                vectors = gradient(seed, 3_000_000)
                one.compress(vectors, 1.0)
        finally:
            torch.set_num_threads(before)
        return vectors

    first, second = computed(1), computed(2)

    assert all(torch.equal(first[key], second[key]) for key in first)
    assert math.isfinite(float(total(first).sum()))
