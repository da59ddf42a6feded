"""Where tensors lie and who owns which elements."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psplatform.errors import ConfigurationError, InvariantViolation
from psplatform.tensors.layout import BLOCKS_AT_LEAST, Entry, Layout, Span, TensorSpec

SHAPES = st.lists(st.integers(0, 40), max_size=2).map(tuple)
PARAMETERS = st.builds(
    TensorSpec, st.just(""), SHAPES, st.sampled_from(["float32", "float64"]), st.just("parameter"), st.integers(0, 3)
)
BUFFERS = st.builds(TensorSpec, st.just(""), SHAPES, st.sampled_from(["float32", "int64", "bool"]), st.just("buffer"))
SPECS = st.lists(PARAMETERS | BUFFERS, max_size=12).map(
    lambda specs: [replace(spec, name=f"t{number}") for number, spec in enumerate(specs)]
)
LAYOUTS = st.builds(
    lambda specs, shards, power: Layout.of(specs, shards=shards, block_elements=2**power),
    SPECS,
    st.integers(1, 9),
    st.integers(0, 6),
)


@given(LAYOUTS)
def test_every_element_is_owned_by_exactly_one_shard_in_order(layout: Layout) -> None:
    for region in layout.regions:
        pieces = [layout.piece(shard, region.key) for shard in range(layout.shards)]
        assert pieces[0].start == 0
        assert pieces[-1].stop == region.size
        assert all(left.stop == right.start for left, right in pairwise(pieces))


@given(LAYOUTS)
def test_spans_tile_the_piece_and_carry_each_elements_group(layout: Layout) -> None:
    for region in layout.regions:
        groups = [entry.group for entry in region.entries for _ in range(entry.size)]
        for shard in range(layout.shards):
            spans = layout.spans(shard, region.key)
            owned = [span.group for span in spans for _ in range(span.start, span.stop)]
            assert owned == groups[layout.piece(shard, region.key)]
            assert all(span.start < span.stop for span in spans)
            assert all(left.stop == right.start for left, right in pairwise(spans))


@given(LAYOUTS)
def test_blocks_tile_the_piece_and_only_a_regions_last_may_be_short(layout: Layout) -> None:
    for region in layout.regions:
        size = layout.block_size(region.key)
        blocks = [block for shard in range(layout.shards) for block in layout.blocks(shard, region.key)]
        assert [(b.start, b.stop) for b in blocks] == [
            (start, min(start + size, region.size)) for start in range(0, region.size, size)
        ]


@given(LAYOUTS)
def test_the_plain_form_gives_the_same_layout_back(layout: Layout) -> None:
    assert Layout.from_plain(msgpack.unpackb(msgpack.packb(layout.to_plain()))) == layout


@given(SPECS, st.integers(1, 9))
def test_the_number_of_shards_changes_neither_order_nor_blocks(specs: list[TensorSpec], shards: int) -> None:
    one, many = Layout.of(specs, shards=1), Layout.of(specs, shards=shards)
    assert one.regions == many.regions
    assert [one.block_size(region.key) for region in one.regions] == [many.block_size(r.key) for r in many.regions]


@given(st.integers(1, 20_000), st.integers(1, BLOCKS_AT_LEAST))
def test_every_shard_gets_a_share_as_far_as_elements_reach(size: int, shards: int) -> None:
    layout = Layout.of([TensorSpec("w", (size,), "float32", "parameter")], shards=shards)
    pieces = [layout.piece(shard, "parameter.float32") for shard in range(shards)]
    assert sum(piece.start < piece.stop for piece in pieces) == min(size, shards)


@given(LAYOUTS)
def test_as_many_shards_as_there_are_blocks_each_hold_a_parameter_and_one_more_does_not(layout: Layout) -> None:
    most, one = layout.most_shards, replace(layout, shards=1)
    keys = [region.key for region in layout.regions if region.kind == "parameter"]
    assert most == max((len(one.blocks(0, key)) for key in keys), default=0)
    if most:
        full = replace(layout, shards=most)
        assert all(any(full.blocks(shard, key) for key in keys) for shard in range(most))
    if len(keys) == 1:
        over = replace(layout, shards=most + 1)
        assert not all(over.blocks(shard, keys[0]) for shard in range(most + 1))


def test_large_regions_are_cut_at_the_block_size_asked_for() -> None:
    layout = Layout.of([TensorSpec("w", (25_000_000,), "float32", "parameter")], shards=3)
    assert layout.block_size("parameter.float32") == 65536
    assert layout.piece(1, "parameter.float32").start % 65536 == 0


def test_parameters_lie_by_group_then_in_the_order_given() -> None:
    specs = [
        TensorSpec("a", (2, 3), "float32", "parameter", 1),
        TensorSpec("steps", (), "int64", "buffer"),
        TensorSpec("b", (4,), "float32", "parameter", 0),
        TensorSpec("c", (1,), "float32", "parameter", 1),
    ]
    layout = Layout.of(specs, shards=1)
    parameters, buffers = layout.regions
    assert parameters.entries == (Entry("b", (4,), 0, 4, 0), Entry("a", (2, 3), 4, 6, 1), Entry("c", (1,), 10, 1, 1))
    assert buffers.entries == (Entry("steps", (), 0, 1, 0),)
    assert layout.spans(0, "parameter.float32") == (Span(0, 0, 4), Span(1, 4, 11))


def test_a_layout_counts_what_it_holds() -> None:
    specs = [TensorSpec("w", (10,), "float32", "parameter"), TensorSpec("n", (), "int64", "buffer")]
    layout = Layout.of(specs, shards=2)
    assert (layout.parameters, layout.nbytes) == (10, 48)
    assert layout.describe() == "10 parameters in 2 shards (parameter.float32 10, buffer.int64 1)"


@pytest.mark.parametrize(
    ("specs", "cut", "field"),
    [
        ([TensorSpec("w", (1,), "float32", "parameter")] * 2, {"shards": 1}, "model"),
        ([TensorSpec("w", (1,), "complex64", "buffer")], {"shards": 1}, "model"),
        ([TensorSpec("w", (1,), "bfloat16", "parameter")], {"shards": 1}, "model"),
        ([], {"shards": 0}, "shards"),
        ([], {"shards": 1, "block_elements": 48}, "block_elements"),
        ([], {"shards": 1, "block_elements": 0}, "block_elements"),
        ([], {"shards": 1, "block_elements": 1 << 25}, "block_elements"),
    ],
)
def test_what_cannot_be_laid_out_is_refused_by_field(specs: list[TensorSpec], cut: dict[str, int], field: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Layout.of(specs, **cut)
    assert caught.value.field == field


def test_asking_for_what_is_not_there_is_a_bug() -> None:
    layout = Layout.of([TensorSpec("w", (1,), "float32", "parameter")], shards=2)
    with pytest.raises(InvariantViolation, match="no region"):
        layout.region("buffer.int64")
    with pytest.raises(InvariantViolation, match="no shard 2"):
        layout.piece(2, "parameter.float32")


def test_layouts_need_no_torch() -> None:
    code = "import sys, psplatform.tensors.layout; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
