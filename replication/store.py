"""The store of a run: a Zarr group that says which run it holds, the event log beside it, and the model.

This is the only module that knows Zarr.  A store is laid out as

::

    zarr.json            the root group; its attribute "psplatform" describes the run
    log/                 the event log (psplatform.telemetry)
    model/               a group of arrays by parameter name, with the version they are as attribute
    best/                the same of the best version, where the job keeps it; its attribute "whole" names the group
    recovered/           an empty object per term from which somebody has gone on with the run

and can be read with plain Zarr.  Arrays of a model are named as those of a checkpoint: a name that no path can hold is
encoded, and each stands in its array's attributes.  They are written first and the model's attributes last, so that a
model that says its version is whole.
"""

from __future__ import annotations

import contextlib
import errno
import re
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from json import JSONDecodeError
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import zarr
from fsspec.implementations.local import LocalFileSystem
from numpy.typing import NDArray
from zarr.errors import BaseZarrError, GroupNotFoundError

from psplatform.core.quality import Watch
from psplatform.errors import MORE_FILES, ConfigurationError, PsplatformError, StoreError, lacks_files
from psplatform.replication.arrays import encoded, group_metadata
from psplatform.replication.description import write_group
from psplatform.replication.objects import file_system_of

_KEY: Final = "psplatform"
_FORMAT: Final = 1
_ZARR_FORMAT: Final = 3
_BEST: Final = "best"
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
    with _named_failure(store, "write to"):
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
    with _named_failure(store, "use"):
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
    with _named_failure(store, "write to"):
        root = _group(store, "r+")
        _described(store, root)
        _describe(store, root, {"format": _FORMAT, **description})


def claim_recovery(store: str, term: int) -> None:
    """Claim to go on with a run that its store describes as begun under `term`: only one program can.

    That is certain on local file systems and on those that can make an object only where there is none, as S3 can; on
    others two programs may do so at the same moment.

    Raises
    ------
    ConfigurationError
        If another program has claimed it before.
    StoreError
        If the storage fails.
    """
    with _named_failure(store, "write to"):
        files, path = _claim_of(store, term)
        try:
            if isinstance(files, LocalFileSystem):
                Path(path).parent.mkdir(exist_ok=True)
                Path(path).open("xb").close()
            else:
                _make_new(files, path)
        except FileExistsError:
            text = (
                f"another program has begun to go on with the run in {store}; attach to it instead, or, if that "
                f"program was killed as it began, remove {path}"
            )
            raise ConfigurationError(text, field="store") from None


def _make_new(files: Any, path: str) -> None:
    try:
        files.pipe_file(path, b"", mode="create")
    except FileExistsError:
        raise
    except Exception as error:  # every driver has exceptions of its own for what its server cannot do
        if files.exists(path):
            raise FileExistsError(path) from error
        files.pipe_file(path, b"")


def release_recovery(store: str, term: int) -> None:
    """Let others claim it again."""
    with _named_failure(store, "write to"):
        files, path = _claim_of(store, term)
        files.rm_file(path)


def _claim_of(store: str, term: int) -> tuple[Any, str]:
    files, root = file_system_of(store)
    return files, f"{root.rstrip('/')}/recovered/{term:08d}"


def update_run(store: str, **changes: Any) -> None:
    """Change parts of the store's description of its run."""
    with _named_failure(store, "write to"):
        root = _group(store, "r+")
        _describe(store, root, {**_described(store, root), **changes})


def _describe(store: str, group: zarr.Group, description: Mapping[str, Any]) -> None:
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
        If there is no store, or it is not one of psplatform's, or of a newer format.
    """
    with _named_failure(store, "read the zarr.json of", _READABLE):
        return _described(store, _group(store, "r"))


def holds_parts(store: str) -> bool:
    """Whether segments of a run's log or its checkpoints lie there, and not only folders that are called so."""
    with _named_failure(store, "look into", _READABLE):
        files, root = file_system_of(store)
        folders = [folder for part in _PARTS if files.isdir(folder := f"{root}/{part}")]
        paths = [path for folder in folders for path in files.ls(folder, detail=False)]
        return any(_PART.fullmatch(path.rstrip("/").rpartition("/")[2]) for path in paths)


def save_model(store: str, arrays: Mapping[str, NDArray[Any]], *, version: int) -> None:
    """Put named arrays into the store as the model of `version`, in place of the one before."""
    with _named_failure(store, "write the model to"):
        _write_arrays(_group(store, "r+").create_group("model", overwrite=True), arrays, version=version)


