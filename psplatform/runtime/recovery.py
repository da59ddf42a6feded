"""Going on with a run from its store, after everything that ran it is gone."""

from __future__ import annotations

from typing import Any, Final

from distributed import Client

from psplatform.errors import ConfigurationError, StoreError
from psplatform.jobs.job import Job
from psplatform.replication.checkpoints import load_checkpoint
from psplatform.replication.places import place_of
from psplatform.replication.store import describe_run
from psplatform.runtime.launch import Report, start
from psplatform.runtime.prepared import prepare
from psplatform.runtime.program import Resume
from psplatform.runtime.run import Run, attach
from psplatform.telemetry.reader import LogReader

_ALIVE: Final = ("starting", "running", "ending")


def recover(
    store: str,
    client: Client | None = None,
    *,
    checkpoint: int | None = None,
    report: Report = lambda text: None,
    **changes: Any,
) -> Run:
    """Go on with the run in `store` from a checkpoint, in the same store; return the run.

    The number of workers and of shards may be another than before.

    Parameters
    ----------
    client
        A client of the cluster to run on; without one, a cluster on this machine is made for the run.
    checkpoint
        Number of the checkpoint; the newest one if not given.
    report
        Called with a few words at each step of starting.
    changes
        Fields of the job that shall be different, and those that no store can keep: `model`, `loss`, `data`, `test`,
        `task`, or a `policy` of your own.

    Raises
    ------
    StoreError
        If the store is empty, foreign, of a newer format or damaged, or holds no complete checkpoint.
    ConfigurationError
        If the run still goes on or has reached its end, or the model is not that of the checkpoint.
    """
    store = place_of(store)
    description = describe_run(store)
    _require_over(store, description, client, changes)
    found = load_checkpoint(store, checkpoint)
    if "job" not in description:
        raise StoreError(f"{store} does not say which job it ran; start the job again in another store", store=store)
    term = LogReader(store).history().end.term + 1
    job = Job.from_plain(description["job"], **{**changes, "store": store})
    resume = Resume(found.number, max(term, 2), found.state)
    return start(prepare(job, run=description["run"], resume=resume), client, report)


def _require_over(store: str, description: dict[str, Any], client: Client | None, changes: dict[str, Any]) -> None:
    run = description["run"]
    outcome = description.get("outcome")
    if outcome is None and attach(store, client).status()["phase"] in _ALIVE:
        raise ConfigurationError(f"run {run} still goes on; stop it, or attach to it instead", field="store")
    if outcome not in (None, "failed", "stopped") and "stop" not in changes:
        raise ConfigurationError(
            f"run {run} has reached its end ({outcome}); give a later one to go on, such as more updates", field="stop"
        )
