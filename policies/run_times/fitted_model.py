"""A fitted model of run times as plain arrays: what is written to a file, and read back with every check."""

from __future__ import annotations

import io
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from psplatform.errors import ConfigurationError
from psplatform.policies.run_times.state_space import Shape

FORMAT: Final = "psplatform run-time model"
VERSION: Final = 1
_REMEDY: Final = "make one with `psplatform fit-cutoff TRACE.csv` and name its file"
_SIZES: Final = ("workers", "state", "hidden", "window")
# Far above any cluster, and small enough that a damaged number cannot ask for the whole memory.
_LARGEST_SIZE: Final = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class FittedModel:
    """The deep state-space model of the run times of `shape.workers` workers.

    Attributes
    ----------
    weights
        ``float32`` arrays by name, as `Shape.arrays` lists them.
    """

    shape: Shape
    weights: Mapping[str, NDArray[np.float32]]

    def to_bytes(self) -> bytes:
        """Return the content of the model's file: a NumPy ``.npz`` of plain arrays, the same for the same model."""
        head: dict[str, Any] = {"format": FORMAT, "version": VERSION, **self.shape.plain()}
        stream = io.BytesIO()
        arrays: dict[str, Any] = {name: np.asarray(value) for name, value in {**head, **self.weights}.items()}
        np.savez(stream, **arrays)
        return stream.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes, *, name: str = "the model") -> FittedModel:
        """Return the model that `to_bytes` described.

        Parameters
        ----------
        name
            What errors call it.

        Raises
        ------
        ConfigurationError
            If it is no such model, one of another format version, or a damaged one.
        """
        arrays = _arrays(content, name)
        _require_format(arrays, name)
        shape = _shape(arrays, name)
        return cls(shape, {key: _weights(arrays, key, size, name) for key, size in shape.arrays().items()})


def _arrays(content: bytes, name: str) -> dict[str, NDArray[Any]]:
    # An archive's names say how each entry is read, so only an archive is taken, and no pickle in it.
    if not content.startswith(b"PK"):
        raise _refusal(f"{name} is no file of a run-time model (it is no .npz archive)")
    try:
        _require_plain(content)
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            return {key: file[key] for key in file.files}
    except _UNREADABLE as error:
        raise _refusal(f"{name} is no file of a run-time model ({' '.join(str(error).split())[:200]})") from None


def _require_plain(content: bytes) -> None:
    """Refuse an archive that would become more than it is: `to_bytes` writes arrays as they are."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = archive.infolist()
        if any(one.compress_type != zipfile.ZIP_STORED for one in entries):
            raise ValueError("its arrays are compressed")
        if sum(one.file_size for one in entries) > len(content):
            raise ValueError("its arrays are longer than the file")
        for entry in entries:
            with archive.open(entry) as array:
                _require_size(array, entry.file_size)


def _require_size(array: IO[bytes], size: int) -> None:
    """Refuse an array whose shape does not make up its bytes, before anything is allocated for it."""
    version = np.lib.format.read_magic(array)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"its arrays have the format {version}")
    shape, _, dtype = read(array)
    if math.prod(shape) * dtype.itemsize + array.tell() != size:
        raise ValueError(f"an array of the shape {shape} does not have {size} bytes")


_UNREADABLE: Final = (
    *(ValueError, OSError, EOFError, KeyError, TypeError, SyntaxError, RuntimeError, OverflowError, MemoryError),
    *(NotImplementedError, struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)
"""What NumPy and the archive raise about bytes that are none of theirs."""


def _refusal(what: str) -> ConfigurationError:
    return ConfigurationError(f"{what}; {_REMEDY}", field="model")


def _require_format(arrays: Mapping[str, NDArray[Any]], name: str) -> None:
    if str(arrays.get("format")) != FORMAT:
        raise _refusal(f"{name} is no run-time model")
    version = _integer(arrays, "version", name)
    if version != VERSION:
        raise _refusal(f"{name} has format version {version}, and this release reads version {VERSION}")


def _shape(arrays: Mapping[str, NDArray[Any]], name: str) -> Shape:
    sizes = {field.name: _integer(arrays, field.name, name) for field in fields(Shape)}
    for key in _SIZES:
        if not 1 <= sizes[key] <= _LARGEST_SIZE:
            raise _refusal(f"{name} is damaged: its {key} is {sizes[key]}")
    sees_now, identity = bool(sizes["sees_now"]), bool(sizes["identity"])
    workers, state, hidden, window = (sizes[key] for key in _SIZES)
    return Shape(workers, state, hidden, window, sees_now, identity)


def _integer(arrays: Mapping[str, NDArray[Any]], key: str, name: str) -> int:
    found = arrays.get(key)
    if found is None or found.shape != () or found.dtype.kind not in "iub":
        raise _refusal(f"{name} is damaged: it has no {key}")
    return int(found)


def _weights(arrays: Mapping[str, NDArray[Any]], key: str, size: tuple[int, ...], name: str) -> NDArray[np.float32]:
    found = arrays.get(key)
    if found is None or found.shape != size or found.dtype != np.float32:
        raise _refusal(f"{name} is damaged: {key} is not an array of {'x'.join(map(str, size))} float32")
    if not np.all(np.isfinite(found)):
        raise _refusal(f"{name} is damaged: {key} is not finite")
    return found