def save_best(store: str, arrays: Mapping[str, NDArray[Any]], *, version: int, watch: Watch, value: float) -> bool:
    """Put named arrays into the store as the model of the best version, unless it has one as good.

    The one before is there until this one is whole, and it stays where it is better than this one, whoever wrote it
    meanwhile.  Return whether the store has the model of this version as the best.

    Parameters
    ----------
    watch, value
        What versions are compared by, and this one's value.
    """
    told = {"version": version, "metric": watch.metric, "value": repr(float(value))}
    with _named_failure(store, "write the best model to"):
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
    with _named_failure(store, "read the model of", _READABLE):
        if not best:
            group = _group(store, "r").get("model")
            if not isinstance(group, zarr.Group) or "version" not in group.attrs:
                raise StoreError(f"{store} holds no model yet; its run has not ended well", store=store)
            return _read_arrays(group)
        for _ in range(_TRIES):
            found = _best_of(_group(store, "r").get(_BEST))
            if found is None:
                text = "no model of a best version: its job has no keep_best, or what it watches had no value yet"
                raise StoreError(f"{store} holds {text}", store=store)
            with contextlib.suppress(KeyError, FileNotFoundError):
                arrays = _read_arrays(found)
                now = _best_of(_group(store, "r").get(_BEST))
                if now is not None and now.name == found.name:
                    return arrays  # else a better one has taken its place, and its arrays may have been removed
        raise StoreError(f"the best model of {store} was replaced while it was read; read it again", store=store)


def _read_arrays(group: zarr.Group) -> tuple[dict[str, NDArray[Any]], int]:
    # Before names were encoded, one with a slash was a path of groups.
    found = {path: array for path, array in group.members(max_depth=None) if isinstance(array, zarr.Array)}
    arrays = {_name_of(path, found[path]): np.asarray(found[path][...]) for path in sorted(found)}
    return arrays, int(str(group.attrs["version"]))


def _write_arrays(group: zarr.Group, arrays: Mapping[str, NDArray[Any]], **said: Any) -> None:
    for name, array in arrays.items():
        known: dict[str, Any] = {_KEY: {"name": name}}
        group.create_array(encoded(name), data=np.asarray(array, order="C"), attributes=known)
    group.attrs.update(said)


def _point_to(root: zarr.Group, name: str) -> None:
    root.attrs["whole"] = name


def _best_of(root: Any) -> zarr.Group | None:
    """Return the group of the best version's model, the last that was wholly written."""
    if not isinstance(root, zarr.Group) or "whole" not in root.attrs:
        return None
    group = root.get(str(root.attrs["whole"]))
    return group if isinstance(group, zarr.Group) and {"version", "metric", "value"} <= set(group.attrs) else None


def _group(store: str, mode: Literal["r", "r+"]) -> zarr.Group:
    file_system_of(store)  # which says what is wrong where nothing can open it
    try:
        # The format is given, or Zarr asks for the files of both at once and leaves the rest alone when one fails.
        return zarr.open_group(store, mode=mode, zarr_format=_ZARR_FORMAT)
    except (GroupNotFoundError, FileNotFoundError):
        raise _without_run(store, f"there is no run in {store}; check the path") from None


def _without_run(store: str, text: str) -> StoreError:
    """Return what is to be said where nothing describes a run: `text`, unless parts of one are there."""
    if holds_parts(store):
        text = f"{store} is the store of a run, but its zarr.json is missing or damaged; restore that file from a copy"
    return StoreError(text, store=store)


def _name_of(path: str, array: zarr.Array[Any]) -> str:
    known = array.attrs.get(_KEY)
    return str(known["name"]) if isinstance(known, dict) else path


def _described(store: str, root: zarr.Group) -> dict[str, Any]:
    description = root.attrs.get(_KEY)
    if not isinstance(description, dict):
        raise _without_run(store, f"{store} is a Zarr group, but holds no run of psplatform; check the path")
    if description.get("format") != _FORMAT:
        found = description.get("format")
        raise StoreError(f"{store} has format {found}; this psplatform reads format {_FORMAT}, update it", store=store)
    return description


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
def _named_failure(store: str, action: str, remedy: str = _USABLE) -> Iterator[None]:
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
    foreign = isinstance(error, BaseZarrError | JSONDecodeError | TypeError | LookupError | AttributeError)
    return _REACHABLE if "://" in store and not foreign else usual
