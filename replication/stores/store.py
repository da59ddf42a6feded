"""The store of a run: a Zarr group that says which run it holds, the event log beside it, and the model.

This is the only module that knows Zarr.  A store is laid out as

::

    zarr.json            the root group; its attribute "psplatform" describes the run
    log/                 the event log (psplatform.telemetry)
    model/               a group of arrays by parameter name, with the version they are as attribute
    best/                the same of the best version, where the job keeps it; its attribute "whole" names the group
    recovered/           claims to go on with the run (psplatform.replication.stores.claims)

and can be read with plain Zarr.  Arrays of a model are named as those of a checkpoint: a name that no path can hold is
encoded, and each stands in its array's attributes.  They are written first and the model's attributes last, so that a
model that says its version is whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import re
import tempfile
import uuid
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from json import JSONDecodeError
from pathlib import Path
from typing import Any, Final, Literal, Self

import numpy as np
import zarr
from fsspec.implementations.local import LocalFileSystem
from numpy.typing import NDArray
from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.errors import BaseZarrError
from zarr.storage import WrapperStore

from psplatform.core.quality import Watch
from psplatform.errors import MORE_FILES, PsplatformError, StoreError, lacks_files
from psplatform.replication.checkpoints.arrays import encoded, group_metadata
from psplatform.replication.checkpoints.metadata import DOCUMENT, Promises
from psplatform.replication.stores.checksums import Checksum, Data, agrees, checksum
from psplatform.replication.stores.description import flaw_of
from psplatform.replication.stores.group_file import write_group
from psplatform.replication.stores.objects import file_system_of
from psplatform.untrusted.files import METADATA_BYTES, read_object
from psplatform.untrusted.values import Refused, from_json

_KEY: Final = "psplatform"
_FORMAT: Final = 1
_ZARR_FORMAT: Final = 3
_BEST: Final = "best"
_SUMS: Final = "checksums"
_TRIES: Final = 5
"""To read a best model that others take the place of meanwhile."""
_PARTS: Final = ("log", "checkpoints")
_PART: Final = re.compile(r"\d{8,}(-\d{8,}\.msgpack)?")
"""A checkpoint, or a segment of a log."""
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_USABLE: Final = "choose a place that every process of the run can write to"
_READABLE: Final = "see that it is whole and may be read, or restore it from a copy"
_REACHABLE: Final = "see that its URL, its credentials and its endpoint are right, and that the network leads there"


def create_run(store: str, description: Mapping[str, Any]) -> None:
    """Make a new store for a run.

    Raises
    ------
    StoreError
        If the place holds anything already, or cannot be written to.
    """
    require_free(store)
    with named_failure(store, "write to"):
        attributes: dict[str, Any] = {_KEY: {"format": _FORMAT, **description}}
        files, root = file_system_of(store)
        if isinstance(files, LocalFileSystem):
            write_group(Path(root), attributes)
        else:
            zarr.open_group(store, mode="w-", zarr_format=_ZARR_FORMAT, attributes=attributes)


def new_description(description: Mapping[str, Any]) -> bytes:
    """Return the zarr.json of a store whose run is described like that."""
    return group_metadata({_KEY: {"format": _FORMAT, **description}})


def require_free(store: str) -> None:
    """Refuse a place that holds anything, or, where it is local, one that cannot be written to.

    Raises
    ------
    StoreError
        Naming what is in the way.
    """
    with named_failure(store, "use"):
        files, root = file_system_of(store)
        if isinstance(files, LocalFileSystem):
            _try_writing(Path(root))
        if not files.exists(root):
            return
        if not files.isdir(root):
            raise StoreError(f"{store} is a file; choose another store", store=store)
        if files.ls(root, detail=False):
            text = f"{store} already holds {_occupant(store)}; choose another store or remove it"
            raise StoreError(text, store=store)


def reopen_run(store: str, description: Mapping[str, Any]) -> None:
    """Describe the run of a store anew: it goes on."""
    with named_failure(store, "write to"):
        _described(store)
        _describe(store, {"format": _FORMAT, **description})


def update_run(store: str, **changes: Any) -> None:
    """Change parts of the store's description of its run."""
    with named_failure(store, "write to"):
        _describe(store, {**_described(store), **changes})


def _describe(store: str, description: Mapping[str, Any]) -> None:
    group = _group(store, "r+")
    files, root = file_system_of(store)
    if isinstance(files, LocalFileSystem):
        write_group(Path(root), {**group.attrs.asdict(), _KEY: description})
    else:
        group.attrs[_KEY] = dict(description)


