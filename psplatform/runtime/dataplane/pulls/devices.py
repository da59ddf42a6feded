"""Between a GPU and the memory of its host.

A worker that computes on a GPU pulls out of its server's segment straight into the GPU's memory.  Its gradient leaves
for the slab bucket by bucket, on a stream of its own, while the rest of it is still computed.  Segments and slab are
*pinned*: the GPU reads and writes them by itself, at the speed of the bus, and no core copies anything in between.

Nothing here asks for a GPU: on another device the same copies are made, one after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import mmap
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor

from psplatform.runtime.dataplane.pulls.content import Content, Vectors
from psplatform.runtime.dataplane.pulls.parameters import Parameters
from psplatform.tensors.layout import Layout, Region
from psplatform.tensors.norms import squared_norm
from psplatform.tensors.vectors import allocate, torch_dtype

LOGGER: Final = logging.getLogger(__name__)

_BUCKET_BYTES: Final = 4 << 20
"""Of an update that leaves at once: a hundred microseconds of the bus, against some ten for the call."""

_DONE: Final = 0


class Pins:
    """Memory of the host that the GPU may use by itself, until it is let go of.  Any thread may call.

    Only what lies in a mapping of its own may be pinned: whole pages are, and CUDA refuses to copy what lies partly in
    pinned memory.  It stays mapped as long as it is pinned.  What cannot be pinned is copied all the same, but slower.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._runtime: Any = torch.cuda.cudart() if device.type == "cuda" else None
        self._pinned: dict[int, tuple[Vectors, ...]] = {}
        self._lock = threading.Lock()
        self._closed = False

    def pin(self, *vectors: Vectors) -> None:
        """Pin the one mapping that holds all of these vectors."""
        if self._runtime is None:
            return
        start, stop = _pages(vectors)
        with self._lock, self._on_device():
            if self._closed or start in self._pinned or start == stop:
                return
            refused = int(self._runtime.cudaHostRegister(start, stop - start, 0))
            if refused == _DONE:
                self._pinned[start] = vectors
                return
            with contextlib.suppress(RuntimeError):
                torch.zeros(1, device=self._device)  # takes the error, for which whatever comes next would be blamed
        LOGGER.warning("%d bytes could not be pinned (CUDA error %d): copies take longer", stop - start, refused)

    def let_go(self, *vectors: Vectors) -> None:
        """Pin it no longer, if it is."""
        start, _ = _pages(vectors)
        with self._lock, self._on_device():
            if self._pinned.pop(start, None) is not None:
                self._runtime.cudaHostUnregister(start)

    def close(self) -> None:
        """Let go of all of it, and pin nothing more."""
        with self._lock, self._on_device():
            self._closed = True
            while self._pinned:
                self._runtime.cudaHostUnregister(self._pinned.popitem()[0])

    def _on_device(self) -> contextlib.AbstractContextManager[Any]:
        # Threads of their own begin on the first GPU, where they would make themselves at home.
        is_gpu = self._device.type == "cuda" and torch.cuda.is_available()
        return torch.cuda.device(self._device) if is_gpu else contextlib.nullcontext()


def _pages(vectors: Iterable[Vectors]) -> tuple[int, int]:
    kept = [vector for some in vectors for vector in some.values() if vector.numel()]  # an empty one lies nowhere
    start = min((vector.data_ptr() for vector in kept), default=0)
    stop = max((vector.data_ptr() + vector.numel() * vector.element_size() for vector in kept), default=0)
    return start // mmap.PAGESIZE * mmap.PAGESIZE, -(-stop // mmap.PAGESIZE) * mmap.PAGESIZE


class DeviceParameters(Parameters):
    """Vectors of whole regions on a device, that pulls are copied into from the host's memory."""

    def __init__(self, layout: Layout, device: torch.device) -> None:
        super().__init__(layout, allocate(layout, device=device))
        self._pins = Pins(device)

    def room(self, shard: int) -> None:
        """Return ``None``: nothing is read into a device's memory."""

    async def meet(self, content: Content) -> None:
        """Pin what a server shows."""
        await asyncio.get_running_loop().run_in_executor(None, self._pins.pin, *content.copies)

    def forget(self, content: Content) -> None:
        """Let go of what a server showed."""
        self._pins.let_go(*content.copies)

    def close(self) -> None:
        """Let go of all that servers show."""
        self._pins.close()


