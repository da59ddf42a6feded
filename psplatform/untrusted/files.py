"""Files in at most so many bytes; those of a store are regular files inside of it.

What a store holds may have been put there by anybody: a link that leads out of it, a pipe that is never written to, a
file with a hole of a petabyte.  None of them is opened, or waited for, or read whole.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, Final

from fsspec.implementations.local import LocalFileSystem

from psplatform.untrusted.values import Refused

METADATA_BYTES: Final = 64 << 20
"""A description, or the metadata of an array: kilobytes, as a rule."""

SEGMENT_BYTES: Final = 256 << 20
"""A segment of the log: kilobytes, and 16 MiB where its writer could not write for a long while."""

MANIFEST_BYTES: Final = 256 << 20
"""A manifest names every object of a checkpoint in a hundred bytes: this many are of 10 TB."""

USER_FILE_BYTES: Final = 256 << 20
"""A file that a user names: a trace, a trial."""


_PART_BYTES: Final = 1 << 16


def read_object(files: Any, root: str, path: str, most: int) -> bytes:
    """Return the bytes of an object of a store.

    Parameters
    ----------
    files
        fsspec's file system of the store.
    root
        The store's path there.
    path
        The object's path below it.

    Raises
    ------
    FileNotFoundError, IsADirectoryError, NotADirectoryError
        If there is no such object.
    Refused
        If it is outside of the store or behind a link, or no regular file, or longer than `most` bytes.
    OSError
        Or another exception of the file system's driver, where that fails.
    """
    if isinstance(files, LocalFileSystem):
        return _read_local(root, path, most)
    require_inside(path)
    data: bytes = _ranged(files, f"{root.rstrip('/')}/{path}", most + 1)
    if len(data) > most:
        raise Refused(_too_long(most))
    return data


def require_inside(path: str) -> None:
    """Refuse a path that leads out of the folder that it is given below."""
    if path.startswith("/") or "\0" in path or {"..", "."} & set(path.split("/")):
        raise Refused("its path leads out of the store")


def inside(root: str, path: str) -> Path:
    """Return the place of a local store's object: `path` below `root`, without links on the way.

    Raises
    ------
    Refused
        If a part of the path below the store is a link, whether or not what it leads to exists.
    """
    require_inside(path)
    whole = Path(os.path.realpath(root), path)
    if os.path.realpath(whole) != str(whole):
        raise Refused("a link is in its way, and what a store holds must lie in the store")
    return whole


def read_named(path: str | os.PathLike[str], most: int = USER_FILE_BYTES) -> bytes:
    """Return the bytes of a file that a user has named, a pipe's too.

    Raises
    ------
    OSError
        If it cannot be read, or is longer than `most` bytes.
    """
    parts, left = [], most
    with Path(path).expanduser().open("rb") as file:
        while part := file.read(_PART_BYTES):
            parts.append(part)
            left -= len(part)
            if left < 0:
                raise OSError(_too_long(most))
    return b"".join(parts)


def _read_local(root: str, path: str, most: int) -> bytes:
    # It does not wait for a pipe's other end, and does not follow what became a link just now.
    opened = os.open(inside(root, path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    with os.fdopen(opened, "rb") as file:
        found = os.fstat(opened)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(path)
        if not stat.S_ISREG(found.st_mode):
            raise Refused("it is no regular file")
        if found.st_size > most:
            raise Refused(_too_long(most))
        # As much as there is: what is asked for is set aside before it is read.
        return file.read(found.st_size)


def _ranged(files: Any, place: str, end: int) -> bytes:
    """Return the first bytes of an object, in one request."""
    try:
        data: bytes = files.cat_file(place, start=0, end=end)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise
    except Exception:  # every driver has exceptions of its own for a range of an object that is empty
        if files.info(place)["size"] != 0:
            raise
        return b""
    return data


def _too_long(most: int) -> str:
    return f"it has more than {most} bytes"
