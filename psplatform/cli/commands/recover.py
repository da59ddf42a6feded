"""``psplatform recover``: going on with a run from its store."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import click

from psplatform.cli.commands.train import pairs, stop_fields
from psplatform.cli.options import COPY_FIELDS, JOB_FLAGS, STOP_FIELDS, with_flags
from psplatform.cli.progress import ProgressLine
from psplatform.cli.protection import PROTECTION, protection_fields
from psplatform.cli.signals import interrupted_by_signals
from psplatform.client.clusters.forking import begin

_MEASURED = ("evaluate_every", "metrics", "watch", "keep_best")
_FIELDS = ("workers", "max_workers", "shards", "policy", "device", "transport", "compression", *_MEASURED)
_OWN = ("policy_options", "checkpoint_every", "keep_checkpoints", *STOP_FIELDS, *COPY_FIELDS)
_CHANGEABLE = [flag for flag in JOB_FLAGS if flag.words in (*_FIELDS, *_OWN)]
_TARGETS = ("target_loss", "target_accuracy", "targets")


@click.command()
@click.argument("store")
@click.option("--scheduler", metavar="ADDRESS", help="Scheduler to run on; a cluster on this machine if not given.")
@click.option("--checkpoint", type=int, metavar="N", help="Number of the checkpoint. [the newest]")
@with_flags(_CHANGEABLE, "as before")
@click.option(
    "--fabric/--no-fabric",
    default=None,
    help="Plan when gradients are sent, and drop what would be late before it is sent, or do not. [as before]",
)
@click.option(
    "--ask-store-scheduler/--no-ask-store-scheduler",
    default=True,
    help="Ask the scheduler on which you have started the run if it goes on there, or look at its log alone. [ask]",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on the last line.")
def recover(
    store: str,
    *,
    scheduler: str | None,
    checkpoint: int | None,
    ask_store_scheduler: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Go on with the run in STORE from its newest checkpoint, in the same store.

    Workers and shards may be others than before, and what no option speaks of stays as it was.  A model of your own is
    given in Python, with ps.recover.
    """
    if scheduler is None:
        begin()  # what the processes of the cluster import is imported while this program does
    from psplatform.cli.follow import follow  # noqa: PLC0415  brings Dask, which takes a second
    from psplatform.client.clusters.connecting import connect  # noqa: PLC0415
    from psplatform.client.runs.recovery import recover as recover_from  # noqa: PLC0415
    from psplatform.replication.stores.places import place_of  # noqa: PLC0415
    from psplatform.replication.stores.store import describe_run  # noqa: PLC0415  brings Zarr

    changes = job_changes(describe_run(place_of(store)), given)
    with interrupted_by_signals(), ProgressLine() as line:
        client = connect(scheduler) if scheduler else None
        try:
            run = recover_from(
                store,
                client,
                checkpoint=checkpoint,
                ask_store_scheduler=ask_store_scheduler,
                report=line.say,
                **changes,
            )
            with contextlib.closing(run):
                follow(run, line, as_json=as_json, embedded=client is None)
        finally:
            if client is not None:
                client.close()


def job_changes(description: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the job that the command line changes, completed by what the store says of them.

    Raises
    ------
    ConfigurationError
        If an option cannot be understood.
    """
    before = description.get("job", {})
    changes = {name: given[name] for name in _FIELDS if given.get(name) is not None}
    if given.get("policy_options"):
        changes["policy_options"] = pairs(given["policy_options"], "policy_options")
    if given.get("fabric") is not None:
        changes["network"] = _planned(before.get("network") or {}, given=given["fabric"])
    asked = stop_fields(given)
    if asked:
        changes["stop"] = {**_not_reached(before.get("stop", {}), description.get("outcome")), **asked}
    protection = protection_fields({name: before.get(name) for name in PROTECTION}, given)
    return changes | {name: value for name, value in protection.items() if value is not before.get(name)}


def _planned(network: Any, *, given: bool) -> Any:
    """Return how the job uses the network, with plans for transfers as before or the usual ones, or with none."""
    if not isinstance(network, Mapping):
        return network  # which is refused as it would be without the option
    return {**network, "fabric": (network.get("fabric") or {}) if given else None}


def _not_reached(stop: Mapping[str, Any], outcome: str | None) -> dict[str, Any]:
    """Return the conditions but the one that has ended the run: it would end it again at once."""
    reached = _TARGETS if outcome == "reached target" else (outcome,)
    return {name: value for name, value in stop.items() if name not in reached}
