"""A dask array is computed chunk by chunk, each of them once while there is room for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psplatform.errors import ConfigurationError
from psplatform.tasks.data.chunks import KeptChunks
from psplatform.tasks.data.sources import as_source

ROWS = np.arange(60, dtype=np.float32).reshape(20, 3)
CHUNK_BYTES = 4 * 3 * 4


@pytest.fixture
def computed() -> list[int]:
    """Number of the first row of each chunk, in the order in which they were computed."""
    return []


@pytest.fixture
def lazy(computed: list[int]) -> Any:
    """Make an array of twenty rows in chunks of four, which notes what of it is computed."""

    def note(block: Any) -> Any:
        computed.append(int(block[0, 0]) // 3)
        return block

    source: Any = dask.array
    return source.from_array(ROWS, chunks=(4, 3)).map_blocks(note, dtype=np.float32, meta=np.empty((0, 0), np.float32))


def test_a_chunk_is_computed_once(lazy: Any, computed: list[int]) -> None:
    source = as_source((lazy, np.zeros(20, np.int64)))
    for batch in ([0, 1, 19], [18, 2], [3, 3, 16], [0]):
        inputs, _ = source.fetch(np.array(batch))
        np.testing.assert_array_equal(inputs.numpy(), ROWS[batch])
    assert computed == [0, 16]


def test_what_was_used_last_is_kept_where_there_is_no_room_for_all(lazy: Any, computed: list[int]) -> None:
    chunks = KeptChunks(lazy, kept_bytes=2 * CHUNK_BYTES)
    for row in (0, 4, 0, 8, 0, 4):
        np.testing.assert_array_equal(chunks.read(np.array([row])), ROWS[[row]])
    assert computed == [0, 4, 8, 4]


def test_of_a_chunk_that_is_larger_than_the_room_only_rows_are_kept_for_the_batch(
    lazy: Any, computed: list[int]
) -> None:
    chunks = KeptChunks(lazy, kept_bytes=CHUNK_BYTES - 1)
    rows = np.array([1, 2, 9])
    np.testing.assert_array_equal(chunks.read(rows), ROWS[rows])
    np.testing.assert_array_equal(chunks.read(rows), ROWS[rows])
    assert sorted(computed) == [0, 0, 8, 8]


@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=6),
    st.lists(st.integers(0, 10**6), min_size=1, max_size=12),
    st.sampled_from([1, 40, 10**6]),
)
def test_rows_are_those_of_the_array_however_it_is_cut(sizes: list[int], picks: list[int], kept_bytes: int) -> None:
    whole = np.arange(2 * sum(sizes)).reshape(sum(sizes), 2)
    make: Callable[..., Any] = dask.array.from_array
    chunks = KeptChunks(make(whole, chunks=(tuple(sizes), (1, 1))), kept_bytes)
    rows = np.unique(np.array(picks) % len(whole))
    np.testing.assert_array_equal(chunks.read(rows), whole[rows])


def test_an_array_that_was_computed_on_a_cluster_is_refused_with_what_to_hand_in() -> None:
    """No scheduler but the cluster's can compute with it, and that one knows nothing of the run's processes."""
    future = type("Future", (), {"__module__": "distributed.client"})()
    make: Any = dask.array.Array
    persisted = make({("x", 0): future}, "x", chunks=((4,),), dtype=np.float32)
    with pytest.raises(ConfigurationError, match="inputs are a dask array that was computed on a cluster.*to_zarr"):
        as_source((persisted, np.zeros(4)))


def test_an_array_of_one_dimension_is_read_as_well() -> None:
    make: Callable[..., Any] = dask.array.from_array
    chunks = KeptChunks(make(np.arange(9), chunks=4))
    assert chunks.read(np.array([0, 3, 4, 8])).tolist() == [0, 3, 4, 8]
