"""How a run has ended, brought into its store: the last record of its log, and what the store says of it."""

from __future__ import annotations

import asyncio
from typing import Final

from psplatform.errors import PsplatformError, to_plain
from psplatform.replication.store import update_run
from psplatform.runtime.journal import Journal
from psplatform.runtime.segments import sweep

_NEVER_BEGUN: Final = {
    "kind": "finished",
    "outcome": "failed",
    "version": 0,
    "loss": None,
    "accuracy": None,
    "seconds": 0.0,
}


async def write_outcome(
    journal: Journal, store: str, run: str, failure: PsplatformError | None, elapsed_s: float
) -> None:
    """Bring out what the journal holds, and let the store say how the run has ended; sweep this host's segments.

    What the store refuses is named in the journal's `trouble`.
    """
    if journal.view.outcome is None:  # it ended before its coordinator began
        detail = str(failure.args[0]) if failure is not None else ""
        journal.append({**_NEVER_BEGUN, "at": elapsed_s, "detail": detail})
    await journal.close()
    outcome = journal.view.to_summary()["outcome"]
    plain = to_plain(failure) if failure is not None else None
    try:
        await asyncio.to_thread(update_run, store, outcome=outcome, error=str(failure or ""), failure=plain)
    except PsplatformError as error:
        journal.trouble = str(error)
    await asyncio.to_thread(sweep, run)
