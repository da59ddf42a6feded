"""Job files, and what they may say beyond the fields of a job: a trace by its path, a schedule by its name alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from psplatform.errors import ConfigurationError
from psplatform.untrusted.files import read_named

_JOB_FILE_BYTES: Final = 4 << 20
_USUAL_UPDATES: Final = 1000


def read_job_file(path: str | Path) -> dict[str, Any]:
    """Return the fields of a job that a job file describes.

    Raises
    ------
    ConfigurationError
        If it cannot be read, is no YAML, or no mapping.
    """
    from psplatform.jobs.job_file import fields_in  # noqa: PLC0415  brings PyYAML, which only job files need

    try:
        text = read_named(path, _JOB_FILE_BYTES).decode()
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"cannot read the job file {path}: {error}; name a YAML file", field="job") from error
    return fields_in(text, str(path))


def read_trace(name: str) -> str:
    """Return the text of the file of a trace.

    Raises
    ------
    ConfigurationError
        If it cannot be read.
    """
    try:
        return read_named(name).decode()
    except (OSError, ValueError) as error:
        text = f"cannot read the trace {name}: {error}; name a CSV file"
        raise ConfigurationError(text, field="stragglers") from error


def with_horizon(schedule: Any, stop: Mapping[str, Any]) -> Any:
    """Return a schedule as a job takes it: a cosine by its name alone ends with the updates that the run is given."""
    if schedule == "cosine":
        return {"name": "cosine", "updates": stop.get("updates", _USUAL_UPDATES)}
    return schedule
