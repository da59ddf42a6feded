"""What the metadata of arrays may promise, looked at from several threads at once, as Zarr reads."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from psplatform.replication.checkpoints.arrays import Array
from psplatform.replication.checkpoints.metadata import DOCUMENT, Promises
from psplatform.tensors.layout import Region, TensorSpec
from psplatform.untrusted.values import Refused

ELEMENTS = 3
BYTES = ELEMENTS * 4
THREADS = 8


@pytest.fixture
def _switching_all_the_time() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def document() -> bytes:
    """The metadata of an array of `BYTES` bytes."""
    region = Region.of("parameter", "float32", [TensorSpec("weight", (ELEMENTS,), "float32", "parameter")])
    return Array.of(None, region, region.entries[0], 1 << 20).metadata()


def test_arrays_that_are_read_twice_count_once(document: bytes) -> None:
    promises = Promises(most=2 * BYTES)
    for path in ("a", "b", "a", "b"):
        promises.check(f"{path}/{DOCUMENT}", document)
    with pytest.raises(Refused, match="would not fit into the memory"):
        promises.check(f"c/{DOCUMENT}", document)


@pytest.mark.usefixtures("_switching_all_the_time")
def test_arrays_are_counted_from_many_threads(document: bytes) -> None:
    """Nothing breaks, and not one array is forgotten: one more than there is room for is refused."""
    count = 300
    promises = Promises(most=count * BYTES)
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(lambda number: promises.check(f"a{number}/{DOCUMENT}", document), range(count)))
    with pytest.raises(Refused, match="would not fit into the memory"):
        promises.check(f"one more/{DOCUMENT}", document)
