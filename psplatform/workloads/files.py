"""Files that a job names by path, read where the job is started."""

from __future__ import annotations

from psplatform.errors import ConfigurationError
from psplatform.untrusted.files import read_named


def read_file(path: str) -> bytes:
    """Return the bytes of a file that a policy's parameter names.

    Raises
    ------
    ConfigurationError
        If it cannot be read.
    """
    try:
        return read_named(path)
    except (OSError, ValueError, RuntimeError) as error:  # the latter two: a null character, no such user
        raise ConfigurationError(f"cannot read {path}: {error}; name a file that is there", field="policy") from error
