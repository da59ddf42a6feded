"""The file in a local store that says which run it holds: written in one piece, readable by its owner only.

It may name a scheduler, and a program that reaches a scheduler without TLS can run code on it.  Zarr would write the
file with the permissions that the umask gives, which let every user read it.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_NAME: Final = "zarr.json"
_GROUP: Final = {"zarr_format": 3, "node_type": "group"}
_OWNERS: Final = 0o600
_GROUPS: Final = 0o660
"""Where this user's umask lets the group write: then the group has been trusted with more than reading."""


def write_group(folder: Path, attributes: Mapping[str, Any]) -> None:
    """Make a folder a Zarr group with these attributes, or give the group that it is others.

    Only its owner may read a new one; one that is replaced keeps the permissions that it has.  After a failure it is
    the old one or the new.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, hidden = folder / _NAME, folder / f".{_NAME}.{uuid.uuid4().hex}"
    text = json.dumps({"attributes": attributes, **_GROUP}, indent=2)
    try:
        _write_new(hidden, text.encode(), _mode_of(path))
        hidden.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            hidden.unlink()
        raise


def make_group(folder: Path, data: bytes) -> None:
    """Make a folder the Zarr group that `data` describes, readable by its owner only.

    Raises
    ------
    FileExistsError
        If it is one already.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, hidden = folder / _NAME, folder / f".{_NAME}.{uuid.uuid4().hex}"
    try:
        _write_new(hidden, data)
        try:
            os.link(hidden, path)  # unlike a rename, it fails where something is
        except FileExistsError:
            raise
        except OSError:  # not every file system has links
            _write_new(path, data)
    finally:
        hidden.unlink(missing_ok=True)


def _write_new(path: Path, data: bytes, mode: int | None = None) -> None:
    """Write a file that is not there yet, with these permissions or those of a new one."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _GROUPS), "wb") as file:
        if mode is None:
            mode = _GROUPS if os.fstat(file.fileno()).st_mode & stat.S_IWGRP else _OWNERS
        os.fchmod(file.fileno(), mode)
        file.write(data)


def _mode_of(path: Path) -> int | None:
    """Return the permissions of a file, ``None`` where it is not there."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return None
