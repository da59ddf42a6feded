"""Going on with a run from its store, after everything that ran it is gone."""

from __future__ import annotations

import contextlib
import math
from typing import Any, Final

from distributed import Client

from psplatform.client.clusters.connecting import address_of, connect_to, not_asked, usable
from psplatform.client.clusters.finding import actors_of, ended_lead
from psplatform.client.launch import Report, start
from psplatform.client.run import Run
from psplatform.client.runs import records
from psplatform.client.runs.listing import State, look_at
from psplatform.client.runs.resuming import require_state
from psplatform.client.starting.prepared import prepare
from psplatform.core.coordination.shards.checkpoints import NUMBERS_PER_TERM
from psplatform.errors import ConfigurationError, StoreError
from psplatform.jobs.job import Job
from psplatform.replication.checkpoints.retention import load_checkpoint, next_number
from psplatform.replication.stores.claims import claims_made
from psplatform.replication.stores.places import place_of
from psplatform.replication.stores.store import describe_run
from psplatform.runtime.comms.calls import Peer
from psplatform.runtime.comms.hosting import dataset_name
from psplatform.runtime.program import Resume
from psplatform.telemetry.log.reader import LogReader

_ALIVE: Final = ("starting", "running", "ending", "unknown")
"""Phases of a run that goes on; the last is that of one whose coordinator is there and too busy to answer."""


