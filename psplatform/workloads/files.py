"""Files that a job names by path, read where the job is started."""

from __future__ import annotations

from pathlib import Path

from psplatform.errors import ConfigurationError


def read_file(path: str) -> bytes:
    """Return the bytes of a file that a policy's parameter names.

    Raises
    ------
    ConfigurationError
        If it cannot be read.
    """
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error}; name a file that is there", field="policy") from error
