"""Where the socket of a Dask worker is: under a name that follows from its address, in the folder of shared memory.

An address means the same process only within one network namespace, so that is part of the name.  The folder belongs
to all users and names can be taken: a socket counts only if its file is this user's.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import stat
import time
import uuid
from functools import lru_cache
from pathlib import Path
from typing import Final

_FOLDER: Final = Path("/dev/shm")  # noqa: S108  where segments are, too; of this host and of one container
_PREFIX: Final = "psp-calls-"
_DIGITS: Final = 32
_HIDDEN_S: Final = 60.0
"""Age from which a socket that still has its first name is left over."""


@lru_cache(maxsize=1024)
def socket_of(address: str) -> Path | None:
    """Return the path of the socket of a Dask worker with that address; ``None`` where it can have none."""
    if address.startswith("inproc://") or not hasattr(socket, "SO_PEERCRED") or not os.access(_FOLDER, os.W_OK):
        return None
    try:
        network = Path("/proc/self/ns/net").stat().st_ino
    except OSError:
        return None
    return _FOLDER / f"{_PREFIX}{hashlib.sha256(f'{network} {address}'.encode()).hexdigest()[:_DIGITS]}"


def is_of_this_user(path: Path) -> bool:
    """Whether there is a socket at a path, no link to one, that this user has made."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid()


def hidden_name(path: Path) -> Path:
    """Return a name beside `path` for a socket at which nothing listens yet."""
    return path.with_name(f".{path.name}-{uuid.uuid4().hex[:8]}")


def remove_socket(path: Path, inode: int) -> None:
    """Remove a socket, unless another process listens at one of that name by now."""
    with contextlib.suppress(OSError):
        if path.lstat().st_ino == inode:
            path.unlink()


def sweep_sockets() -> None:
    """Remove the sockets of this user's processes that were killed."""
    for path in _FOLDER.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if is_of_this_user(path):
                _sweep(path, path.lstat().st_ino)
    for path in _FOLDER.glob(f".{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if is_of_this_user(path) and path.lstat().st_mtime < time.time() - _HIDDEN_S:
                path.unlink()


def _sweep(path: Path, inode: int) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            remove_socket(path, inode)
