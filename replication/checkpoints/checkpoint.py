"""One complete checkpoint, read by name or shard by shard; every byte is compared with its checksum on the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psplatform.replication.checkpoints.arrays import Array, Contents, numpy_dtype
from psplatform.replication.checkpoints.catalog import Catalog
from psplatform.replication.checkpoints.manifest import STATE, Manifest, Summary
from psplatform.replication.checkpoints.matching import require_match
from psplatform.tensors.layout import Layout
from psplatform.untrusted.values import Refused, from_msgpack


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """What one shard's copy was when the checkpoint was cut, its vectors aside."""

    position: int
    version: int
    plain: dict[str, Any]


class Checkpoint:
    """A checkpoint of a store; its arrays are read when they are asked for.

    Tensors of bfloat16, which NumPy does not have, are given as their bits, in ``uint16``.

    Attributes
    ----------
    state
        The coordinator's.
    shards
        What each shard of the run that wrote it was.

    Raises
    ------
    CheckpointError
        By every method that reads, naming the damaged object and the checkpoint to go back to.
    """

    def __init__(self, catalog: Catalog, manifest: Manifest) -> None:
        self._catalog = catalog
        self._manifest = manifest
        (packed,) = self._read([STATE])
        plain = self._states(packed)
        self.state: dict[str, Any] = plain["coordinator"]
        cuts = zip(manifest.positions, manifest.versions, plain["shards"], strict=True)
        self.shards = tuple(ShardRecord(*cut) for cut in cuts)

    @property
    def summary(self) -> Summary:
        """The checkpoint in short."""
        return self._manifest.summary

    @property
    def number(self) -> int:
        """The checkpoint's number."""
        return self._manifest.number

    @property
    def contents(self) -> Contents:
        """The layout of the run that wrote it, and its optimiser's slots."""
        return self._manifest.contents

    def _states(self, packed: bytes) -> dict[str, Any]:
        """Return the plain states: a table of the coordinator, and one for each shard."""
        try:
            plain = from_msgpack(packed)
        except Refused as error:
            raise self._catalog.damaged(self.number, STATE, str(error)) from None
        shards: Any = plain.get("shards") if isinstance(plain, dict) else None
        tables = isinstance(shards, list) and all(isinstance(one, dict) for one in shards)
        if not (tables and len(shards) == len(self._manifest.positions) and isinstance(plain.get("coordinator"), dict)):
            raise self._catalog.damaged(self.number, STATE, "it is not the state of a coordinator and its shards")
        found: dict[str, Any] = plain
        return found

    def verify(self) -> None:
        """Read everything once and return; then all of it is there as it was written."""
        for _ in self._read(list(self._manifest.objects)):
            pass

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return the model's parameters and buffers by name, in its shapes."""
        return self._named(None)

    def slots(self) -> dict[str, dict[str, NDArray[Any]]]:
        """Return the optimiser's state by slot and parameter name, in the model's shapes."""
        return {slot: self._named(slot) for slot in self.contents.slots}

    def shard_state(self, layout: Layout, shard: int, slots: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Return what `Shard.restore` takes for one shard of a layout, whatever layout the checkpoint was made with.

        Only the chunks that hold any of the shard's elements are read.

        Parameters
        ----------
        slots
            Names of the state vectors that the job's optimiser keeps.

        Raises
        ------
        ConfigurationError
            If the layout's tensors or the slots are not those of the checkpoint.
        """
        job = Contents(layout, tuple(slots), self.contents.chunk_bytes)
        require_match(self.contents, job)
        vectors = {key: np.empty(size, numpy_dtype(dtype)) for key, (dtype, size) in job.vectors(shard).items()}
        wanted = []
        for array in job.arrays():
            start, stop = array.owned(layout, shard)
            offset = array.entry.start - layout.piece(shard, array.region.key).start
            if start < stop:
                wanted.append((array, start, vectors[array.state_key][start + offset : stop + offset]))
        self._fill(wanted)
        return vectors

    def _named(self, slot: str | None) -> dict[str, NDArray[Any]]:
        arrays = [array for array in self.contents.arrays() if array.slot == slot]
        vectors = [np.empty(array.entry.size, numpy_dtype(array.region.dtype)) for array in arrays]
        self._fill([(array, 0, vector) for array, vector in zip(arrays, vectors, strict=True)])
        found = zip(arrays, vectors, strict=True)
        return {array.entry.name: vector.reshape(array.entry.shape) for array, vector in found}

    def _fill(self, wanted: Sequence[tuple[Array, int, NDArray[Any]]]) -> None:
        """Copy elements of arrays, from the one named on, into vectors, until these are full."""
        moves = [
            (array, start, vector, chunk)
            for array, start, vector in wanted
            for chunk in array.grid.chunks(start, start + len(vector))
        ]
        objects = self._read([f"{array.path}/{chunk.key}" for array, _, _, chunk in moves])
        for (array, start, vector, chunk), data in zip(moves, objects, strict=True):
            values = np.frombuffer(data, array.dtype)
            first, last = max(start, chunk.start), min(start + len(vector), chunk.stop)
            vector[first - start : last - start] = values[first - chunk.start : last - chunk.start]

    def _read(self, paths: Sequence[str]) -> Iterator[bytes]:
        return self._catalog.read(self.number, [self._manifest.objects[path] for path in paths])
