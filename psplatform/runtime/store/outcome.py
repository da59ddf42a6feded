"""How a run has ended, brought into its store: the last record of its log, and what the store says of it."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from psplatform.core.supervision.unavailable import UnavailableProcesses
from psplatform.errors import PsplatformError, StoreError, to_plain
from psplatform.replication.stores.store import update_run
from psplatform.runtime.dataplane.segments import sweep
from psplatform.runtime.pools.fleet import Fleet
from psplatform.runtime.pools.shard_pool import DaskShardPool
from psplatform.runtime.pools.standbys import Standbys
from psplatform.runtime.pools.worker_pool import DaskWorkerPool
from psplatform.runtime.program import Program
from psplatform.runtime.store.run_log import RunLog
from psplatform.runtime.store.sealing import Sealer
from psplatform.runtime.timeouts import TIMEOUTS

_NEVER_BEGUN: Final = {
    "kind": "finished",
    "outcome": "failed",
    "version": 0,
    "loss": None,
    "accuracy": None,
    "seconds": 0.0,
}


class EndingHost(Protocol):
    """What the end of a run concerns in the coordinator's process."""

    program: Program
    run: str
    run_log: RunLog
    fleet: Fleet
    unavailable: UnavailableProcesses
    worker_pool: DaskWorkerPool
    copies: DaskShardPool
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
    failure = await host.fleet.explain(failure, host.unavailable.addresses)
    await host.worker_pool.disband(TIMEOUTS.leaving_s, host.standbys.peers)
    host.copies.close()
    await host.sealer.close()
    failure = await write_outcome(host.run_log, host.program.store, host.run, failure, host.elapsed_s)
    await host.standbys.dismiss()
    return failure


async def write_outcome(
    run_log: RunLog, store: str, run: str, failure: PsplatformError | None, elapsed_s: float
) -> PsplatformError | None:
    """Bring out what the run log holds, and let the store say how the run has ended; sweep this host's segments.

    What the store refuses is named in the run log's `trouble`.  Return why the run has failed, if it has: one of which
    nothing is kept, because another took its store, has.
    """
    if run_log.view.outcome is None:  # it ended before its coordinator began
        detail = str(failure.args[0]) if failure is not None else ""
        run_log.append({**_NEVER_BEGUN, "at": elapsed_s, "detail": detail})
    await run_log.close()
    outcome = run_log.view.to_summary()["outcome"]
    if run_log.taken:
        failure = failure or StoreError(run_log.trouble, store=store)
    else:
        plain = to_plain(failure) if failure is not None else None
        changes = {"outcome": outcome, "error": str(failure or ""), "failure": plain}
        try:
            if run_log.keeper is not None:
                await asyncio.to_thread(run_log.keeper.ensure)
            await asyncio.to_thread(update_run, store, **changes)
        except PsplatformError as error:
            run_log.trouble = str(error)
    await asyncio.to_thread(sweep, run)
    return failure
