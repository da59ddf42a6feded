"""Reaching a scheduler, within seconds or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from distributed import Client

from psplatform.errors import ConfigurationError, PsplatformError

_CONNECT_S: Final = 5
"""Seconds to reach a scheduler: the user hears within ten."""


def connect(scheduler: str) -> Client:
    """Return a client of the scheduler at that address, or of that scheduler file.

    Raises
    ------
    ConfigurationError
        If it cannot be reached within ten seconds.
    """
    try:
        if Path(scheduler).is_file():
            return Client(scheduler_file=scheduler, timeout=_CONNECT_S, set_as_default=False, direct_to_workers=True)
        return Client(scheduler, timeout=_CONNECT_S, set_as_default=False, direct_to_workers=True)
    except (OSError, ValueError, TimeoutError) as error:
        raise ConfigurationError(
            f"no scheduler answers at {scheduler}; start one with `dask scheduler` and give its address",
            field="scheduler",
        ) from error


def connect_or_none(scheduler: str | None, security: Any = None) -> Client | None:
    """Return a client of the scheduler that a store names, or ``None`` where it does not answer within seconds."""
    if not scheduler:
        return None
    try:
        return Client(scheduler, timeout=_CONNECT_S, set_as_default=False, direct_to_workers=True, security=security)
    except (OSError, PsplatformError, ValueError, TypeError, RuntimeError):
        # Nobody is there, or it is an address that only its own program knows; the last two are what Dask says where
        # one side wants encryption that the other has not.
        return None
