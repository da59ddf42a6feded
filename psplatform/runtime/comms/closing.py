"""What Dask says at length of connections that are closed on purpose, which is no news."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from typing import Final

from distributed import Client
from distributed.comm.core import CommClosedError

_CLOSING_LOGGERS: Final = ("distributed.client", "distributed.batched", "distributed.core", "tornado.application")
"""Those by which Dask tells with a traceback that a connection which is being closed was closed from elsewhere."""

_AFTER_CLOSING: Final = "Tried sending message after closing"
"""What Dask's client raises where it releases a future after it was closed."""


@contextlib.contextmanager
def closing_is_no_error() -> Iterator[None]:
    """Keep Dask from logging, meanwhile, what closing raises in its callbacks; every other error is logged."""
    # A client is closed by its program, and once more by the scheduler's goodbye: the first cancels the second.
    loggers = [logging.getLogger(name) for name in _CLOSING_LOGGERS]
    for logger in loggers:
        logger.addFilter(_is_news)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not (isinstance(error, asyncio.CancelledError | CommClosedError) or _AFTER_CLOSING in str(error))


async def close_client(client: Client) -> None:
    """Close a client whose run is over; its process may end meanwhile, which cancels that."""
    with closing_is_no_error():
        await client.close()
