"""Writing one shard's part of a checkpoint, while other processes write theirs.

A shard's pieces end anywhere in a tensor.  A chunk whose elements all lie in one shard's piece is written by that
shard's copy and by nobody else; of a chunk that a boundary cuts, each side writes its elements as a *fragment*, an
object of its own, and the coordinator, which seals the checkpoint, makes the chunk of them.  So writers need no word
from each other, no two of them ever write the same object, and of the bulk of the data no byte is written twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from psplatform.errors import InvariantViolation
from psplatform.replication.checkpoints.arrays import Array, Chunk, Contents, numpy_dtype
from psplatform.replication.stores.checksums import Data
from psplatform.replication.stores.objects import ObjectFolder, Stored

FOLDER: Final = "checkpoints"


@dataclass(frozen=True, slots=True)
class Fragment:
    """The elements from `start` to `stop` of the array at `array`, in an object of their own."""

    array: str
    start: int
    stop: int
    stored: Stored


@dataclass(frozen=True, slots=True)
class Part:
    """What one shard's copy wrote of a checkpoint, for the coordinator that seals it.

    Attributes
    ----------
    number
        The checkpoint's.
    position, version
        Where in the shard's order of commits the state was cut, and the version it is.
    plain
        The rest of the copy's state, as plain values.
    contents
        What the checkpoint holds; only the part of shard 0 says so, for all.
    """

    number: int
    shard: int
    position: int
    version: int
    plain: Mapping[str, Any]
    objects: tuple[Stored, ...]
    fragments: tuple[Fragment, ...]
    contents: Contents | None = None

    def to_plain(self) -> dict[str, Any]:
        """Return the part as plain values, to be sent."""
        return {
            "number": self.number,
            "shard": self.shard,
            "position": self.position,
            "version": self.version,
            "plain": dict(self.plain),
            "objects": [[o.path, o.size, o.digest] for o in self.objects],
            "fragments": [
                [f.array, f.start, f.stop, f.stored.path, f.stored.size, f.stored.digest] for f in self.fragments
            ],
            "contents": self.contents.to_plain() if self.contents is not None else None,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Part:
        """Return the part that `to_plain` described."""
        objects = tuple(Stored(*each) for each in plain["objects"])
        fragments = tuple(
            Fragment(array, start, stop, Stored(*stored)) for array, start, stop, *stored in plain["fragments"]
        )
        where = plain["number"], plain["shard"], plain["position"], plain["version"]
        contents = Contents.from_plain(plain["contents"]) if plain["contents"] is not None else None
        return cls(*where, plain["plain"], objects, fragments, contents)


def folder_of(number: int) -> str:
    """Return the name of a checkpoint's folder, such that names sort as numbers do."""
    return f"{number:08d}"


@dataclass(slots=True)
class CheckpointWriter:
    """Writes parts of the checkpoint of that number; may be used from any thread.

    Raises
    ------
    StoreError
        By every method, when the store cannot be written to.  Older checkpoints stay as they are.
    """

    store: str
    number: int
    contents: Contents
    _folder: ObjectFolder = field(init=False)

    def __post_init__(self) -> None:
        self._folder = ObjectFolder(self.store, f"{FOLDER}/{folder_of(self.number)}")

    def write_shard(
        self,
        shard: int,
        state: Mapping[str, Any] | Callable[[], Mapping[str, Any]],
        *,
        position: int,
        version: int,
        plain: Mapping[str, Any],
    ) -> Part:
        """Write all of a shard's state but `plain`, which travels in the part.

        After a failure it may be tried again with the same state.

        Parameters
        ----------
        state
            What `Shard.state` returns, as NumPy arrays or tensors on the CPU.  It must not change meanwhile; what may
            is told by a function, which returns a copy from before it changes on.
        plain
            Whatever else makes up the copy's state, of numbers, strings, bytes, lists and dicts.
        """
        source = state if callable(state) else lambda: state
        _check(source(), self.contents.vectors(shard))
        runs = list(self._runs(shard))
        paths = [run.chunk_path if run.whole else f"fragments/{shard}/{number}" for number, run in enumerate(runs)]

        def write(path: str, run: _Run) -> Stored:
            while True:
                vectors = source()
                stored = self._folder.put(path, run.packed(_as_array(vectors[run.array.state_key])))
                if source() is vectors:  # else it may have been written over while it was read
                    return stored

        stored = self._folder.at_once(lambda each: write(*each), zip(paths, runs, strict=True))
        written = list(zip(runs, stored, strict=True))
        self._folder.flush(paths)
        objects = tuple(each for run, each in written if run.whole)
        fragments = tuple(Fragment(run.array.path, run.start, run.stop, each) for run, each in written if not run.whole)
        contents = self.contents if shard == 0 else None
        return Part(self.number, shard, position, version, dict(plain), objects, fragments, contents)

    def _runs(self, shard: int) -> Iterator[_Run]:
        for array in self.contents.arrays():
            start, stop = array.owned(self.contents.layout, shard)
            offset = array.entry.start - self.contents.layout.piece(shard, array.region.key).start
            for chunk in array.grid.chunks(start, stop):
                yield _Run(array, chunk, max(start, chunk.start), min(stop, chunk.stop), offset)


@dataclass(frozen=True, slots=True)
class _Run:
    """The elements of one chunk that a shard owns, and how far into its vector the array begins."""

    array: Array
    chunk: Chunk
    start: int
    stop: int
    offset: int

    @property
    def whole(self) -> bool:
        return (self.start, self.stop) == (self.chunk.start, self.chunk.stop)

    @property
    def chunk_path(self) -> str:
        return f"{self.array.path}/{self.chunk.key}"

    def packed(self, vector: NDArray[Any]) -> Data:
        values = vector[self.start + self.offset : self.stop + self.offset]
        return self.array.packed(values, self.chunk.capacity if self.whole else len(values))


def _check(state: Mapping[str, Any], wanted: Mapping[str, tuple[str, int]]) -> None:
    vectors = {key: _as_array(vector) for key, vector in state.items()}
    found = {key: (vector.dtype, vector.shape) for key, vector in vectors.items()}
    expected = {key: (numpy_dtype(dtype), (size,)) for key, (dtype, size) in wanted.items()}
    if found != expected:
        raise InvariantViolation(f"a shard's state of {found} is not {expected}")


def _as_array(vector: Any) -> NDArray[Any]:
    """Return a vector as NumPy array, without a copy; of bfloat16, which NumPy does not have, the bits."""
    if str(vector.dtype) == "torch.bfloat16":
        # The type of 16-bit integers is asked of the tensor, because only `tensors` imports torch.
        return np.asarray(vector.view(vector[:0].short().dtype)).view(np.uint16)
    return np.asarray(vector)
