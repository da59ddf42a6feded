"""Flat vectors in memory of their own or handed in."""

from __future__ import annotations

import pytest
import torch

from psplatform.errors import InvariantViolation
from psplatform.tensors.layout import Layout, TensorSpec
from psplatform.tensors.vectors import (
    ALIGNMENT,
    allocate,
    carve,
    fill,
    named_views,
    part_of,
    shard_vectors,
    size_bytes,
    sizes,
    spec_of,
    split,
    torch_dtype,
)

SPECS = [
    TensorSpec("w", (5, 3), "float32", "parameter"),
    TensorSpec("b", (3,), "float32", "parameter"),
    TensorSpec("mean", (7,), "float64", "buffer"),
    TensorSpec("steps", (), "int64", "buffer"),
    TensorSpec("mask", (3,), "bool", "buffer"),
]
LAYOUT = Layout.of(SPECS, shards=2)


@pytest.mark.parametrize("shard", [None, 0, 1])
def test_vectors_are_zero_aligned_and_of_the_sizes_asked_for(shard: int | None) -> None:
    vectors = allocate(LAYOUT, shard)
    assert {key: (str(v.dtype), v.numel()) for key, v in vectors.items()} == {
        key: (f"torch.{dtype}", size) for key, (dtype, size) in sizes(LAYOUT, shard).items()
    }
    assert all(vector.data_ptr() % ALIGNMENT == 0 for vector in vectors.values() if vector.numel())
    assert not any(vector.any() for vector in vectors.values())


def test_vectors_are_carved_out_of_a_buffer_without_overlap() -> None:
    """What is written into one vector is seen in the buffer, and in no other vector."""
    memory = bytearray(size_bytes(LAYOUT) + ALIGNMENT)
    whole = torch.frombuffer(memory, dtype=torch.uint8)
    skip = -whole.data_ptr() % ALIGNMENT
    vectors = carve(whole[skip:], sizes(LAYOUT))
    for vector in vectors.values():
        vector.fill_(1)
    assert all(bool((vector == 1).all()) for vector in vectors.values())
    assert sum(map(bool, memory)) > 0


def test_a_buffer_that_is_too_small_or_not_aligned_is_refused() -> None:
    memory = torch.zeros(size_bytes(LAYOUT) + 1, dtype=torch.uint8)
    with pytest.raises(InvariantViolation, match="aligned"):
        carve(memory[1:], sizes(LAYOUT))
    with pytest.raises(InvariantViolation, match="bytes"):
        carve(memory[: size_bytes(LAYOUT) - 1], sizes(LAYOUT))


def test_a_vector_is_its_own_part_where_that_is_all_of_it() -> None:
    vector = torch.arange(5)
    assert part_of(vector, slice(0, 5)) is vector
    assert part_of(vector, slice(1, 3)).tolist() == [1, 2]
    assert [one.tolist() for one in split(vector, 2)] == [[0, 1], [2, 3], [4]]
    assert split(vector, 5)[0] is vector
    assert len(split(vector[:0], 5)) == 1


def test_pieces_are_views_of_the_regions() -> None:
    vectors = allocate(LAYOUT)
    for shard in range(2):
        for vector in shard_vectors(LAYOUT, shard, vectors).values():
            vector.fill_(1)
    assert all(bool((vector == 1).all()) for vector in vectors.values())


def test_tensors_are_packed_and_viewed_by_name() -> None:
    tensors = {spec.name: torch.arange(spec.size).reshape(spec.shape).to(torch_dtype(spec.dtype)) for spec in SPECS}
    vectors = allocate(LAYOUT)
    fill(LAYOUT, vectors, tensors)
    views = named_views(LAYOUT, vectors)
    assert views.keys() == tensors.keys()
    assert all(torch.equal(views[name], tensors[name]) for name in tensors)
    assert list(named_views(LAYOUT, vectors, "parameter")) == ["w", "b"]
    views["b"].fill_(-1)
    assert vectors["parameter.float32"].tolist()[15:] == [-1, -1, -1]


def test_a_spec_describes_a_tensor() -> None:
    assert spec_of("x", torch.zeros(2, 3, dtype=torch.int16), "buffer") == TensorSpec("x", (2, 3), "int16", "buffer")
    with pytest.raises(InvariantViolation, match="no dtype"):
        torch_dtype("Tensor")