def describe_run(store: str) -> dict[str, Any]:
    """Return what the store says of its run.

    Raises
    ------
    StoreError
        If there is no store, or it is not one of psplatform's, or of a newer format, or says what it should not.
    """
    with named_failure(store, "read the zarr.json of", _READABLE):
        return _described(store)


def holds_parts(store: str) -> bool:
    """Whether segments of a run's log or its checkpoints lie there, and not only folders that are called so."""
    with named_failure(store, "look into", _READABLE):
        files, root = file_system_of(store)
        folders = [folder for part in _PARTS if files.isdir(folder := f"{root}/{part}")]
        paths = [path for folder in folders for path in files.ls(folder, detail=False)]
        return any(_PART.fullmatch(path.rstrip("/").rpartition("/")[2]) for path in paths)


def save_model(store: str, arrays: Mapping[str, NDArray[Any]], *, version: int) -> None:
    """Put named arrays into the store as the model of `version`, in place of the one before."""
    with named_failure(store, "write the model to"):
        _write_arrays(_group(store, "r+").create_group("model", overwrite=True), arrays, version=version)


def save_best(store: str, arrays: Mapping[str, NDArray[Any]], *, version: int, watch: Watch, value: float) -> bool:
    """Put named arrays into the store as the model of the best version, unless it has one as good.

    The one before is there until this one is whole, and it stays where it is better than this one and was written
    meanwhile.  Return whether the store has the model of this version as the best.

    Parameters
    ----------
    watch, value
        What versions are compared by, and this one's value.
    """
    told = {"version": version, "metric": watch.metric, "value": repr(float(value))}
    with named_failure(store, "write the best model to"):
        root = _group(store, "r+").require_group(_BEST)
        before = _best_of(root)
        if not _is_better(value, before, watch):
            return before is not None and _told(before) == told
        name = f"{version}-{uuid.uuid4().hex[:8]}"  # none that was there: its arrays may be read just now
        _write_arrays(root.create_group(name), arrays, **told)
        others = [other for other, _ in root.groups() if other != name]
        now = _best_of(_group(store, "r").get(_BEST))
        if not _is_better(value, now, watch):  # an evaluator that took the place of this one was faster
            del root[name]
            return False
        _point_to(root, name)
        for other in others:
            with contextlib.suppress(KeyError, FileNotFoundError):
                del root[other]
        return True


def _told(group: zarr.Group) -> dict[str, Any]:
    return {name: group.attrs[name] for name in ("version", "metric", "value")}


def _is_better(value: float, before: zarr.Group | None, watch: Watch) -> bool:
    """Return whether a value is better than that of the version in `before`; those of other metrics do not count."""
    comparable = before is not None and before.attrs["metric"] == watch.metric
    return watch.is_better(value, float(str(before.attrs["value"])) if before is not None and comparable else None)


def load_model(store: str, *, best: bool = False) -> tuple[dict[str, NDArray[Any]], int]:
    """Return the model's arrays by name, and its version; of the last version, or of the `best` one.

    Raises
    ------
    StoreError
        If the store holds no whole model.
    """
    with named_failure(store, "read the model of", _READABLE):
        if not best:
            group = _group(store, "r").get("model")
            if not isinstance(group, zarr.Group) or "version" not in group.attrs:
                raise StoreError(f"{store} holds no model yet; its run has not ended well", store=store)
            return _read_arrays(group)
        for _ in range(_TRIES):
            found = _best_of(_group(store, "r").get(_BEST))
            if found is None:
                text = "no model of a best version: its job has no keep_best, or what it watches had no value yet"
                raise StoreError(f"{store} holds {text}; read the last version's", store=store)
            with contextlib.suppress(KeyError, FileNotFoundError):
                arrays = _read_arrays(found)
                now = _best_of(_group(store, "r").get(_BEST))
                if now is not None and now.name == found.name:
                    return arrays  # else a better one has taken its place, and its arrays may have been removed
        raise StoreError(f"the best model of {store} was replaced while it was read; read it again", store=store)


def _read_arrays(group: zarr.Group) -> tuple[dict[str, NDArray[Any]], int]:
    found, sums = _arrays_of(group), _sums_of(group)
    arrays = {_name_of(path, found[path]): np.asarray(found[path][...]) for path in sorted(found)}
    for name, array in arrays.items():
        if sums is not None and not agrees(str(sums.get(name)), _bytes_of(array)):
            raise Refused(f"{name[:200]} is not as it was written")
    return arrays, int(str(group.attrs["version"]))