class Updates:
    """A worker's update, computed where servers read it.

    Attributes
    ----------
    vectors
        Of whole regions, to compute it into.
    """

    def __init__(self, vectors: Vectors) -> None:
        self.vectors = vectors

    @property
    def shown(self) -> Vectors:
        """What servers read once it is complete."""
        return self.vectors

    def begin(self) -> None:
        """Expect another update."""

    def ready(self, name: str) -> None:
        """Take note that the update of that parameter is there; to be called again if it changes."""

    def complete(self) -> float:
        """Have all of it where servers read it; return the sum of its squares, as `norms.squared_norm` does."""
        return squared_norm(vector for key, vector in self.vectors.items() if key.startswith("parameter"))

    def close(self) -> None:
        """Write nothing any more."""


@dataclass
class _Bucket:
    """Consecutive elements of a vector, with the names of the parameters there."""

    key: str
    start: int
    stop: int
    names: frozenset[str]
    awaited: set[str] = field(default_factory=set)
    is_sent: bool = False


class DeviceUpdates(Updates):
    """A worker's update, computed on a device, and copied to where servers read it as soon as it is there.

    Parameters
    ----------
    exposed
        Vectors of the host's memory, where servers read.
    """

    def __init__(self, layout: Layout, device: torch.device, exposed: Vectors) -> None:
        super().__init__(allocate(layout, device=device))
        self._exposed = exposed
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._buckets = [bucket for region in layout.regions for bucket in _buckets(region)]
        self._closed = False
        self._closing = threading.Lock()
        self._bucket_of = {name: bucket for bucket in self._buckets for name in bucket.names}
        self._pins = Pins(device)
        self._pins.pin(exposed)

    @property
    def shown(self) -> Vectors:
        """What servers read once it is complete."""
        return self._exposed

    def begin(self) -> None:
        """Expect another update."""
        for bucket in self._buckets:
            bucket.awaited, bucket.is_sent = set(bucket.names), False

    def ready(self, name: str) -> None:
        """Copy a bucket of which the last update is there."""
        bucket = self._bucket_of[name]
        if bucket.is_sent:
            bucket.is_sent = False  # it has changed: once more, at the end
        elif name in bucket.awaited:
            bucket.awaited.remove(name)
            if not bucket.awaited:
                self._send(bucket)

    def complete(self) -> float:
        """Copy what is still here; measure on the device meanwhile."""
        for bucket in self._buckets:
            if not bucket.is_sent:
                self._send(bucket)
        squared = super().complete()
        self._wait()
        return squared

    def close(self) -> None:
        """Let go of the host's memory, once nothing is copied there any more."""
        with self._closing:
            self._closed = True
        self._wait()
        self._pins.close()

    def _send(self, bucket: _Bucket) -> None:
        bucket.is_sent = True
        part = slice(bucket.start, bucket.stop)
        source, target = self.vectors[bucket.key][part], self._exposed[bucket.key][part]
        with self._closing:
            if self._closed:
                return  # nobody reads it any more, and the memory may be pinned no longer
            if self._stream is None:
                target.copy_(source)
                return
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
            with torch.cuda.stream(self._stream):
                target.copy_(source, non_blocking=True)

    def _wait(self) -> None:
        if self._stream is not None:
            self._stream.synchronize()


def _buckets(region: Region) -> Iterator[_Bucket]:
    """Cut a region at entries; buffers, which are there at the end only, are one bucket."""
    each = max(1, _BUCKET_BYTES // torch_dtype(region.dtype).itemsize)
    names: set[str] = set()
    start = 0
    for number, entry in enumerate(region.entries):
        names.add(entry.name)
        is_last = number == len(region.entries) - 1
        stop = region.size if is_last else entry.start + entry.size
        if is_last or (region.kind == "parameter" and stop - start >= each):
            yield _Bucket(region.key, start, stop, frozenset(names))
            names, start = set(), stop


def updates_on(layout: Layout, device: torch.device, exposed: Mapping[str, Tensor]) -> Updates:
    """Return updates that are computed on a device, and end in `exposed`."""
    return Updates(exposed) if device.type == "cpu" else DeviceUpdates(layout, device, exposed)