def recover(
    store: str,
    client: Client | None = None,
    *,
    checkpoint: int | None = None,
    ask_store_scheduler: bool = True,
    report: Report = lambda text: None,
    **changes: Any,
) -> Run:
    """Go on with the run in `store` from a checkpoint, in the same store; return the run.

    The number of workers and of shards may be another than before.

    A run that still goes on is refused: the client's scheduler is asked, and the one on which this user has started the
    run in that store.  One that does not answer within seconds counts as gone.  The scheduler of a run that another
    user, or this one on another machine, has started is not asked, because what the store says of it is not believed:
    then the run counts as going on while its log grows.  Its log does not tell whether it is over, or has only been
    stopped, or is out of reach, so see to it that it is.  Of several programs that recover a run at the same time, one
    goes on with it.

    Parameters
    ----------
    client
        A client of the cluster to run on; without one, a cluster on this machine is made for the run.
    checkpoint
        Number of the checkpoint; the newest one if not given.
    ask_store_scheduler
        Whether the scheduler on which this user has started the run is asked; else its log is looked at instead.
    report
        Called with a few words at each step of starting.
    changes
        Fields of the job that shall be different, and those that no store can keep: `model`, `loss` or `step`, `data`,
        `test`, `collate`, `task`, or a `policy` of your own.  Of `policy_options` those that are not given stay as
        they were.

    Raises
    ------
    StoreError
        If the store is empty, foreign, of a newer format or damaged, or holds no complete checkpoint.
    ConfigurationError
        If the run still goes on, is being recovered by another program or has reached its end, or the one that is
        given now, or the model is not that of the checkpoint.
    """
    client = usable(client) if client is not None else None
    store = place_of(store)
    description = describe_run(store)
    _require_over(store, description, client, report, ask_store_scheduler=ask_store_scheduler)
    found = load_checkpoint(store, checkpoint)
    require_state(store, found)
    _require_later_end(description, changes)
    if "job" not in description:
        raise StoreError(f"{store} does not say which job it ran; start the job again in another store", store=store)
    began = description.get("term", 1)
    # Above that of a program that has claimed to go on as well, and was killed, or only stopped, before it had.
    claims = claims_made(store, began)
    # The log may have been moved away, because it was damaged.
    term = max(began, LogReader(store).history().end.term, next_number(store) // NUMBERS_PER_TERM) + 1 + claims
    job = Job.from_plain(description["job"], **{**changes, "store": store})
    if "stop" in changes:
        _require_unreached_end(description, job, found.state)
    resume = Resume(found.number, term, found.state, succeeds=began, claims=claims)
    return start(prepare(job, run=description["run"], resume=resume), client, report)


def _require_over(
    store: str,
    description: dict[str, Any],
    client: Client | None,
    report: Report,
    *,
    ask_store_scheduler: bool,
) -> None:
    """Refuse a run that still goes on, as far as its scheduler or, where that is not known, its log tells."""
    if "outcome" in description:
        return
    run = description["run"]
    known = records.known(run, store) if ask_store_scheduler else None
    # A scheduler that was given, and that the store names as well, knows better than its log.
    asked_anyway = client is not None and address_of(client) == description.get("scheduler")
    if known is None and not asked_anyway:
        _require_silence(store, description, client, report)
    with contextlib.ExitStack() as stack:
        asked = [client] if client is not None else []
        if known is not None and (client is None or address_of(client) != known.scheduler):
            other = connect_to(known, client.security if client is not None else None)
            asked += [stack.enter_context(contextlib.closing(other))] if other is not None else []
        if any(_goes_on(run, store, one) for one in asked):
            raise ConfigurationError(f"run {run} still goes on; stop it, or attach to it instead", field="store")


def _require_silence(store: str, description: dict[str, Any], client: Client | None, report: Report) -> None:
    """Refuse a run whose log grows; of another, say that nobody was asked whether it goes on."""
    listed, unasked = look_at(store), ""
    if client is None or address_of(client) != description.get("scheduler"):
        unasked = not_asked(store, description)
    if listed.state is State.LIVE:
        text = f"run {description['run']} seems to go on ({listed.reason}); stop it, or wait until it is quiet"
        raise ConfigurationError(f"{text}{f' ({unasked})' if unasked else ''}", field="store")
    if unasked:
        report(unasked)


def _goes_on(run: str, store: str, client: Client) -> bool:
    try:
        actors = actors_of(run, client)
        lead = client.get_metadata([dataset_name(run)], default=None) or {}
    except (OSError, TimeoutError):
        return False  # the scheduler was lost while it was asked
    if "key" not in lead:
        # It is starting, or was never published, or is over and could not write that into its store.
        return bool(actors) and ended_lead(run, client) is None
    if lead["key"] not in actors:
        return any("-standby-" in key for key in actors)  # which takes over
    coordinator = Peer(lead["address"], lead["key"])
    return Run(run, store, client=client, coordinator=coordinator).status()["phase"] in _ALIVE


def _require_later_end(description: dict[str, Any], changes: dict[str, Any]) -> None:
    run, outcome = description["run"], description.get("outcome")
    if outcome not in (None, "failed", "stopped") and "stop" not in changes:
        raise ConfigurationError(
            f"run {run} has reached its end ({outcome}); give a later one to go on, such as more updates", field="stop"
        )


def _require_unreached_end(description: dict[str, Any], job: Job, state: dict[str, Any]) -> None:
    """Refuse an end that the run has reached at its checkpoint already: nothing would be trained.

    A run that was lost, or has failed, at its very last version may go on to that version, to save its model.
    """
    run, stop, outcome, version = description["run"], job.stop, description.get("outcome"), state["version"]
    updates, samples = stop.updates, description.get("samples") or math.inf
    if updates is not None and version == updates and outcome in (None, "failed"):
        return
    epochs = (state["samples_applied"] + state.get("bad_batches", (0, 0))[1]) / samples
    reached = {
        "updates": updates is not None and version >= updates,
        "epochs": stop.epochs is not None and epochs >= stop.epochs,
        "seconds": stop.seconds is not None and state["seconds"] >= stop.seconds,
    }
    for name in (name for name, holds in reached.items() if holds):
        at = {"updates": "", "epochs": f", after {epochs:.2f} epochs", "seconds": f", after {state['seconds']:.1f} s"}
        text = f"run {run} has reached its end ({getattr(stop, name):g} {name}): it goes on from version {version}"
        raise ConfigurationError(f"{text}{at[name]}; give a later one to go on, such as more {name}", field="stop")
