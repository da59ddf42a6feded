"""The store of a run: a Zarr group that says which run it holds, with the event log and the models beside that.

It is laid out as

::

    zarr.json            the root group; its attribute "psplatform" describes the run
    log/                 the event log (psplatform.telemetry)
    model/, best/        the models of the last and of the best version (psplatform.replication.stores.models)
    recovered/           claims to go on with the run (psplatform.replication.stores.claims)

and can be read with plain Zarr.
"""

from __future__ import annotations

import errno
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from json import JSONDecodeError
from pathlib import Path
from typing import Any, Final, Literal

from fsspec.implementations.local import LocalFileSystem

from psplatform.errors import MORE_FILES, PsplatformError, StoreError, lacks_files
from psplatform.replication.checkpoints.arrays import group_metadata
from psplatform.replication.checkpoints.metadata import DOCUMENT
from psplatform.replication.stores.description import flaw_of
from psplatform.replication.stores.group_file import write_group
from psplatform.replication.stores.groups import ZARR_FORMAT, BaseZarrError, Group, make_group, open_group
from psplatform.replication.stores.objects import file_system_of
from psplatform.untrusted.files import METADATA_BYTES, read_object
from psplatform.untrusted.values import Refused, from_json

KEY: Final = "psplatform"
"""The attribute that holds what psplatform says of a group or an array."""
_FORMAT: Final = 1
_PARTS: Final = ("log", "checkpoints")
_PART: Final = re.compile(r"\d{8,}(-\d{8,}\.msgpack)?")
"""A checkpoint, or a segment of a log."""
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_USABLE: Final = "choose a place that every process of the run can write to"
READABLE: Final = "see that it is whole and may be read, or restore it from a copy"
"""What helps where something cannot be read."""
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
        attributes: dict[str, Any] = {KEY: {"format": _FORMAT, **description}}
        files, root = file_system_of(store)
        if isinstance(files, LocalFileSystem):
            write_group(Path(root), attributes)
        else:
            make_group(store, attributes)


def new_description(description: Mapping[str, Any]) -> bytes:
    """Return the zarr.json of a store whose run is described like that."""
    return group_metadata({KEY: {"format": _FORMAT, **description}})


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
    group = group_of(store, "r+")
    files, root = file_system_of(store)
    if isinstance(files, LocalFileSystem):
        write_group(Path(root), {**group.attrs.asdict(), KEY: description})
    else:
        group.attrs[KEY] = dict(description)


def describe_run(store: str) -> dict[str, Any]:
    """Return what the store says of its run.

    Raises
    ------
    StoreError
        If there is no store, or it is not one of psplatform's, or of a newer format, or says what it should not.
    """
    with named_failure(store, "read the zarr.json of", READABLE):
        return _described(store)


def holds_parts(store: str) -> bool:
    """Whether segments of a run's log or its checkpoints lie there, and not only folders that are called so."""
    with named_failure(store, "look into", READABLE):
        files, root = file_system_of(store)
        folders = [folder for part in _PARTS if files.isdir(folder := f"{root}/{part}")]
        paths = [path for folder in folders for path in files.ls(folder, detail=False)]
        return any(_PART.fullmatch(path.rstrip("/").rpartition("/")[2]) for path in paths)


def group_of(store: str, mode: Literal["r", "r+"]) -> Group:
    """Return the root group of a run's store; where it is only read, within limits of what is read.

    Raises
    ------
    StoreError
        If no group of a run is there.
    """
    _attributes(store)  # which says what is wrong where nothing can open it
    return open_group(store, mode)


def _without_run(store: str, text: str) -> StoreError:
    """Return what is to be said where nothing describes a run: `text`, unless parts of one are there."""
    if holds_parts(store):
        text = f"{store} is the store of a run, but its zarr.json is missing or damaged; restore that file from a copy"
    return StoreError(text, store=store)


def _described(store: str) -> dict[str, Any]:
    description = _attributes(store).get(KEY)
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
    attributes = document.get("attributes", {}) if kind == (ZARR_FORMAT, "group") else None
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
