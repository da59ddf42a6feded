"""Files that commands write: refused before the work where they cannot be, and whole or not at all afterwards."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from psplatform.errors import ConfigurationError


def output_file(name: str) -> Path:
    """Return the path of a file that is to be written.

    Raises
    ------
    ConfigurationError
        If there is no folder for it, that cannot be written to, or the name is a folder's.
    """
    path = Path(name).expanduser()
    folder = path.absolute().parent
    if path.is_dir():
        raise ConfigurationError(f"{name} is a folder; name a file in it", field="output")
    if not folder.is_dir():
        raise ConfigurationError(f"there is no folder {path.parent} to write {path.name} into; make it", field="output")
    hidden = _hidden(path)
    try:
        hidden.touch()  # permissions do not tell: root has all of them in /proc, where no file can be made
        hidden.unlink()
    except OSError as error:
        text = f"{folder} cannot be written to ({error.strerror}); choose another folder"
        raise ConfigurationError(text, field="output") from error
    return path


def _hidden(path: Path) -> Path:
    """Return the name under which a file is written, beside its own."""
    return path.with_name(f".{path.name}.{os.getpid()}")


def write_whole(path: Path, content: bytes) -> None:
    """Write the file under another name and rename it: readers see the old content or the new.

    Raises
    ------
    ConfigurationError
        If the disk is full, for example; what was there before is as it was.
    """
    hidden = _hidden(path)
    try:
        hidden.write_bytes(content)
        hidden.replace(path)
    except OSError as error:
        raise ConfigurationError(f"cannot write {path} ({error}); choose another place", field="output") from error
    finally:
        with suppress(OSError):
            hidden.unlink(missing_ok=True)