def _arrays_of(group: zarr.Group) -> dict[str, zarr.Array[Any]]:
    # Before names were encoded, one with a slash was a path of groups.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of what else lies there, by names that may be anything
        return {path: array for path, array in group.members(max_depth=None) if isinstance(array, zarr.Array)}


def _sums_of(group: zarr.Group) -> dict[str, Any] | None:
    """Return the checksums of the arrays by name, ``None`` where they were written without."""
    found = group.attrs.get(_SUMS)
    return found if isinstance(found, dict) else None


def _bytes_of(array: NDArray[Any]) -> Data:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else b""


def _write_arrays(group: zarr.Group, arrays: Mapping[str, NDArray[Any]], **said: Any) -> None:
    sums = {}
    for name, array in arrays.items():
        known: dict[str, Any] = {_KEY: {"name": name}}
        data = np.asarray(array, order="C")
        group.create_array(encoded(name), data=data, attributes=known)
        sums[name] = checksum(_bytes_of(data))
    group.attrs.update({_SUMS: sums, **said})


@dataclass(frozen=True, slots=True)
class VerifiedModel:
    """A saved model of which every byte was read.

    Attributes
    ----------
    state
        ``complete``, ``damaged``, ``incomplete`` where it does not say its version, or ``none``.
    flaw
        What is wrong with it, or what cannot be told of it.
    bytes
        Of its arrays.
    """

    state: str
    flaw: str = ""
    bytes: int = 0

    def to_plain(self) -> dict[str, Any]:
        """Return the fields."""
        return {name: getattr(self, name) for name in self.__slots__}


def verified_model(store: str, *, best: bool = False) -> VerifiedModel:
    """Return what the saved model is, of the last version or of the `best` one, once all of it was read."""
    try:
        with named_failure(store, "read the model of", _READABLE):
            found = _group(store, "r").get(_BEST if best else "model")
            group = _best_of(found) if best else found
            if not isinstance(group, zarr.Group):
                return VerifiedModel("none")
            if "version" not in group.attrs:
                return VerifiedModel("incomplete", "it does not say its version: it was not saved to its end")
            return _verified(group)
    except StoreError as error:
        return VerifiedModel("damaged", str(error))


def _verified(group: zarr.Group) -> VerifiedModel:
    found, sums, size = _arrays_of(group), _sums_of(group), 0
    names = {_name_of(path, array): array for path, array in found.items()}
    lacking = sorted((sums or {}).keys() - names.keys())
    if lacking:
        return VerifiedModel("damaged", f"{lacking[0][:200]} is missing")
    for name, array in sorted(names.items()):
        total = Checksum.like(str((sums or {}).get(name)))
        for part in _slabs(array):
            data = _bytes_of(part)
            total.add(data)
            size += len(data)
        if sums is not None and sums.get(name) != str(total):
            return VerifiedModel("damaged", f"{name[:200]} is not as it was written", size)
    untold = "" if sums is not None else "saved by a psplatform that noted no checksums: it can be read, and no more"
    return VerifiedModel("complete", untold, size)


def _slabs(array: zarr.Array[Any]) -> Iterator[NDArray[Any]]:
    """Yield an array in parts, as many of its rows as a chunk has."""
    if not array.shape:
        yield np.asarray(array[...])
        return
    rows = array.chunks[0]
    for first in range(0, array.shape[0], rows):
        yield np.asarray(array[first : first + rows])


def _point_to(root: zarr.Group, name: str) -> None:
    root.attrs["whole"] = name


def _best_of(root: Any) -> zarr.Group | None:
    """Return the group of the best version's model, the last that was wholly written."""
    if not isinstance(root, zarr.Group) or "whole" not in root.attrs:
        return None
    group = root.get(str(root.attrs["whole"]))
    return group if isinstance(group, zarr.Group) and {"version", "metric", "value"} <= set(group.attrs) else None


def _group(store: str, mode: Literal["r", "r+"]) -> zarr.Group:
    _attributes(store)  # which says what is wrong where nothing can open it
    # The format is given, or Zarr asks for the files of both at once and leaves the rest alone when one fails.
    group = zarr.open_group(store, mode=mode, zarr_format=_ZARR_FORMAT, use_consolidated=False)
    if mode == "r+":
        return group
    guarded = _Guarded(group.store, *file_system_of(store), Promises())
    return zarr.open_group(guarded, mode=mode, zarr_format=_ZARR_FORMAT, use_consolidated=False)


