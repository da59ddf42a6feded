"""The folder of a store that holds checkpoints: every byte of them is written, listed, read and removed here.

An object is written by one call.  What readers look for first, the manifest, is *shown*: under its name there is the
old content or the new, never a part of it.  On local file systems it is written under a hidden name and renamed;
elsewhere it is one put, which object stores and fsspec's memory file system make visible in one piece.

On local file systems what was written may be in memory, the system's or the disk's, until it is flushed.  That is asked
for once, after many objects, because flushing each by itself makes the disk write its run log as often.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from psplatform.errors import MORE_FILES, StoreError, lacks_files
from psplatform.replication.stores import direct_io
from psplatform.replication.stores.checksums import Checksum, Data, agrees
from psplatform.untrusted.files import inside, read_object

AT_ONCE: Final = 8
"""Enough to hide most of an object store's time per request, few enough that their bytes are little memory."""

OBJECT_BYTES: Final = 1 << 30
"""An object of a checkpoint has a few megabytes; the state of a coordinator that has led thousands of workers, too."""

_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True)
class Stored:
    """An object as it was written: its path in the folder, its length in bytes, and its checksum."""

    path: str
    size: int
    digest: str

    def flaw_of(self, data: bytes | None) -> str | None:
        """Say what is wrong with the bytes that were read, ``None`` standing for no object at all."""
        if data is None:
            return "it is missing"
        if len(data) != self.size:
            return f"it has {len(data)} bytes instead of {self.size}"
        return None if agrees(self.digest, data) else "its checksum differs"


def file_system_of(store: str) -> tuple[Any, str]:
    """Return fsspec's file system of a store, and the store's path there.

    Raises
    ------
    StoreError
        If nothing here can open it.
    """
    try:
        files, root = url_to_fs(store)
    except Exception as error:  # every driver has exceptions of its own, also before it is asked for anything
        message = f"nothing here can open the store {store} ({error}); install its driver, or choose a local path"
        raise StoreError(message, store=store) from error
    return files, str(root)


