"""Files of this user's own: jobs and run times that programs started from the pages read."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Final

from psplatform.dashboard.settings import current
from psplatform.errors import ConfigurationError

_KEPT: Final = 200
"""Files of a kind, the newest ones: more than the programs whose records are kept."""


def write_private(kind: str, name: str, text: str) -> str:
    """Write a file that no other user may read, in one piece; return its path.

    Parameters
    ----------
    kind
        Folder below the records that it belongs to; of more files than are kept there, the oldest are removed.

    Raises
    ------
    ConfigurationError
        If it cannot be written.
    """
    root = current().record_folder
    folder = root / kind
    path = folder / name
    hidden = folder / f".{name}.{uuid.uuid4().hex[:8]}"
    try:
        for place in (root, folder):
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(hidden, "x", opener=_private) as file:
            file.write(text)
        hidden.replace(path)
        for old in sorted(folder.glob("[!.]*"), key=lambda one: one.stat().st_mtime)[:-_KEPT]:
            old.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigurationError(f"cannot write {path} ({error}); free some space", field="job") from error
    return str(path)


def _private(path: str, flags: int) -> int:
    return os.open(Path(path), flags, 0o600)
