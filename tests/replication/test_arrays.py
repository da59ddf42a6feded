"""The cut of arrays into chunks, and that Zarr reads what is written by its rules."""

from __future__ import annotations

import math
from typing import Any
from uuid import uuid4

import fsspec
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from psplatform.replication.checkpoints.arrays import Array, Contents, Grid, encoded, numpy_dtype
from psplatform.tensors.layout import ITEM_BYTES, Layout, Region, TensorSpec

shapes = st.lists(st.integers(0, 7), max_size=4).map(tuple)


@given(shapes, st.integers(1, 60))
def test_chunks_follow_each_other_without_a_gap(shape: tuple[int, ...], limit: int) -> None:
    grid, size = Grid.of(shape, limit), math.prod(shape)
    end = 0
    for chunk in grid.chunks(0, size):
        assert chunk.start == end < chunk.stop
        assert chunk.stop - chunk.start <= chunk.capacity == math.prod(grid.chunk_shape) <= limit
        end = chunk.stop
    assert end == size


@given(shapes, st.integers(1, 60), st.data())
def test_a_run_of_elements_needs_the_chunks_that_hold_any_of_it(
    shape: tuple[int, ...], limit: int, data: st.DataObject
) -> None:
    grid, size = Grid.of(shape, limit), math.prod(shape)
    start, stop = sorted((data.draw(st.integers(0, size)), data.draw(st.integers(0, size))))
    touched = [c for c in grid.chunks(0, size) if c.start < stop and start < c.stop and start < stop]
    assert list(grid.chunks(start, stop)) == touched


@pytest.mark.parametrize(
    ("shape", "limit", "chunk_shape"),
    [
        ((), 10, ()),
        ((100,), 10, (10,)),
        ((101,), 10, (10,)),
        ((12, 4), 100, (12, 4)),
        ((12, 4), 20, (4, 4)),
        ((13, 4), 20, (5, 4)),
        ((3, 1000), 300, (1, 250)),
        ((2, 3, 1000), 3000, (1, 3, 1000)),
        ((0, 4), 10, (1, 4)),
        ((5, 0), 10, (5, 1)),
    ],
)
def test_chunks_are_of_about_equal_size(shape: tuple[int, ...], limit: int, chunk_shape: tuple[int, ...]) -> None:
    """So little of the last one is filling; what does not fit is cut along the first axis that can be cut."""
    assert Grid.of(shape, limit).chunk_shape == chunk_shape


@settings(max_examples=25)
@given(shapes, st.integers(1, 60), st.sampled_from(sorted(ITEM_BYTES)), st.data())
def test_zarr_reads_every_shape_and_type(shape: tuple[int, ...], limit: int, dtype: str, data: st.DataObject) -> None:
    region = Region.of("buffer", dtype, [TensorSpec("x", shape, dtype, "buffer")])
    array = Array.of(None, region, region.entries[0], limit * ITEM_BYTES[dtype])
    values = (np.arange(region.size) % 2 + np.arange(region.size) % 120).astype(numpy_dtype(dtype))
    files, store = fsspec.filesystem("memory"), f"memory://{uuid4().hex}"
    files.pipe_file(f"{store}/zarr.json", array.metadata())
    for chunk in array.grid.chunks(0, region.size):
        packed = array.packed(values[chunk.start : chunk.stop], chunk.capacity)
        files.pipe_file(f"{store}/{chunk.key}", bytes(packed))
    found: Any = zarr.open_array(store, mode="r")
    assert found.shape == shape
    assert found.dtype == numpy_dtype(dtype)
    assert np.asarray(found[...]).tobytes() == values.tobytes()
    files.rm(store, recursive=True)


def test_bfloat16_is_said_to_be_bits() -> None:
    (array,) = Contents(Layout.of([TensorSpec("x", (3,), "bfloat16", "buffer")], shards=1)).arrays()
    assert b'"bits_of": "bfloat16"' in array.metadata()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.bool_])
def test_a_chunk_is_little_endian_whatever_the_machine(dtype: Any) -> None:
    region = Region.of("buffer", np.dtype(dtype).name, [TensorSpec("x", (3,), np.dtype(dtype).name, "buffer")])
    array = Array.of(None, region, region.entries[0], 100)
    values = np.array([1, 0, 1], dtype)
    native_elsewhere = values.astype(values.dtype.newbyteorder(">"))
    assert array.packed(native_elsewhere, 3) == array.packed(values, 3) == values.astype(array.dtype).tobytes()


@given(
    st.sets(st.text(max_size=6) | st.sampled_from(["", "%", "zarr.json", "%7Aarr.json", "..", "%2E.", "__a", "%5F_a"]))
)
def test_different_names_lie_in_different_places(names: set[str]) -> None:
    paths = {encoded(name) for name in names}
    assert len(paths) == len(names)
    assert all(path and "/" not in path and not path.startswith("__") for path in paths)
    assert not paths & {".", "..", "zarr.json"}


def test_plain_names_stay_as_they_are() -> None:
    assert encoded("layers.0.fc-1.weight_g") == "layers.0.fc-1.weight_g"


def test_what_a_checkpoint_holds_survives_as_plain_values() -> None:
    layout = Layout.of(
        [TensorSpec("w", (3, 4), "float32", "parameter"), TensorSpec("n", (), "int64", "buffer")], shards=2
    )
    contents = Contents(layout, ("momentum",), 64)
    assert Contents.from_plain(contents.to_plain()) == contents
    assert [array.path for array in contents.arrays()] == ["model/w", "model/n", "optimizer/momentum/w"]