class ObjectFolder:
    """The objects under one folder of a store, each by its path in that folder.

    Parameters
    ----------
    store
        A local path or any URL that fsspec knows.
    folder
        The folder's path in the store.

    Raises
    ------
    StoreError
        By every method, naming the store, when its storage fails.
    """

    def __init__(self, store: str, folder: str) -> None:
        self.store = store
        self._name = folder
        self._files, root = file_system_of(store)
        self._store_root = root.rstrip("/")
        self._root = f"{self._store_root}/{folder}"

    def put(self, path: str, data: Data) -> Stored:
        """Write an object; after a failure nobody may rely on it, so write it again or give it up.

        On local file systems it outlasts a loss of power once it was flushed.
        """
        total = Checksum()
        with self._named_failure(f"write {self._name}/{path} to"):
            if isinstance(self._files, LocalFileSystem):
                _write(self._local(path), data, total)
            else:
                total.add(data)
                self._files.pipe_file(self._place(path), bytes(data))
        return Stored(path, len(data), str(total))

    def put_all(self, objects: Iterable[tuple[str, Data]]) -> list[Stored]:
        """Write objects, given by path and bytes; object stores are sent several at once."""
        return list(self.at_once(lambda each: self.put(*each), objects))

    def flush(self, paths: Iterable[str]) -> None:
        """Make objects outlast a loss of power; where the file system is not local, they did when they were written."""
        if isinstance(self._files, LocalFileSystem):
            for path in paths:
                with self._named_failure(f"write {self._name}/{path} to"):
                    _flush(self._local(path))

    def show(self, path: str, data: bytes) -> None:
        """Write an object in one piece; after a failure it is the old one or the new."""
        with self._named_failure(f"write {self._name}/{path} to"):
            if isinstance(self._files, LocalFileSystem):
                _rename_into_place(self._local(path), data)
            else:
                self._files.pipe_file(self._place(path), data)

    def get(self, path: str, most: int = OBJECT_BYTES) -> bytes | None:
        """Return an object's bytes, or ``None`` where there is none; one that is outside or too long is an error."""
        with self._named_failure(f"read {self._name}/{path} of"):
            try:
                return read_object(self._files, self._store_root, f"{self._name}/{path}", most)
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                return None

    def get_all(self, paths: Iterable[str]) -> Iterator[bytes | None]:
        """Yield what `get` returns for each path, in order; object stores are asked for several at once."""
        return self.at_once(self.get, paths)

    def folders(self) -> list[str]:
        """Return the names of the folders directly below, sorted."""
        with self._named_failure(f"list {self._name} of"):
            self._files.invalidate_cache()
            self._require_inside("")
            try:
                found = self._files.ls(self._root, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return []
        return sorted(_last(entry) for entry in found if entry["type"] == "directory")

    def links(self) -> list[str]:
        """Return the names of links directly below a local folder, sorted: nothing that they lead to is looked at."""
        with self._named_failure(f"list {self._name} of"):
            if not isinstance(self._files, LocalFileSystem):
                return []
            folder = self._local("")
            return sorted(one.name for one in folder.iterdir() if one.is_symlink()) if folder.is_dir() else []

    def sizes(self, path: str) -> dict[str, int]:
        """Return the length in bytes of every object below a folder, by path."""
        with self._named_failure(f"list {self._name}/{path} of"):
            self._files.invalidate_cache()
            self._require_inside(path)
            if isinstance(self._files, LocalFileSystem):
                return _local_sizes(self._root, self._local(path))
            found: dict[str, dict[str, Any]] = self._files.find(self._place(path), detail=True)
        return {place.removeprefix(f"{self._root}/"): int(entry["size"]) for place, entry in found.items()}

    def remove(self, path: str) -> None:
        """Remove an object, or a folder with all that is below it; what is not there is removed already."""
        with self._named_failure(f"remove {self._name}/{path} from"), suppress(FileNotFoundError):
            self._files.invalidate_cache()
            self._require_inside(path)
            self._files.rm(self._place(path), recursive=True)

    def at_once(self, call: Callable[[_Given], _Made], items: Iterable[_Given]) -> Iterator[_Made]:
        """Yield what `call` returns for each item, in order; for object stores it is called for several at once."""
        waiting = iter(items)
        if not self._files.async_impl:
            yield from map(call, waiting)
            return
        with ThreadPoolExecutor(AT_ONCE) as pool:
            while batch := list(islice(waiting, AT_ONCE)):
                yield from pool.map(call, batch)

    def _place(self, path: str) -> str:
        return f"{self._root}/{path}".rstrip("/")

    def _require_inside(self, path: str) -> None:
        """Refuse a folder of a local store that is reached by a link."""
        if isinstance(self._files, LocalFileSystem):
            inside(self._store_root, self._place(path).removeprefix(f"{self._store_root}/"))

    def _local(self, path: str) -> Path:
        return Path(self._place(path))

    @contextmanager
    def _named_failure(self, action: str) -> Iterator[None]:
        # Every fsspec driver has exceptions of its own, so this seam cannot list them.
        try:
            yield
        except Exception as error:
            remedy = MORE_FILES if lacks_files(error) else "free or mend it, or choose another store"
            message = f"cannot {action} the store {self.store} ({error}); {remedy}"
            raise StoreError(message, store=self.store) from error


def _local_sizes(root: str, folder: Path) -> dict[str, int]:
    """Return the length of every regular file below a folder, by its path below `root`; no link is followed."""
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = f"{place}/{name}"
            with suppress(FileNotFoundError):  # it was removed just now
                told = os.lstat(path)
                if stat.S_ISREG(told.st_mode):
                    found[path.removeprefix(f"{root}/")] = told.st_size
    return found


def _last(entry: dict[str, Any]) -> str:
    return str(entry["name"]).rstrip("/").rpartition("/")[2]


def _write(path: Path, data: Data, total: Checksum) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    direct_io.write(path, data, total)


def _rename_into_place(path: Path, data: bytes) -> None:
    # With the process in its name not even two writers that wrongly share a number can tear each other's files.
    hidden = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        _write(hidden, data, Checksum())
        _flush(hidden)
        hidden.replace(path)
    except OSError:
        with suppress(OSError):
            hidden.unlink()
        raise
    with suppress(OSError):  # Not every file system knows how to flush a folder.
        _flush(path.parent)


def _flush(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
