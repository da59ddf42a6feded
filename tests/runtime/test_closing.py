"""What is said while a coordinator closes its client."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import pytest

from psplatform.runtime.comms.closing import close_client


class Slow:
    """A client that is still closing when its process ends, and tells that as Dask's does."""

    async def close(self) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            logging.getLogger("distributed.client").exception("cancelled")
            raise


def test_a_client_whose_process_ends_while_it_closes_says_nothing() -> None:
    said: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = said.append  # type: ignore[method-assign,assignment]
    logger = logging.getLogger("distributed.client")
    logger.addHandler(handler)

    async def end() -> None:
        closing = asyncio.create_task(close_client(cast("Any", Slow())))
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing

    try:
        asyncio.run(end())
        assert said == []
        logger.error("another")
        assert len(said) == 1
    finally:
        logger.removeHandler(handler)
