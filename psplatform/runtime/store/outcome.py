"""How a run has ended, brought into its store: the last record of its log, and what the store says of it."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from psplatform.errors import PsplatformError, StoreError, to_plain
from psplatform.replication.stores.store import update_run
from psplatform.runtime.dataplane.segments import sweep
from psplatform.runtime.pools.absent import Absent
from psplatform.runtime.pools.copy_staff import CopyStaff
from psplatform.runtime.pools.fleet import Fleet
from psplatform.runtime.pools.staff import Staff
from psplatform.runtime.pools.standbys import Standbys
from psplatform.runtime.program import Program
from psplatform.runtime.store.journal import Journal
from psplatform.runtime.store.sealing import Sealer

_LEAVING_S: Final = 5.0
"""How long the end of a run waits for its workers to say good-bye."""

_NEVER_BEGUN: Final = {
    "kind": "finished",
    "outcome": "failed",
    "version": 0,
    "loss": None,
    "accuracy": None,
    "seconds": 0.0,
}


class EndingHost(Protocol):
    """What the end of a run concerns in the coordinator's process; the later parts are missing if it never began."""

    program: Program
    run: str
    journal: Journal
    fleet: Fleet
    absent: Absent
    staff: Staff
    copies: CopyStaff
    standbys: Standbys
    sealer: Sealer

    @property
    def elapsed_s(self) -> float:
        """Seconds since the servers were ready."""

    def silence(self) -> None:
        """Let no timer of the coordinator fire any more."""


async def conclude(host: EndingHost, failure: PsplatformError | None) -> PsplatformError | None:
    """Let everybody go who worked for the run, and write how it ended; return why it has failed, if it has."""
    host.silence()
    failure = await host.fleet.explain(failure, host.absent.addresses)
    if hasattr(host, "staff"):
        await host.staff.disband(_LEAVING_S, host.standbys.peers)
        host.copies.close()
        await host.sealer.close()
    failure = await write_outcome(host.journal, host.program.store, host.run, failure, host.elapsed_s)
    if hasattr(host, "standbys"):
        await host.standbys.dismiss()
    return failure


async def write_outcome(
    journal: Journal, store: str, run: str, failure: PsplatformError | None, elapsed_s: float
) -> PsplatformError | None:
    """Bring out what the journal holds, and let the store say how the run has ended; sweep this host's segments.

    What the store refuses is named in the journal's `trouble`.  Return why the run has failed, if it has: one of which
    nothing is kept, because another took its store, has.
    """
    if journal.view.outcome is None:  # it ended before its coordinator began
        detail = str(failure.args[0]) if failure is not None else ""
        journal.append({**_NEVER_BEGUN, "at": elapsed_s, "detail": detail})
    await journal.close()
    outcome = journal.view.to_summary()["outcome"]
    if journal.taken:
        failure = failure or StoreError(journal.trouble, store=store)
    else:
        plain = to_plain(failure) if failure is not None else None
        changes = {"outcome": outcome, "error": str(failure or ""), "failure": plain}
        try:
            if journal.keeper is not None:
                await asyncio.to_thread(journal.keeper.ensure)
            await asyncio.to_thread(update_run, store, **changes)
        except PsplatformError as error:
            journal.trouble = str(error)
    await asyncio.to_thread(sweep, run)
    return failure