class _Guarded(WrapperStore[Any]):
    """A store of Zarr's of which only what lies in it is read, and only as much as fits together and into memory."""

    def __init__(self, store: Any, files: Any, root: str, promises: Promises) -> None:
        super().__init__(store)
        self._files, self._root, self._promises = files, root, promises

    def _with_store(self, store: Any) -> Self:
        return type(self)(store, self._files, self._root, self._promises)

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        data = await asyncio.to_thread(self._read, key)
        return None if data is None else prototype.buffer.from_bytes(data)

    def _read(self, key: str) -> bytes | None:
        try:
            data = read_object(self._files, self._root, key, self._promises.limit(key))
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None
        self._promises.check(key, data)
        return data


def _without_run(store: str, text: str) -> StoreError:
    """Return what is to be said where nothing describes a run: `text`, unless parts of one are there."""
    if holds_parts(store):
        text = f"{store} is the store of a run, but its zarr.json is missing or damaged; restore that file from a copy"
    return StoreError(text, store=store)


def _name_of(path: str, array: zarr.Array[Any]) -> str:
    known = array.attrs.get(_KEY)
    return str(known["name"]) if isinstance(known, dict) else path


def _described(store: str) -> dict[str, Any]:
    description = _attributes(store).get(_KEY)
    if not isinstance(description, dict):
        raise _without_run(store, f"{store} is a Zarr group, but holds no run of psplatform; check the path")
    if description.get("format") != _FORMAT:
        found = str(description.get("format"))[:40]
        raise StoreError(f"{store} has format {found}; this psplatform reads format {_FORMAT}, update it", store=store)
    if not isinstance(description.get("run"), str):
        raise StoreError(f"the zarr.json of {store} does not name its run; restore it from a copy", store=store)
    if flaw := flaw_of(description):
        message = f"the zarr.json of {store} says what this psplatform does not understand ({flaw})"
        raise StoreError(f"{message}; look at it with the psplatform that wrote it", store=store)
    return description


def _attributes(store: str) -> dict[str, Any]:
    """Return the attributes of the store's root group, read without Zarr, which would follow any link."""
    files, root = file_system_of(store)
    try:
        document = from_json(read_object(files, root, DOCUMENT, METADATA_BYTES))
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise _without_run(store, f"there is no run in {store}; check the path") from None
    kind = (document.get("zarr_format"), document.get("node_type")) if isinstance(document, dict) else None
    attributes = document.get("attributes", {}) if kind == (_ZARR_FORMAT, "group") else None
    if not isinstance(attributes, dict):
        raise _without_run(store, f"the zarr.json of {store} is not that of a run; check the path")
    return attributes


def _try_writing(path: Path) -> None:
    if "\0" in str(path):
        raise ValueError("no path holds a null character")
    nearest = next(folder for folder in (path, *path.parents) if folder.exists())
    if nearest != path and not nearest.is_dir():
        raise NotADirectoryError(f"{nearest} is no folder")
    if nearest.is_dir():
        Path(tempfile.mkdtemp(prefix=".psplatform-", dir=nearest)).rmdir()


def _occupant(store: str) -> str:
    try:
        return f"the run {describe_run(store)['run']}"
    except (StoreError, KeyError):
        return "something else"


@contextmanager
def named_failure(store: str, action: str, remedy: str = _USABLE) -> Iterator[None]:
    """Turn what the storage raises into a `StoreError` that names the store and what was to be done with it."""
    try:
        yield
    except PsplatformError:
        raise
    except Exception as error:
        # Every fsspec driver has exceptions of its own, so this seam cannot list them.
        said = " ".join(str(error).split()) or type(error).__name__
        text = f"cannot {action} {store} ({said}); {_remedy(store, error, remedy)}"
        raise StoreError(text, store=store) from error


def _remedy(store: str, error: Exception, usual: str) -> str:
    if isinstance(error, OSError) and error.errno in _FULL:
        return "make room there"
    if lacks_files(error):
        return MORE_FILES
    # Zarr reports foreign metadata as whatever it stumbles over first.
    foreign = isinstance(error, BaseZarrError | JSONDecodeError | Refused | TypeError | LookupError | AttributeError)
    return _REACHABLE if "://" in store and not foreign else usual
